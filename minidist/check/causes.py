"""What explains a difference before the gradients are made; and, for all of them, who is asked.

Each guess must agree with the numbers before it is said. Read next: `causes_backward.py`.
"""

from collections.abc import Callable, Iterator

import numpy as np

from minidist.check import causes_backward, causes_update
from minidist.check.case import Difference, rows_of
from minidist.check.evidence import Evidence, Guess, listed, ratio
from minidist.check.observe import forward_alone


def causes(evidence: Evidence, d: Difference) -> dict[str, str]:
    """Give all guesses that agree with the numbers, the likeliest first."""
    tellers: dict[str, Callable[[Evidence, Difference], Iterator[Guess]]] = {
        "start": _start,
        "rows": _rows,
        "forward": _forward,
        "labels": _labels,
        "stale": _stale,
        "gradient": causes_backward.gradient,
        "weights": causes_update.weights,
        "state": causes_update.state,
        "buffer": causes_update.buffer,
        "value": causes_update.value,
    }
    found: dict[str, str] = {}
    for key, text in tellers[d.stage](evidence, d):
        found.setdefault(key, text)
    return found


def _start(e: Evidence, d: Difference) -> Iterator[Guess]:
    copies = [record.start[d.tensor] for record in e.case.many[0] if d.tensor in record.start]
    if len(copies) > 1 and any(c.shape == copies[0].shape and (c != copies[0]).any() for c in copies):
        yield (
            "seed",
            "ranks start with different weights: is the seed a rank's own? Seed all alike, or broadcast rank 0's",
        )
    else:
        yield "start", "the initial weights depend on the number of ranks"


def _rows(e: Evidence, d: Difference) -> Iterator[Guess]:
    sets = [rows_of(record) for record in e.case.many[d.step] if record.reads]
    assert d.got is not None
    if len(sets) > 1 and all(np.array_equal(s, sets[0]) for s in sets):
        yield (
            "same rows",
            f"ranks 0-{len(sets) - 1} read the same examples {listed(sets[0])} of the batch; {listed(d.got)} "
            "are read by nobody: take another share on each rank",
        )
    else:
        yield (
            "rows left out",
            f"the examples {listed(d.got)} of the batch are read by no rank: is a remainder dropped?",
        )


def _forward(e: Evidence, d: Difference) -> Iterator[Guess]:
    got, one, call = d.got, d.one, d.call
    assert got is not None
    assert one is not None
    assert call is not None
    for name, own in call.weights.items():
        expected = next(
            (c.weights.get(name) for c in e.case.one[d.step].calls if c.layer == call.layer), None
        )
        if expected is None or expected.shape != own.shape or not e.case.differ(own, expected, None):
            continue
        before = e.case.one[max(d.step - 1, 0)].start.get(name)
        older = d.step > 0 and before is not None and not e.case.differ(own, before, None)
        yield (
            "stale weights",
            f"{name} was not yet what it should be when rank {d.rank} used it"
            + (", but as old as before the last update" if older else "")
            + ": is a broadcast or another request waited for too late?",
        )
    again = [c for c in e.case.many[d.step][d.rank].calls if c.layer == call.layer]
    for other in again:
        if other is call or other.output.shape != got.shape or call.rows is None or other.rows is None:
            continue
        if np.array_equal(other.rows, call.rows) and e.case.differ(other.output, got, None):
            yield (
                "recomputed",
                "its second forward for the same examples gave something else: random numbers drawn anew?",
            )
    bias = next((w for w in call.weights.values() if w.shape == got.shape[-1:]), None)
    if bias is not None:
        both = (got != 0) & (one != 0)  # a ReLU may stand behind it
        times = ratio({"x": (got - one)[both]}, {"x": np.broadcast_to(bias, got.shape)[both]})
        if times is not None:
            yield (
                "bias",
                f"the bias is in it {times + 1:.3f} times: added before the sum over {e.case.ranks} ranks?",
            )
    rows = call.rows
    zeros, expected_zeros = got == 0, one == 0
    if zeros.any() and (zeros != expected_zeros).any():
        twins = [
            r.rank
            for r in e.case.many[d.step]
            for c in r.calls
            if (c.layer, c.use) == (call.layer, call.use) and r.rank != d.rank and c.output.shape == got.shape
            and not (c.rows is None or rows is None or np.array_equal(c.rows, rows))
            and ((c.output == 0) == zeros).all()
        ]  # fmt: skip
        if twins:
            yield (
                "same mask",
                f"the same elements are 0 on ranks {', '.join(map(str, sorted({d.rank, *twins})))}: the same dropout "
                "mask for different examples; draw it by the example's place in the global batch",
            )
    if rows is not None and d.step == 0:
        alone, turned = (
            forward_alone(e.program, e.case.batches[0], order, call.layer) for order in (rows, rows[::-1])
        )
        if alone is not None and alone.shape == got.shape and not e.case.differ(got, alone, None):
            if turned is not None and not e.case.differ(got, turned[::-1], None):
                yield (
                    "statistics",
                    "it depends on which examples are together: statistics over a rank's own examples (batch norm?); "
                    "sum them over the ranks",
                )
            else:
                yield (
                    "same mask",
                    "it depends on an example's place in a rank's share: the same random numbers (dropout?) on all "
                    "ranks; draw them by the place in the global batch",
                )
    factor = ratio({"x": got}, {"x": one})
    if factor is not None:
        yield f"output {factor:.3f}", f"it is {factor:.3f} times the one-process output"
    kept = ~zeros & ~expected_zeros
    if (zeros != expected_zeros).any() and np.allclose(got[kept], one[kept]):
        yield "other mask", "other elements are 0 than in one process: random numbers depend on the rank"


def _labels(e: Evidence, d: Difference) -> Iterator[Guess]:
    yield (
        "labels",
        f"rank {d.rank} compares outputs with labels of other examples: a share, or a microbatch, matched to another's",
    )


def _stale(e: Evidence, d: Difference) -> Iterator[Guess]:
    ranks = sorted({record.rank for record in e.case.many[d.step] if record.stale})
    everyone = len(ranks) == e.case.ranks
    where = "on every rank" if everyone else f"on rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
    yield "zero_grad", f"gradients are not cleared between steps {where}: call zero_grad before backward"
