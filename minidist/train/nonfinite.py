"""When numbers stop being finite: which tensor was the first, and on which rank; said by all ranks in the same step.

    step 7    forward   inputs -> blocks.0 -> blocks.1 -> ... -> loss       looked through only if the loss is nan
              backward  head.weight <- ... <- blocks.0 <- tokens            looked through only if the norm is nan

The loss of every step is summed over all ranks anyway, and the norm of the gradient is known to all that apply it. So
watching costs next to nothing, and all ranks decide alike; what takes time, the search, happens once. It goes forward
again, before the update, while weights are still those that made the loss. A replica of one rank does so alone, when
its own loss is not finite; one of several ranks together, so these wait for the sum first.

What a rank finds has a place in the order of computing, the same on all ranks; the first place is the one that is told.
Where replicas step on their own, the replica that finds it says so and ends the job: its gradient has gone nowhere yet.
"""

import argparse
import contextlib
import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from minidist.autograd import Tensor, no_grad
from minidist.comm import Communicator, Request
from minidist.comm.guard.report import name_ranks
from minidist.comm.texts import all_gather_texts
from minidist.errors import UserError
from minidist.nn import Group, Module
from minidist.split.pipedream import PipeDream
from minidist.split.replica import Batch
from minidist.sync.zero import Zero
from minidist.train.setup import Setup

INPUTS, WEIGHTS, OUTPUTS, LOSS, GRADIENTS = range(5)  # in which order they come
# (one of these, place in the order of computing among its kind, words)
Finding = tuple[int, int, str]


def search_forward(setup: Setup, batch: Batch, loss: float, total: Request) -> Finding | None:
    """Find the first tensor of this rank's forward that is not finite; None if there is none, or no need to look.

    loss: this rank's share. total: the sum of all ranks'. Called after backward; ranks of one replica call it together.
    """
    ranks = setup.mesh.replica()
    known = np.array(loss)
    if ranks.size > 1:
        known = total.wait() if setup.sync.lockstep else ranks.all_reduce(known, purpose="control")
    if np.isfinite(known):
        return None
    found = [*_inputs(batch)]
    if isinstance(setup.replica, PipeDream):  # has been updating
        bad = [m for m, value in setup.replica.losses.items() if not math.isfinite(value)]
        found += [(LOSS, m, f"the loss of microbatch {m}") for m in bad[:1]]
    else:
        found += _weights(setup)
        if len(batch.inputs):
            with no_grad(), _watched(setup.model, found):
                setup.replica.predict(batch.inputs)
    if not found and not math.isfinite(loss):
        found = [(LOSS, 0, "the loss")]
    return min(found, default=None)


def search_backward(setup: Setup, batch: Batch) -> Finding | None:
    """Find the first gradient, in the order of backward, that is not finite; it may be the sum of several ranks'."""
    if isinstance(
        setup.sync, Zero
    ):  # they are gone; but they have spoilt exactly the weights that were theirs
        gradients = _vectors_of_shards(setup.sync)
    else:
        gradients = ((group, 0, group.gradients) for group in setup.groups if group.gradients is not None)
    found = [
        (GRADIENTS, -place, f"the gradient of {name} ({what})")
        for place, name, what in _parameters(setup, gradients)
    ]
    return min([*_inputs(batch), *found], default=None)


