"""What to say when ranks failed: the cause first and once, then what the others were doing.

Used by `launch()` and by the pytest plugin.
"""

import re
from collections.abc import Sequence

from minidist.launch.job import Outcome
from minidist.launch.stacks import where


def causes(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the ranks that failed by themselves, lowest first; not those that only stopped because of them."""
    failed = [outcome for outcome in outcomes if outcome.ended in ("raised", "exited", "died")]
    hung = [outcome for outcome in outcomes if outcome.ended == "hung"]
    return failed or hung or list(outcomes)


def explain(outcomes: Sequence[Outcome], transport: str, timeout: float, with_output: bool = True) -> str:
    """Return the report of a call in which at least one rank did not return."""
    size = len(outcomes)
    blamed = causes(outcomes)
    first = blamed[0]
    parts = []
    if first.ended == "hung":
        parts.append(f"{_ranks(blamed)} of {size} on {transport} did not come back within {timeout:g} s:")
    else:
        said = first.message.partition("\n")[0] if first.traceback else first.message
        parts.append(f"rank {first.rank} of {size} on {transport}: {said}")
        if first.traceback:
            parts.append(first.traceback)
        rest = list(blamed)
        while rest:
            one, *others = rest
            if one is not first:
                parts.append(f"rank {one.rank}: {one.message}")
            same = [other for other in others if _alike(other, one)]
            if same:
                parts.append(f"(the same on {_ranks(same)})")
            rest = [other for other in others if other not in same]
    for other in outcomes:
        if other.ended in ("hung", "stopped"):
            verb = "stands at" if other.ended == "hung" else "was stopped at"
            if other.frames or other.ended == "hung":
                parts.append(f"rank {other.rank} {verb} {where(other.frames)}")
        elif first.ended == "hung":
            parts.append(f"rank {other.rank} has finished")
    if first.ended in ("died", "hung"):
        parts += first.operations
    for outcome in outcomes:
        if with_output and outcome.output:
            parts.append(f"last lines printed by rank {outcome.rank}:")
            parts += [f"    {line}" for line in outcome.output]
    return "\n".join(parts)


def _alike(one: Outcome, other: Outcome) -> bool:
    """Tell whether two ranks failed of the same; in some messages their own numbers alone differ."""
    with_its_number = re.sub(rf"\brank {other.rank}\b", f"rank {one.rank}", other.message)
    return one.type == other.type and one.message in (other.message, with_its_number)


def _ranks(outcomes: Sequence[Outcome]) -> str:
    """Return "rank 2" or "ranks 0, 1, 3"."""
    numbers = ", ".join(str(outcome.rank) for outcome in outcomes)
    return f"rank {numbers}" if len(outcomes) == 1 else f"ranks {numbers}"
