"""Tensor parallel: every matrix of the model is shared out, and all ranks work on the same examples.

    one block of a transformer on 2 ranks; the stream is the same on both:

    stream --+--> enter --> queries, keys, values of heads 0 1 --> their rows of `out` ----+
             |                                                                             +--> all-reduce --> stream +=
             +--> enter --> queries, keys, values of heads 2 3 --> their rows of `out` ----+

    stream --+--> enter --> columns 0..2w of `widen`, gelu ----> rows 0..2w of `narrow` ---+
             |                                                                             +--> all-reduce --> stream +=
             +--> enter --> columns 2w..4w of `widen`, gelu ---> rows 2w..4w of `narrow` --+

A matrix is cut by columns, the next one by rows, so that what is between them needs no communication
(`tensor_layers.py`). Attention is cut by heads: a rank computes its own heads whole. The table of token embeddings is
cut by rows, for its use as the head just as well, so every rank has some columns of the logits, and no rank ever has
all (`tensor_loss.py`). Nothing has to divide: 4 heads on 3 ranks are 2, 1 and 1.

Norms, positions and the biases behind a sum are repeated. Their gradients are the same bytes on all ranks without any
communication, for everything in the stream is, and its gradient comes out of `enter` as a sum that all ranks share.

Cost per step with p ranks and an activation of n = batch x time x width numbers: in each block 2 all-reduces of n in
forward and 2 in backward, one more in forward for the embedding and in backward for the head, and 3 numbers per target
for the loss. They stand in the way: nothing else can be computed meanwhile, so this wants a fast network.
Memory per rank: 1/p of all matrices with their gradients and optimizer state; of the activations that a block keeps,
(4 + 12/p) n instead of 16 n.

With `sequence` each rank has a piece of the stream along time: an all-gather enters a pair of layers, and a
reduce-scatter leaves it, which together send just what an all-reduce does (by the ring, and on 2 ranks by any way).
A block keeps (2 + 14/p) n, for norms and residuals are in pieces. In return the gradients of what is repeated are
partial sums, and sync adds them up over this axis too. (The paper's (16/p) n costs one more all-gather in backward.)

Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism", 2019,
section 3; Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022, section 4.2.2.

    mpiexec -n 4 python -m minidist.train --mode model --model gpt

Read next: `minidist/comm/on_tape.py`, the collectives and their gradients.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np

from minidist.autograd import Tensor
from minidist.comm import Mesh
from minidist.errors import UserError
from minidist.models import GPT, MLP
from minidist.nn import Module, Placement
from minidist.split.replica import Argmax, Loss, whole_argmax, whole_loss
from minidist.split.tensor_layers import (
    ColumnParallel,
    NormBeforeHead,
    Positions,
    RowParallel,
    Stream,
    StreamInPieces,
    VocabularyParallel,
)
from minidist.split.tensor_loss import reported_once, split_argmax, split_cross_entropy


def parallelize(model: Module, mesh: Mesh, sequence: bool = False) -> tuple[Loss, Argmax]:
    """Share out a declared model over the mesh's axis "tensor", in place; give the loss and the argmax that fit.

    model: an MLP or a GPT made with seed=None; `initialize` it afterwards.
    sequence: let norms and residuals, too, work on pieces of the sequence (GPT alone).
    The loss's value is the replica's on the tensor rank 0 and 0.0 on the others; classes are found on all of them.
    Raises UserError for models that cannot be shared out like this.
    """
    check_fits(model, mesh.axes, sequence)
    comm = mesh.comm("tensor")
    stream = StreamInPieces(comm) if sequence else Stream(comm)
    if isinstance(model, GPT):
        classes: int | None = split_gpt(model, stream)
    else:
        assert isinstance(model, MLP), "check_fits has refused all others"
        classes = split_mlp(model, stream)
    for parameter in model.parameters():
        if parameter.placement is None:  # what works in the stream
            parameter.placement = Placement(parameter.shape, repeated=("tensor",), partial=stream.partial)
    if stream.partial:
        # A sync will ask for the ranks of these sums: make it here, in one order on all stages.
        mesh.comm(*[axis for axis in mesh.axes if axis in ("data", *stream.partial)])

    if classes is None:

        def loss(outputs: Tensor, labels: np.ndarray, count: int) -> Tensor:
            return reported_once(comm, whole_loss(outputs, labels, count))

        return loss, whole_argmax
    first = int(stream.share(classes)[0])
    return partial(split_cross_entropy, comm, first, classes), partial(split_argmax, comm, first)


def check_fits(model: Module, axes: Mapping[str, int], sequence: bool = False) -> None:
    """Refuse a declared model that cannot be shared out over this mesh. Talks to nobody."""
    if isinstance(model, GPT):
        need_enough(axes, model.blocks[0].attention.heads, "heads")
        need_enough(axes, len(model.tokens.weight), "tokens of the vocabulary")
    elif isinstance(model, MLP):
        if sequence:
            raise UserError("sequence parallelism cuts the time of a gpt, and an mlp has none: leave it out")
        for number, layer in enumerate(model.layers):
            if number % 2 == 0:
                need_enough(axes, layer.bias.size, f"outputs of layer {number}")
    else:
        raise UserError(
            f"a {type(model).__name__.lower()} cannot be shared out by tensors, only an mlp or a gpt can: "
            "let more replicas (data) or stages (pipe) have these ranks"
        )


def split_mlp(mlp: MLP, stream: Stream) -> int | None:
    """Cut the layers in pairs, by columns and by rows; a last odd one by columns: then say how many classes are cut."""
    layers = mlp.layers
    for number, layer in enumerate(layers):
        if number % 2:
            mlp.layers[number] = RowParallel(layer, stream, stream.share(layer.weight.shape[0]))
        else:
            mlp.layers[number] = ColumnParallel(layer, stream, stream.share(layer.bias.size))
    return None if len(layers) % 2 == 0 else layers[-1].bias.placement.shape[0]


def split_gpt(gpt: GPT, stream: Stream) -> int:
    """Cut attention by heads, the layers between by columns and rows, the embedding by rows; give the vocabulary."""
    vocabulary = len(gpt.tokens.weight)
    gpt.tokens = VocabularyParallel(gpt.tokens, stream)
    gpt.positions = Positions(gpt.positions, stream)
    for block in gpt.blocks:
        attention = block.attention
        width = attention.out.bias.size
        heads = stream.share(attention.heads)
        columns = np.arange(width).reshape(attention.heads, -1)[heads].ravel()  # of one of the three
        three = np.concatenate([columns, width + columns, 2 * width + columns])
        attention.queries_keys_values = ColumnParallel(attention.queries_keys_values, stream, three)
        attention.out = RowParallel(attention.out, stream, columns)
        attention.heads = len(heads)
        hidden = stream.share(block.widen.bias.size)
        block.widen = ColumnParallel(block.widen, stream, hidden)
        block.narrow = RowParallel(block.narrow, stream, hidden)
    gpt.norm = NormBeforeHead(gpt.norm, stream)
    return vocabulary


def need_enough(axes: Mapping[str, int], n: int, what: str) -> None:
    """Refuse more ranks than there are things to share, with the nearest mesh that works."""
    ranks = axes["tensor"]
    if n >= ranks:
        return
    together = ranks * axes.get("data", 1)
    tensor = max(size for size in range(1, n + 1) if together % size == 0)
    raise UserError(
        f"{n} {what} cannot be shared by tensor={ranks} ranks, for each needs at least one: "
        f"try data={together // tensor},tensor={tensor}, or start fewer ranks (tensor={n}), or take {ranks} {what}"
    )
