"""What explains wrong weights where gradients are right; wrong state and numbers that are reported.

Read next: `report.py`.
"""

from collections.abc import Iterator

import numpy as np

from minidist.check.case import Difference, gradient_of, rows_of
from minidist.check.causes_backward import summed_weights, weighed
from minidist.check.evidence import Evidence, Guess, listed, near, ratio
from minidist.check.observe import values_by_row


def weights(e: Evidence, d: Difference) -> Iterator[Guess]:
    case, p, records = e.case, e.case.ranks, e.case.many[d.step]
    record, one = records[d.rank], case.one[d.step]
    names = [
        n
        for n in one.end
        if n in record.end and n in record.start and record.end[n].shape == one.end[n].shape
    ]
    moved = {n: record.end[n] - record.start[n] for n in names}
    expected = {n: one.end[n] - one.start[n] for n in names}
    still = [
        r.rank
        for r in records
        if r.end and all(np.array_equal(r.end[n], r.start[n]) for n in r.end if n in r.start)
    ]
    if d.rank in still and any(np.abs(x).max(initial=0) > 0 for x in expected.values()):
        where = ", ".join(map(str, still))
        yield (
            "not updated",
            f"rank{'s' * (len(still) > 1)} {where} did not update: only some ranks step, and nobody sends weights",
        )
    wrong = [n for n in names if case.differ(record.end[n], one.end[n], None)]
    f = ratio({n: moved[n] for n in wrong}, {n: expected[n] for n in wrong}, 1e-3)
    lr = one.lr or record.lr
    if f is not None:
        says = f"the update is {f:.3f} times the one-process update"
        if gradient_of(record, d.tensor) is None:  # ZeRO has none when the update is over
            if near(f, p):
                yield (
                    "summed",
                    f"{says}: gradients summed, not averaged, or lr multiplied by the number of ranks?",
                )
            if near(f, 1 / p):
                yield (
                    "averaged twice",
                    f"{says}: gradients averaged twice, or lr divided by the number of ranks?",
                )
        more = record.updates.get(d.tensor, 0) - one.updates.get(d.tensor, 0)
        if near(f, 2) and more > 0:
            yield "twice", f"{says}: applied twice"
        if near(f, p):
            yield (
                "lr",
                f"{says}, and gradients agree: is the learning rate multiplied by the number of ranks?",
            )
        if near(f, 1 / p):
            yield (
                "lr divided",
                f"{says}, and gradients agree: is the learning rate divided by the number of ranks?",
            )
        if lr and near(f, 1 / lr):
            yield "no lr", f"{says}, which is 1/lr: the learning rate is left out"
        if near(f, p * p):
            yield "lr twice", f"{says}, and gradients agree: is the learning rate rescaled twice?"
        if near(f, 2):
            yield "twice", f"{says}: applied twice?"
    yield from summed_weights(e, d)
    got, new, old = record.end[d.tensor], one.end[d.tensor], record.start[d.tensor]
    if got.shape == new.shape:
        as_new, as_old = (np.isclose(got, x, rtol=case.floor, atol=0) for x in (new, old))
        if (as_new | as_old).all() and as_new.any() and (as_old & ~as_new).any():
            count = int((as_old & ~as_new).sum())
            yield (
                "torn",
                f"{count} of its {got.size} numbers are from before the update, the rest from after it: torn",
            )
    if f is None and not d.step and one.lr:
        scale = ratio(expected, {n: g for n, g in e.applied_one(0).items() if n in expected}, 1e-3)
        if scale:
            weights = e.weights_of_rows({n: x / scale for n, x in moved.items()})
            if weights is not None:
                yield from weighed(e, d, weights, [rows_of(r) for r in records], "on every parameter")
    apart = [r.rank for r in records if d.tensor in r.end and r.end[d.tensor].shape == got.shape
             and not np.array_equal(r.end[d.tensor], records[d.rank].end[d.tensor])]  # fmt: skip
    counts = {r.updates.get(d.tensor, 0) for r in records if d.tensor in r.end}
    if len(counts) > 1:
        shown = ", ".join(str(r.updates.get(d.tensor, 0)) for r in records)
        yield "updates", f"the ranks updated it {shown} times: all must do so equally often"
    if apart:
        yield (
            "replicas apart",
            f"gradients agree, and yet ranks {d.rank} and {apart[0]} end with different weights",
        )


def state(e: Evidence, d: Difference) -> Iterator[Guess]:
    ranks = [r.rank for r in e.case.many[d.step] if not r.state or all(not x.any() for x in r.state.values())]
    if ranks:
        where = ", ".join(map(str, ranks))
        yield (
            "state",
            f"no optimizer state on rank{'s' * (len(ranks) > 1)} {where}: all that update must keep it",
        )
    yield (
        "state apart",
        "weights still agree, but the optimizer's state does not, and will part them in the next step",
    )


def buffer(e: Evidence, d: Difference) -> Iterator[Guess]:
    copies = [r.buffers.get(d.tensor) for r in e.case.many[d.step]]
    if any(c is not None and copies[0] is not None and (c != copies[0]).any() for c in copies):
        yield (
            "buffers",
            "ranks keep different values of it (running statistics?): average them, or broadcast rank 0's",
        )
    yield (
        "buffer",
        "it is not a parameter, so no gradient keeps it equal: combine it over the ranks, or broadcast it",
    )


def value(e: Evidence, d: Difference) -> Iterator[Guess]:
    case = e.case
    assert d.got is not None
    assert d.one is not None
    got, n = float(d.got), len(case.batches[d.step][0])
    owners = [np.concatenate([*r.reads, np.empty(0, np.int64)]).astype(np.int64) for r in case.many[d.step]]
    alone = sum(d.tensor in r.value for r in case.many[d.step]) == 1
    for measured in values_by_row(e.program, case.batches[0]) if not d.step else ():
        if not near(float(measured.mean()), float(d.one)) or not all(len(rows) for rows in owners):
            continue
        if alone and near(float(measured[owners[d.rank]].mean()), got):
            yield (
                "one rank's",
                f"it is rank {d.rank}'s own, of {len(owners[d.rank])} of {n} examples: combine all ranks' first",
            )
        read = np.concatenate(owners)
        if len(read) > n and near(float(measured[read].mean()), got):
            twice = np.flatnonzero(np.bincount(read, minlength=n) > 1)
            yield (
                "duplicates",
                f"the examples {listed(twice)} are counted more than once: padding is to be left out",
            )
        if near(float(np.mean([measured[rows].mean() for rows in owners])), got):
            sizes = ", ".join(str(len(rows)) for rows in owners)
            yield (
                "mean of means",
                f"a mean of the ranks' means, which have {sizes} examples: weight by their number",
            )
    f = got / float(d.one) if float(d.one) else 0.0
    if near(f, case.ranks):
        yield "summed", f"it is {f:.3f} times the one-process value: summed, not averaged?"
    if near(f, 1 / case.ranks):
        yield "averaged twice", f"it is {f:.3f} times the one-process value: averaged twice?"
