"""How a verdict is said: where, what differs, and what probably made it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minidist.check.case import Difference
from minidist.launch import LaunchTimeout, RankFailed

PLACES = {
    "start": "before step 1: the weights of {tensor}",
    "rows": "the examples that are read",
    "forward": "forward: the output of {tensor}",
    "labels": "the loss: its labels",
    "stale": "backward: the gradient of {tensor}",
    "gradient": "backward: the gradient of {tensor}",
    "weights": "update: the weights of {tensor}",
    "state": "update: the optimizer's {tensor}",
    "buffer": "after the update: {tensor}",
    "value": "what the step reports: {tensor}",
}


@dataclass(frozen=True)
class Report:
    """A verdict. `ok`: nothing differs. `text`: what to read; `cause`: a short name of what was found, or ''."""

    ok: bool
    text: str
    step: int = 0  # from 1
    rank: int = 0
    stage: str = ""
    tensor: str = ""
    cause: str = ""

    def __repr__(self) -> str:
        return self.text


def passed(ranks: Sequence[int], batch: int, steps: int) -> Report:
    """Say that all is well, and what was looked at."""
    counts = " and ".join(map(str, sorted(ranks)))
    text = f"ok: {counts} ranks do what one process does, in {steps} steps of {batch} and of {batch - 1} examples"
    return Report(True, text)


def stopped(where: str, error: RankFailed | LaunchTimeout) -> Report:
    """Say that the step did not come to its end."""
    return Report(
        False, f"on {where} the step did not come to its end\n{error}", cause="stopped", stage="stopped"
    )


def describe(d: Difference, ranks: int, cause: str, key: str) -> Report:
    """Say which tensor is the first that differs, and why."""
    where = "1 rank" if ranks == 1 else f"rank {d.rank} of {ranks}"
    place = PLACES[d.stage].format(tensor=d.tensor)
    reference = "the one-process gradient of the mean loss" if ranks == 1 else "the one-process run"
    lines = [f"step {d.step + 1}, {where}, {place}: the first that differs from {reference}"]
    if d.stage == "stale":
        lines = [f"step {d.step + 1}, {where}, {place} was added to that of the step before"]
    numbers = compared(d)
    if numbers:
        lines.append(f"  {numbers}")
    lines.append(f"  {cause}" if cause else "  no cause that was tried explains the numbers")
    return Report(False, "\n".join(lines), d.step + 1, d.rank, d.stage, d.tensor, key if cause else "")


def compared(d: Difference) -> str:
    """Show the number that is furthest off."""
    if d.stage in ("rows", "stale", "labels") or d.one is None:
        return ""
    if d.got is None:
        return "there is none here"
    place = np.unravel_index(int(np.nan_to_num(np.abs(d.got - d.one), nan=np.inf).argmax()), d.got.shape)
    index = f"[{', '.join(map(str, map(int, place)))}]" if place else ""
    return f"{d.tensor}{index} is {d.got[place]:.6g}, expected {d.one[place]:.6g}"