def check(
    options: argparse.Namespace,
    setup: Setup,
    batch: Batch,
    step: int,
    loss: float,
    norm: float,
    found: Finding | None,
) -> None:
    """Raise UserError on all ranks that share this step's numbers if one of them is not finite.

    loss: of the global batch, or of this rank where replicas step on their own. found: by `search_forward`.
    """
    lockstep = setup.sync.lockstep
    if math.isfinite(norm) and (math.isfinite(loss) or not lockstep):
        return
    comm = setup.mesh.everyone if lockstep else setup.mesh.replica()
    found = found or search_backward(setup, batch)
    findings = _gather(comm, found)
    what = "gradient" if math.isfinite(loss) else "loss"
    first = "the norm of the gradient, on all ranks"
    if findings:
        kind, place, first = min(findings)[0]
        same = [rank for finding, rank in findings if finding[:2] == (kind, place)]
        what = "gradient" if kind == GRADIENTS else "loss"
        summed = kind == GRADIENTS and lockstep and setup.mesh.size("data") > 1
        first += ", in the sum over all replicas" if summed else f", on {name_ranks(same)}"
    raise UserError(
        f"the {what} is not finite in step {step}; the first that is not finite: {first}. If the data are as they "
        f"should be, the training diverged; try --lr {options.lr / 10:g} or --clip-norm 1"
    )


def describe(array: np.ndarray) -> str:
    """Say how many numbers are not finite: "3 nan, 1 inf of 4096"; empty if all are."""
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return ""
    nan, inf = int(np.isnan(array).sum()), int(np.isinf(array).sum())
    counts = [f"{count} {name}" for count, name in ((nan, "nan"), (inf, "inf")) if count]
    return f"{', '.join(counts)} among {array.size:,} numbers"


def _inputs(batch: Batch) -> Iterator[Finding]:
    if what := describe(batch.inputs):
        yield INPUTS, 0, f"the inputs ({what})"


def _weights(setup: Setup) -> Iterator[Finding]:
    if isinstance(setup.sync, Zero) and setup.sync.stage == 3:  # nobody has all of them
        weights = _vectors_of_shards(setup.sync)
    else:
        weights = ((group, 0, group.weights) for group in setup.groups)
    for place, name, what in _parameters(setup, weights):
        yield WEIGHTS, place, f"the weights {name} ({what})"


def _vectors_of_shards(sync: Zero) -> Iterator[tuple[Group, int, np.ndarray]]:
    return ((shard.bucket.group, shard.region.start, shard.weights) for shard in sync.shards)


def _parameters(
    setup: Setup, vectors: Iterable[tuple[Group, int, np.ndarray]]
) -> Iterator[tuple[int, str, str]]:
    """Yield (place in forward, name, what is not finite) from stretches of vectors: (group, where in it, numbers)."""
    places = {name: place for place, (name, _) in enumerate(setup.model.named_parameters())}
    for group, start, vector in vectors:
        for entry in group.layout:
            if what := describe(entry.within(vector, start)):
                yield places[entry.name], entry.name, what


@contextlib.contextmanager
def _watched(model: Module, found: list[Finding]) -> Iterator[None]:
    """Within this context note the modules whose outputs are not finite."""
    modules = [*_as_they_end(model, "")]
    for place, (name, module) in enumerate(modules):
        vars(module)["forward"] = _noted(module.forward, place, name or "the model", found)
    try:
        yield
    finally:
        for _, module in modules:
            vars(module).pop("forward", None)


def _as_they_end(module: Module, name: str) -> Iterator[tuple[str, Module]]:
    """Yield the modules in the order in which they have their outputs: the parts before the whole."""
    for own, part in module.parts():
        if isinstance(part, Module):
            yield from _as_they_end(part, f"{name}.{own}" if name else own)
    yield name, module


def _noted(forward: Any, place: int, name: str, found: list[Finding]) -> Any:
    def forward_and_look(*inputs: Any) -> Any:
        output = forward(*inputs)
        if isinstance(output, Tensor) and (what := describe(output.data)):
            found.append((OUTPUTS, place, f"the output of {name} ({what})"))
        return output

    return forward_and_look


def _gather(comm: Communicator, found: Finding | None) -> list[tuple[Finding, int]]:
    """Give what the ranks have found, with their ranks in the world."""
    told = [json.loads(text) for text in all_gather_texts(comm, json.dumps(found))]
    return [(tuple(what), comm.members[rank]) for rank, what in enumerate(told) if what]
