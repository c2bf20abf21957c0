"""Naming a mistake from the numbers that it gives.

A test that knows how an answer goes wrong says what would come out then:

    student.compare(got, right, wrong={"sum, not mean": 4 * right, "own part only": own})

If exactly that came out, on at least two numbers of ranks and wherever the test failed, the student is told. A wrong
diagnosis costs more than none: with one number of ranks too few, or another wrong number somewhere, nothing is said.

Read next: `student.py`, which compares.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

SENTENCES = {
    "sum, not mean": "a sum that should be a mean: nothing divides by the number of ranks",
    "mean, not sum": "a mean where the sum is asked for: something divides by the number of ranks",
    "averaged twice": "something that is divided twice: by the number of examples, and by the number of ranks again",
    "mean of means": "a mean of the ranks' means: it weighs a rank with few examples like one with many",
    "own part only": "what this rank has alone: the other ranks' part never came in",
    "root only": "a result that is right on rank 0 alone: the others never got the result back",
    "wrong root": "the result of another rank than 0: look who collects, and who starts",
    "rank 0 twice": "rank 0's own vector counted twice: it is in the sum before the loop begins",
    "wrong chunk": "the ring passing a wrong chunk on: which chunk does rank r send in step s?",
    "left over": "a tree that leaves out the ranks above the largest power of two: 5 ranks are 4 and one more",
    "one step too few": "a ring that stops one step early: p ranks need p-1 steps in each round",
    "no hand-out": "the first round of the ring alone: the sums are complete, and were not handed out",
    "neighbour only": "a sum over this rank and one neighbour: sums must travel on, not only the first vector",
    "not own chunk": "another chunk of the sum than the README asks for",
    "other way": "another algorithm than this one: the sum is right, and its messages are another way's",
    "whole vector": "whole vectors that go round the ring: only a chunk should travel in each step",
    "whole vector, one round": "every rank's whole vector going all the way round: only chunks should travel",
    "starts drift": "replicas that began with different weights: nobody took rank 0's",
    "replicas drift": "replicas that each train alone: their gradients were never summed",
    "replicas drift, own losses": "replicas that each train alone: neither gradients nor losses were summed",
    "last part only": "the gradient of the last micro-batch alone: each one overwrites what the ones before it left",
    "mean of parts": "a mean over micro-batches: it weighs a small one like a large one",
    "mean of parts and ranks": "a mean over micro-batches, then over ranks: each row must weigh the same",
    "no division": "a sum over all rows: nothing divides by their number",
    "last takes the rest": "the last rank taking all that is left over: the first ranks should take one more each",
    "local loss": "a loss of this rank's examples alone: report the mean over all of them",
    "every message": "one all-reduce for each micro-batch: sum them on the rank first, and send once",
    "rows lost": "rows that no rank has: what is left over when the rows do not divide evenly",
    "all rows": "every rank taking all rows: each needs a part of its own",
}


@dataclass(frozen=True)
class Finding:
    """Keep what was wrong on one number of ranks."""

    keys: frozenset[str] = field(default=frozenset())  # of mistakes that give exactly this
    ratio: float | None = None  # got / expected, where it is the same everywhere


def diagnose(findings: Mapping[int, Finding | None]) -> str:
    """Name the mistake that explains all failures, {number of ranks: finding}; "" if none does, or several do."""
    several = {size: finding for size, finding in findings.items() if size > 1}
    known = [finding.keys if finding else frozenset() for finding in several.values()]
    agreed = frozenset.intersection(*known) if len(known) >= 2 else frozenset()
    if len(agreed) != 1:
        return ""
    ratios = {size: finding.ratio for size, finding in sorted(several.items(), reverse=True) if finding}
    told = f"looks like {SENTENCES[next(iter(agreed))]}"
    if all(ratio is not None for ratio in ratios.values()):
        (size, ratio), *others = ratios.items()
        told += f"; your result is {ratio:.3f} x the right one on {size} ranks"
        told += "".join(f", {ratio:.3f} x on {size}" for size, ratio in others)
    return told
