"""Cut a model into stages: consecutive pieces, balanced by their costs, on the ranks of the mesh axis "pipe".

    pieces               embed  block  block  block  head       they cost 3, 4, 4, 4, 3
    2 ranks              rank 0: embed block block              rank 1: block head             11 and 7
    2 ranks, 2 chunks    rank 0: embed block, then block        rank 1: block, then head       7, 4, 4, 3

`cut` places parameters and does nothing else; `pipeline_parallel.py` runs the stages. A model that is only declared
(seed=None) takes no memory, so it can be cut first, and each rank draws what it keeps.

A tied parameter, used on several ranks, is kept on each of them. Its gradient is a partial sum over those ranks: its
placement says so, and the sync's all-reduce over the replicas takes in these ranks too.
Read next: `pipeline_parallel.py`.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from minidist.autograd import Parameter, Tensor
from minidist.comm import Mesh
from minidist.errors import UserError
from minidist.nn.module import Module, Piece, Weight
from minidist.nn.placement import Placement


class Stage(Module):
    """This rank's pieces of a model: one list of pieces for each chunk.

    Parameters have the names and the order that they have in the whole model; those of other stages are not listed.
    runs: which pieces of the model each virtual stage has, of all ranks.
    """

    def __init__(self, model: Module, chunks: Sequence[Sequence[Piece]], runs: Sequence[slice] = ()) -> None:
        self.model = model
        self.runs = list(runs)
        self.chunks = [tuple(pieces) for pieces in chunks]
        self.parameters_of = [
            list(dict.fromkeys(p for piece in pieces for p in piece.parameters())) for pieces in chunks
        ]

    def _walk(self, prefix: str) -> Iterator[tuple[str, Any]]:
        here = {parameter for parameters in self.parameters_of for parameter in parameters}
        yield from ((name, p) for name, p in self.model._walk(prefix) if p in here)


def cut(model: Module, mesh: Mesh, chunks: int = 1, costs: Sequence[float] | None = None) -> Stage:
    """Keep of a model what lives on this rank: `chunks` runs of pieces, so that the most expensive run is cheap.

    costs: of each piece; by default its number of parameters, to which the work of dense layers is proportional.
    Every rank of the mesh must call it. Raises UserError if there are more stages than pieces.
    """
    ranks, rank = mesh.size("pipe"), mesh.coordinates["pipe"]
    pieces = model.pieces()
    costs = counted_costs(model) if costs is None else costs
    if len(costs) != len(pieces):
        raise ValueError(
            f"costs has {len(costs)} numbers, expected one for each of the model's {len(pieces)} pieces"
        )
    check_fits(model, mesh.axes, chunks)
    runs = partition(costs, ranks * chunks)

    users: dict[Parameter, set[int]] = {}  # the ranks that use it
    for stage, run in enumerate(runs):
        for piece in pieces[run]:
            for parameter in piece.parameters():
                users.setdefault(parameter, set()).add(stage % ranks)
    for parameter, places in users.items():  # the same order on every rank: communicators are made here
        if len(places) > 1:
            _tie(mesh, parameter, tuple(sorted(places)))
        if rank not in places and isinstance(parameter, Weight):
            parameter.forget()  # it lives elsewhere
    return Stage(model, [pieces[runs[chunk * ranks + rank]] for chunk in range(chunks)], runs)


def _tie(mesh: Mesh, parameter: Parameter, places: tuple[int, ...]) -> None:
    """Place a parameter on several stages, and make the communicators that its sync will ask for, on all ranks."""
    axis = "pipe"
    if len(places) < mesh.size("pipe"):
        axis = f"stages {'+'.join(map(str, places))}"
        mesh.name_part(axis, "pipe", places)
    whole = parameter.placement or Placement(parameter.shape)
    parameter.placement = whole.also(repeated=(axis,), partial=(axis,))
    mesh.comm(axis)
    mesh.comm(
        *[name for name in ("data", *parameter.placement.partial) if name != "data" or name in mesh.axes]
    )


def check_fits(model: Module, axes: Mapping[str, int], chunks: int = 1) -> None:
    """Refuse more stages than a model has pieces, with the nearest choices that work. Talks to nobody."""
    if chunks < 1:
        raise UserError(f"chunks is {chunks}, expected at least 1 stage for each rank of the pipe")
    ranks, pieces = axes["pipe"], len(model.pieces())
    if ranks * chunks > pieces:
        raise UserError(_too_many(ranks, chunks, pieces, ranks * axes.get("data", 1)))


def _too_many(ranks: int, chunks: int, pieces: int, together: int) -> str:
    fitting = [(r, c) for r in range(1, ranks + 1) for c in range(1, chunks + 1) if r * c <= pieces]
    nearest = sorted(fitting, key=lambda rc: (rc[0] != ranks, rc[1] != chunks, -rc[0] * rc[1]))[:2]
    words = " or ".join(f"pipe={r} with {c} chunk{'s' * (c > 1)}" for r, c in nearest)
    shorter = max((r for r, c in fitting if c == chunks and together % r == 0), default=0)
    if shorter and together // shorter > 1:
        words += f", or data={together // shorter},pipe={shorter} on as many ranks"
    return (
        f"pipe={ranks} with {chunks} chunk{'s' * (chunks > 1)} makes {ranks * chunks} stages, and this model has "
        f"{pieces} piece{'s' * (pieces > 1)} to share out; try {words}, or a deeper model"
    )


def partition(costs: Sequence[float], stages: int) -> list[slice]:
    """Cut a row of costs into so many runs, none empty, so that the largest sum is as small as it can be.

    By dynamic programming over (stages, pieces), so exactly; of equal ones it takes what is more even.
    """
    n, sums = len(costs), [0.0, *accumulate(costs)]
    if not 1 <= stages <= n:
        raise ValueError(f"{n} costs cannot be cut into {stages} runs: expected 1 to {n}")
    # best[j]: (largest, squares, where the runs begin) of the first j pieces, in as many runs as the loop has come to
    best: list[tuple[float, float, list[int]] | None] = [(0.0, 0.0, [])] + [None] * n
    for _ in range(stages):
        new: list[tuple[float, float, list[int]] | None] = [None] * (n + 1)
        for j in range(1, n + 1):
            choices = []
            for i in range(j):
                if (head := best[i]) is not None:
                    tail = sums[j] - sums[i]
                    choices.append((max(head[0], tail), head[1] + tail**2, [*head[2], i]))
            new[j] = min(choices, default=None)
        best = new
    found = best[n]
    assert found is not None, "there are as many pieces as stages, or more"
    return [slice(a, b) for a, b in zip(found[2], [*found[2][1:], n], strict=True)]


def counted_costs(model: Module) -> list[float]:
    """Count the parameters of each piece; of a parameter that is spread over ranks, all of it."""
    return [
        float(sum(np.prod(p.placement.shape) if p.placement else p.size for p in piece.parameters()))
        for piece in model.pieces()
    ]


def measured_costs(model: Module, mesh: Mesh, inputs: np.ndarray, dtype: Any = np.float32) -> list[float]:
    """Time each piece on these inputs, forward and backward, in seconds, and tell all ranks what the first one found.

    For a declared model: for this moment the first ranks hold all of it. Every rank of the mesh must call it.
    """
    seconds = np.zeros(len(model.pieces()))
    if all(place == 0 for axis, place in mesh.coordinates.items() if axis != "tensor"):
        weights = [(name, p) for name, p in model.named_parameters() if isinstance(p, Weight)]
        declared = [(name, p) for name, p in weights if not p.array.flags.writeable]
        for name, weight in declared:
            weight.draw(0, name, dtype)
        for attempt in range(3):  # the first one warms up
            x: Any = inputs
            for number, piece in enumerate(model.pieces()):
                began = time.perf_counter()
                y = piece.run(x)
                if y.requires_grad:
                    y.backward(np.ones(y.shape, y.dtype), release=True)
                taken = time.perf_counter() - began
                seconds[number] = min(taken, seconds[number]) if attempt > 1 else taken
                x = Tensor(y.data, requires_grad=True)
        for parameter in model.parameters():
            parameter.zero_grad()
        for _, weight in declared:
            weight.forget()
    return mesh.everyone.broadcast(seconds, root=0, purpose="control").tolist()
