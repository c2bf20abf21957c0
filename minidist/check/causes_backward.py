"""What explains a wrong gradient: a factor, or how often each example counts in it (`evidence.py`).

Read next: `causes_update.py`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from minidist.check.case import Difference, gradient_of, part_of, rows_of
from minidist.check.evidence import CLOSE, Evidence, Guess, listed, near, ratio
from minidist.check.record import Arrays


def gradient(e: Evidence, d: Difference) -> Iterator[Guess]:
    case, p, step = e.case, e.case.ranks, d.step
    records = case.many[step]
    nowhere = [r.rank for r in records if d.tensor in r.end and gradient_of(r, d.tensor) is None]
    if nowhere:
        where = ", ".join(map(str, nowhere))
        yield (
            "none",
            f"its gradient is None on rank {where}: nothing there has used it, and no rank gave it zeros to add",
        )
    one = {name: g for name in case.one[step].end if (g := gradient_of(case.one[step], name)) is not None}
    largest = max((float(np.abs(g).max(initial=0)) for g in one.values()), default=0.0)
    wrong: dict[int, list[str]] = {}
    factors: dict[int, float | None] = {}
    for record in records:
        got = e.applied(step, record.rank)
        cut = {n: part_of(g, n, records, record.rank) for n, g in one.items() if n in got}
        expected = {n: g for n, g in cut.items() if g is not None and g.shape == got[n].shape}
        wrong[record.rank] = [n for n, g in expected.items() if case.differ(got[n], g, None, 1e-3 * largest)]
        some = wrong[record.rank]
        factors[record.rank] = ratio({n: got[n] for n in some}, {n: expected[n] for n in some})
    bad = [rank for rank, names in wrong.items() if names]
    names = wrong.get(d.rank) or [d.tensor]
    every = all(n in names for n in one if n in records[d.rank].end)
    which = "on every parameter" if every else f"on {', '.join(names)} alone"
    known = [f for rank in bad if (f := factors[rank]) is not None]
    n = len(case.batches[step][0])
    m = max(e.microbatches(step), default=0)
    if len(known) == len(bad) and known and all(near(f, known[0]) for f in known):
        f = known[0]
        says = f"gradients are {f:.3f} times the one-process gradients {which}"
        for key, value, text in (
            ("summed", p, "summed, not averaged?"),
            ("averaged twice", 1 / p, "averaged twice?"),
            ("microbatches", m if m > 1 else 0, f"not divided by the {m} microbatches?"),
            ("microbatches twice", 1 / m if m > 1 else 0, f"divided twice by the {m} microbatches?"),
            ("count", n, f"never divided by the {n} examples?"),
            ("own count", n / p, f"divided by the {p} ranks, never by the {n / p:g} examples of each?"),
            (
                "summed over microbatches and ranks",
                p * m if m > 1 else 0,
                f"summed over {p} ranks and {m} microbatches?",
            ),
            ("count twice", 1 / n, f"divided twice by the {n} examples?"),
        ):
            if near(f, value):
                yield key, f"{says}: {text}"
    elif len(known) == len(bad) > 1 and any(near(f, f2) for f in known for f2 in (1.0,)) is False:
        norms = [np.sqrt(sum(float((g**2).sum()) for g in e.applied(step, r).values())) for r in bad]
        if np.ptp(norms) <= CLOSE * max(norms):
            yield (
                "clipped apart",
                f"each rank's gradient has the norm {norms[0]:.6g} after clipping: clipped by its own norm, "
                "not by the whole model's",
            )
    yield from summed_weights(e, d)
    yield from _by_rows(e, d, names, every)
    holders = [r for r in records if d.tensor in r.end]
    parts = [gradient_of(r, d.tensor) for r in holders]
    whole = one.get(d.tensor)
    filled = [np.zeros_like(whole) if g is None else g for g in parts] if whole is not None else []
    if whole is not None and len(filled) > 1 and all(g.shape == whole.shape for g in filled):
        total = np.sum(filled, axis=0)
        alike = all(not case.differ(g, filled[0], None, 1e-3 * largest) for g in filled)
        if not alike and not case.differ(total, whole, None, 1e-3 * largest):
            where = ", ".join(str(r.rank) for r in holders)
            yield (
                "partial",
                f"ranks {where} hold parts whose sum would be right {which}: never summed over the ranks that share it "
                "(tied or repeated weights?)",
            )
        if not alike and not case.differ(total / p, whole, None, 1e-3 * largest):
            yield _unsynced(e, d, which)
    if d.got is not None and bad and len(bad) < len(holders):
        where = ", ".join(map(str, bad))
        yield "some ranks", f"only rank{'s' * (len(bad) > 1)} {where} of {p} differ{'s' * (len(bad) == 1)}"


def _unsynced(e: Evidence, d: Difference, which: str) -> Guess:
    record = e.case.many[d.step][d.rank]
    left = record.left.get(d.tensor)
    one = gradient_of(e.case.one[d.step], d.tensor)
    if left is not None and one is not None and not e.case.differ(left, one, None):
        return (
            "too early",
            f"each rank applied its own gradient {which}, and combined them after the update: combine first",
        )
    if not sum(r.messages for r in e.case.many[d.step]):
        return (
            "not combined",
            f"each rank applied its own gradient {which}: in this step no rank sent anything",
        )
    return "not combined", f"each rank applied its own gradient {which}: left out of the all-reduce?"


def _by_rows(e: Evidence, d: Difference, names: list[str], every: bool) -> Iterator[Guess]:
    """Explain a gradient by how often each example counts in it. In later steps weights are others: first step only."""
    if d.step or e.by_row is None:
        return
    case = e.case
    got = {n: g for n, g in e.applied(0, d.rank).items() if n in names}
    which = "on every parameter" if every else f"on {', '.join(names)} alone"
    owners = [rows_of(record) for record in case.many[0]]
    weights = e.weights_of_rows(got)
    if weights is None:
        yield from _single(e, d, got, owners, which)
        return
    yield from weighed(e, d, weights, owners, which)


def weighed(
    e: Evidence, d: Difference, weights: np.ndarray, owners: list[np.ndarray], which: str
) -> Iterator[Guess]:
    """Read the weights of examples: 1 everywhere is right."""
    n, p, own = len(weights), e.case.ranks, owners[d.rank]
    others = np.setdiff1d(np.arange(n), own)
    if sum(map(len, owners)) >= n and all(len(rows) for rows in owners):
        means, reads = np.zeros(n), np.zeros(n)
        for rows in owners:
            means[rows] += n / (p * len(rows))
            reads[rows] += 1
        sizes = ", ".join(str(len(rows)) for rows in owners)
        factor = weights[0] / reads[0] if reads[0] else 0.0
        if (
            reads.max() > 1
            and reads.min() > 0
            and np.ptp(reads)
            and np.allclose(weights, factor * reads, atol=CLOSE)
        ):
            yield (
                "duplicates",
                f"the examples {listed(np.flatnonzero(reads > 1))} are read {reads.max():g} times: padding?",
            )
        if reads.max() == 1 and np.ptp(means) > CLOSE and np.allclose(weights, means, atol=CLOSE):
            yield (
                "mean of means",
                f"a mean of the ranks' means, which have {sizes} examples: one of rank {d.rank} counts "
                f"{weights[own[0]]:.3f} times; weight by the number of examples",
            )
        if reads.max() == 1 and np.ptp(means) > CLOSE and np.allclose(weights, p * means, atol=CLOSE):
            yield (
                "summed",
                f"a sum of the ranks' means, of {sizes} examples each: divide by the count of the whole batch",
            )
    if (
        others.size
        and np.allclose(weights[others], 0, atol=CLOSE)
        and not np.allclose(weights[own], 0, atol=CLOSE)
        and np.ptp(weights[own]) < CLOSE * abs(weights[own]).max() * 10
    ):
        yield _unsynced(e, d, which)
    pieces = e.case.many[0][d.rank].reads
    nothing = np.flatnonzero(np.abs(weights) < CLOSE)
    if nothing.size and len(pieces) > 1:
        yield (
            "microbatches lost",
            f"the examples {listed(nothing)} do not count on rank {d.rank}: microbatches that were combined too early, "
            "or whose gradient was overwritten",
        )
    if len(pieces) > 1 and np.ptp(weights) > CLOSE:
        shown = ", ".join(f"{weights[piece[0]]:.3f}" for piece in pieces if len(piece))
        yield "microbatches unequal", f"the microbatches of rank {d.rank} count {shown} times"
    shares = [weights[rows] for rows in owners if len(rows)]
    if all(np.ptp(s) < 10 * CLOSE * abs(s).max() for s in shares) and np.ptp([s[0] for s in shares]) > CLOSE:
        assert e.by_row is not None
        norms = []
        for rows, share in zip([r for r in owners if len(r)], shares, strict=True):
            parts = [{k: v * share[0] for k, v in e.by_row[row].items()} for row in rows]
            norms.append(np.sqrt(sum(float((sum(part[k] for part in parts) ** 2).sum()) for k in parts[0])))
        shown = ", ".join(f"{s[0]:.3f}" for s in shares)
        top = [norm for norm in norms if near(norm, max(norms))]
        if len(top) > 1:
            yield (
                "clipped first",
                f"the ranks' examples count {shown} times: clipped on each rank before the sum?",
            )
        yield "ranks unequal", f"the examples of ranks 0-{len(shares) - 1} count {shown} times"


def _single(e: Evidence, d: Difference, got: Arrays, owners: list[np.ndarray], which: str) -> Iterator[Guess]:
    """Try simple sums where a small parameter alone does not say how examples are weighed."""
    assert e.by_row is not None
    own = owners[d.rank]
    if not len(own) or not all(name in e.by_row[0] for name in got):
        return

    def total(rows: Any) -> Arrays:
        return {name: np.sum([e.by_row[row][name] for row in rows], axis=0) for name in got}  # type: ignore[index]

    if len(own) < len(e.by_row) and ratio(got, total(own), 1e-5) is not None:
        yield _unsynced(e, d, which)


def summed_weights(e: Evidence, d: Difference) -> Iterator[Guess]:
    p, record, one = e.case.ranks, e.case.many[d.step][d.rank], e.case.one[d.step]
    names = [
        n
        for n in one.end
        if n in record.end and n in record.start and record.end[n].shape == one.end[n].shape
    ]
    size = {n: np.abs(record.start[n]).max(initial=0) for n in names}
    off = {n: np.abs(record.end[n] - p * record.start[n]).max(initial=0) for n in names}
    if names and all(off[n] < 0.5 * size[n] for n in names):
        yield (
            "weights summed",
            f"the weights are about {p} times as large: they were summed, and not their gradients",
        )
