"""When numbers stop being finite: which tensor was the first, and on which rank; said by all ranks in the same step.

    step 7    forward   inputs -> blocks.0 -> blocks.1 -> ... -> loss       looked through only if the loss is nan
              backward  head.weight <- ... <- blocks.0 <- tokens            looked through only if the norm is nan

The loss of every step is summed over all ranks anyway, and the norm of the gradient is known to all that apply it. So
watching costs nothing, and all ranks decide alike; what takes time, the search, happens once. A replica whose own loss
is not finite searches before the update, while its weights are still those that made it.

Where replicas step on their own, the replica that finds it says so and ends the job: its gradient has gone nowhere yet.
"""

import argparse
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from minidist.autograd import Tensor, no_grad
from minidist.comm import Communicator
from minidist.comm.texts import all_gather_texts
from minidist.errors import UserError
from minidist.nn import Group, Module
from minidist.split.replica import Batch
from minidist.split.whole import Whole
from minidist.sync.zero import Zero
from minidist.train.setup import Setup

# (place in the order of computing, words)
Finding = tuple[int, str]


def search_forward(setup: Setup, batch: Batch) -> Finding:
    """Find the first tensor of this rank's forward that is not finite; called when its loss is not."""
    if found := _inputs(batch):
        return found
    place = 1
    for name, parameter in setup.model.named_parameters():
        if parameter.bound and (what := describe(parameter.array)):
            return place, f"the weights {name} ({what})"
    alone = setup.mesh.replica().size == 1 and not any(p.watch for p in setup.model.parameters())
    if isinstance(setup.replica, Whole) and alone:  # nobody is needed to compute it again
        outputs: list[str] = []  # names, in the order of computing
        with no_grad(), _watched(setup.model, outputs):
            setup.replica.model(batch.inputs)
        if outputs:
            return place, f"the output of {outputs[0]}"
    return place, "the loss"


def search_backward(setup: Setup, batch: Batch) -> Finding | None:
    """Find the first gradient, in the order of backward, that is not finite; it may be the sum of several ranks'."""
    if found := _inputs(batch):
        return found
    for group, start, vector in _updates(setup):
        for entry in group.layout:  # in the order of backward
            if what := describe(entry.within(vector, start)):
                return 2 + entry.place, f"the gradient of {entry.name} ({what})"
    return None


def _updates(setup: Setup) -> Iterator[tuple[Group, int, np.ndarray]]:
    """Yield (group, where in it, what shows a gradient that is not finite)."""
    if isinstance(setup.sync, Zero):
        # Gradients are gone; but they have spoilt exactly the weights that were theirs.
        for shard in setup.sync.shards:
            yield shard.bucket.group, shard.region.start, shard.weights
        return
    for group in setup.groups:
        if group.gradients is not None:
            yield group, 0, group.gradients


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
    first = "the norm of the gradient, on all ranks"
    if findings:
        (_, first), rank = min(findings, key=lambda each: (each[0][0], each[1]))
        summed = first.startswith("the gradient") and lockstep and setup.mesh.size("data") > 1
        first += ", in the sum over all replicas" if summed else f", on rank {rank}"
    became = f"the loss became {loss}" if not math.isfinite(loss) else "the gradient is not finite"
    raise UserError(
        f"{became} in step {step}; the first that is not finite: {first}. If the data are as they should be, the "
        f"training diverged; try --lr {options.lr / 10:g} or --clip-norm 1"
    )


def describe(array: np.ndarray) -> str:
    """Say how many numbers are not finite: "3 nan, 1 inf of 4096"; empty if all are."""
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return ""
    nan, inf = int(np.isnan(array).sum()), int(np.isinf(array).sum())
    counts = [f"{count} {name}" for count, name in ((nan, "nan"), (inf, "inf")) if count]
    return f"{', '.join(counts)} among {array.size:,} numbers"


def _inputs(batch: Batch) -> Finding | None:
    what = describe(batch.inputs)
    return (0, f"the inputs ({what})") if what else None


class _watched:
    """Within this context note the names of the modules whose outputs are not finite."""

    def __init__(self, model: Module, found: list[str]) -> None:
        self.modules, self.found = [*model.named_modules()], found

    def __enter__(self) -> None:
        for name, module in self.modules:
            vars(module)["forward"] = self._forward(name, module.forward)

    def __exit__(self, *_: object) -> None:
        for _name, module in self.modules:
            del vars(module)["forward"]

    def _forward(self, name: str, forward: Any) -> Any:
        def forward_and_look(*inputs: Any) -> Any:
            output = forward(*inputs)
            if isinstance(output, Tensor) and (what := describe(output.data)):
                self.found.append(f"{name or 'the model'} ({what})")
            return output

        return forward_and_look


def _gather(comm: Communicator, found: Finding | None) -> list[tuple[Finding, int]]:
    """Give what the ranks have found, with their ranks in the world."""
    told = [json.loads(text) for text in all_gather_texts(comm, json.dumps(found))]
    return [((what[0], what[1]), comm.members[rank]) for rank, what in enumerate(told) if what]
