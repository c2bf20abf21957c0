"""How many floating-point operations the pieces of a model take, and how many bytes they must at least touch.

    a matrix product of weights (k, m) with rows (n, k)      2 n k m operations forward, and as many for each gradient
    attention over t positions of width w                    4 t^2 w forward, 8 t^2 w backward

Only matrix products and convolutions are counted. Read next: `minidist/simulate/costs.py`, which makes times of them,
and `minidist/trace/plot/roofline.py`, which draws them.
"""

from minidist.models import CNN, GPT, MLP
from minidist.nn import Module
from minidist.plan.splits import numbers_after


def operations(model: Module, piece: int) -> float:
    """Count what this rank's part of a piece takes forward, for one example."""
    if isinstance(model, MLP):
        return 2.0 * model.layers[piece].weight.size
    if isinstance(model, CNN):
        if piece == 2:
            return 2.0 * model.head.weight.size
        layer = (model.first, model.second)[piece]
        points = (
            numbers_after(model, piece) * (4 if piece else 1) / layer.weight.shape[0]
        )  # the second is pooled
        return 2.0 * layer.weight.size * points
    assert isinstance(model, GPT)
    if piece == 0:
        return 0.0  # looking up
    if piece > len(model.blocks):
        return 2.0 * model.time * model.tokens.weight.size
    block = model.blocks[piece - 1]
    matrices = sum(p.size for p in block.parameters() if p.ndim == 2)
    return 2.0 * model.time * matrices + 4.0 * model.time**2 * block.attention.out.weight.shape[0]


def forward_of_layers(
    model: Module, examples: int, inputs: int, itemsize: int
) -> dict[str, tuple[float, float]]:
    """Give (operations, bytes) of a forward through each layer that is a piece of the model by itself, by its name.

    Bytes: weights, inputs and outputs, each once; `inputs` numbers of an example come into the model.
    """
    names = {id(part): name for name, part in model.parts()}
    found = {}
    for number, piece in enumerate(model.pieces()):
        own = [names[id(part)] for part in piece.parts if id(part) in names]
        if len(own) == 1:
            weights = sum(parameter.size for parameter in piece.parameters())
            passing = (numbers_after(model, number - 1) if number else inputs) + numbers_after(model, number)
            found[own[0]] = (
                examples * operations(model, number),
                float(itemsize * (weights + examples * passing)),
            )
    return found
