"""Check a step: even and uneven batches, several numbers of ranks, and one verdict."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minidist import data as datasets
from minidist.check.case import Case, Difference
from minidist.check.causes import causes
from minidist.check.compare import first_difference
from minidist.check.evidence import Evidence
from minidist.check.observe import Batch, Loss, Program, gradients_by_row, mean_cross_entropy, observe
from minidist.check.prepare import prepared
from minidist.check.report import Report, describe, passed, stopped
from minidist.errors import UserError
from minidist.launch import LaunchTimeout, RankFailed

STEPS = 3
BATCH = 12  # 2, 3 and 4 ranks share it evenly; one row less, none of them


def run(
    build: Callable[..., Any],
    step: Callable[..., Any],
    data: Batch | None = None,
    ranks: Sequence[int] = (2, 4),
    *,
    loss: Loss = mean_cross_entropy,
    batch: int = BATCH,
    steps: int = STEPS,
    transport: str = "threads",
) -> Report:
    """Compare a training step on many ranks with one process; say the first difference and its likely cause.

    build(comm) -> state; step(comm, state, inputs, labels) -> the loss, or a dict of numbers, or nothing. The step gets
        the whole global batch on every rank.
    data: (inputs, labels), rows all different; by default handwritten digits, (n, 1, 8, 8) in [0, 1] and 0 to 9.
    loss: what the step minimises, (outputs, labels) -> mean over the targets; only used to find causes.
    """
    inputs, labels = data if data is not None else _digits()
    if len(inputs) != len(labels) or len(inputs) < 3 or min(ranks, default=0) < 2:
        raise UserError(
            f"got {len(inputs)} inputs, {len(labels)} labels and ranks {list(ranks)}; expected as many labels "
            "as inputs, at least 3 of them, and numbers of ranks from 2 up"
        )
    program = Program(build, step)
    batch = min(batch, len(inputs))
    with prepared():
        for size in dict.fromkeys((batch, batch - 1)):
            batches = cut(inputs, labels, size, steps)
            found = []
            alone = "1 rank"
            try:
                one = observe(program, 1, batches, transport)
                with prepared(nudge=True):
                    nudged = observe(program, 1, [(_nudge(x), y) for x, y in batches], "threads")
                for count in sorted(ranks):
                    alone = f"{count} ranks"
                    many = observe(program, count, batches, transport)
                    case = Case(count, batches, [r for (r,) in one], [r for (r,) in nudged], many)
                    difference = first_difference(case)
                    if difference is not None:
                        found.append((case, difference))
            except (RankFailed, LaunchTimeout) as error:
                return stopped(alone, error)
            rows = gradients_by_row(program, batches[0], loss)
            evidence = Evidence(
                Case(1, batches, [r for (r,) in one], [r for (r,) in nudged], one), rows, program
            )
            alone_wrong = evidence.wrong_on_one_rank()
            if found or alone_wrong:
                return verdict(found, rows, program, alone_wrong, uneven=size < batch)
    return passed(ranks, batch, steps)


def verdict(
    found: list[tuple[Case, Difference]],
    rows: Any,
    program: Program,
    alone: tuple[Difference, str] | None,
    uneven: bool,
) -> Report:
    """Choose what to say: a cause that every number of ranks agrees with."""
    if alone is not None:
        return describe(alone[0], 1, alone[1], "alone")
    explained = [causes(Evidence(case, rows, program), difference) for case, difference in found]
    agreed = [key for key in explained[-1] if all(key in other for other in explained)]
    case, difference = found[-1]
    if agreed:
        return describe(difference, case.ranks, explained[-1][agreed[0]], agreed[0])
    if uneven:
        text = "equal shares give the right result and unequal ones do not: a mean of the ranks' means, or a remainder?"
        return describe(difference, case.ranks, text, "uneven")
    return describe(difference, case.ranks, "", "")


def cut(inputs: np.ndarray, labels: np.ndarray, size: int, steps: int) -> list[Batch]:
    """Give `steps` batches of so many consecutive rows, beginning again when the rows are used up."""
    places = [np.arange(step * size, (step + 1) * size) % len(inputs) for step in range(steps)]
    return [(inputs[rows], labels[rows]) for rows in places]


def _digits() -> Batch:
    dataset = datasets.load("digits")
    return dataset.train_inputs[:60], dataset.train_labels[:60]


def _nudge(inputs: np.ndarray) -> np.ndarray:
    """Change floating-point inputs in their last digit, up and down in turn."""
    if inputs.dtype.kind != "f":
        return inputs
    signs = np.where(np.arange(inputs.size) % 3 == 0, 1.0, -1.0).reshape(inputs.shape)
    return (inputs * (1 + 2 * np.finfo(inputs.dtype).eps * signs)).astype(inputs.dtype)
