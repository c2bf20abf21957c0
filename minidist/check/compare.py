"""Find the first tensor of a step on many ranks that is not what it is on one.

    weights at the start -> rows read -> layers, forward -> labels -> gradients, backward -> weights after -> the loss

What is wrong in one of these makes all behind it wrong, so they are compared in the order in which one causes the
next. Not every difference is a mistake: ranks that average weights apply different gradients in between, and whoever
reports a loss may report its own part. So there are *results*, which must agree (weights, gradients that all ranks
share, numbers that all ranks report alike), and all else is only looked at once a result is wrong: it says where.

How far rounding reaches is measured: one process runs a second time with its inputs and weights changed in their last
digit, and what that does to a tensor, 32 times over, is allowed. Read next: `causes.py`.
"""

from collections.abc import Iterator

import numpy as np

from minidist.check.case import Case, Difference, gradient_of, part_of, rows_of
from minidist.check.record import Arrays, Call, Record


def first_difference(case: Case) -> Difference | None:
    """Walk through all steps; None if every result agrees."""
    found = [d for step in range(len(case.batches)) for d in differences(case, step)]
    return found[0] if any(d.result for d in found) else None


def differences(case: Case, step: int) -> Iterator[Difference]:
    """Yield what differs in a step, causes first."""
    if step == 0:
        yield from _weights(case, step, "start")
    yield from _rows(case, step)
    yield from _forward(case, step)
    yield from _labels(case, step)
    for record in (case.one[step], *case.many[step]):
        for name in record.stale:
            yield Difference("stale", step, record.rank, name, True)
    yield from _gradients(case, step)
    yield from _weights(case, step, "weights")
    one = case.one[step]
    for record in case.many[step]:
        for kind, own, other, nudged in (
            ("state", record.state, one.state, case.nudged[step].state),
            ("buffer", record.buffers, one.buffers, case.nudged[step].buffers),
        ):
            for name, expected in other.items():
                got = own.get(name, expected if kind == "buffer" else np.zeros_like(expected))
                if got.shape == expected.shape and case.differ(got, expected, nudged.get(name)):
                    yield Difference(kind, step, record.rank, name, kind == "buffer", got, expected)
    yield from _values(case, step)


def _weights(case: Case, step: int, stage: str) -> Iterator[Difference]:
    records = case.many[step]

    def of(record: Record) -> Arrays:
        return record.start if stage == "start" else record.end

    for name, whole in of(case.one[step]).items():
        for record in records:
            one = part_of(whole, name, records, record.rank)
            nudged = part_of(of(case.nudged[step])[name], name, records, record.rank)
            got = of(record).get(name)
            if (
                got is not None
                and one is not None
                and got.shape == one.shape
                and case.differ(got, one, nudged)
            ):
                yield Difference(stage, step, record.rank, name, True, got, one)


def _rows(case: Case, step: int) -> Iterator[Difference]:
    readers = [record for record in case.many[step] if record.reads]
    if not readers:
        return
    read = np.unique(np.concatenate([rows_of(record) for record in readers]))
    missing = np.setdiff1d(rows_of(case.one[step]), read)
    if missing.size:
        yield Difference("rows", step, readers[0].rank, "rows", False, missing, rows_of(readers[0]))


Table = dict[tuple[str, int], np.ndarray]


def table(record: Record, rows: int) -> Table:
    """Give what each layer gave for each row of the batch, by (layer, use)."""
    found: Table = {}
    for call in record.calls:
        if call.rows is not None and len(call.output) == len(call.rows) and call.output.shape[0]:
            place = call.layer, call.use
            if place not in found:
                found[place] = np.full((rows, *call.output.shape[1:]), np.nan)
            if found[place].shape[1:] == call.output.shape[1:]:
                found[place][call.rows] = call.output
    return found


def matching_rows(case: Case, call: Call, one: Table, nudged: Table) -> np.ndarray | None:
    """Say which rows of the batch a layer's output belongs to: those it read, or those that look like it."""
    if call.rows is not None:
        return call.rows
    expected = one.get((call.layer, call.use))
    if expected is None or expected.shape[1:] != call.output.shape[1:]:
        return None
    apart = np.abs(call.output[:, None] - expected[None]).reshape(len(call.output), len(expected), -1)
    nearest = apart.max(axis=-1, initial=0).argmin(axis=1) if apart.size else np.zeros(0, np.int64)
    other = nudged.get((call.layer, call.use))
    if case.differ(call.output, expected[nearest], None if other is None else other[nearest]):
        return None
    return nearest


def _forward(case: Case, step: int) -> Iterator[Difference]:
    n = len(case.batches[step][0])
    one, nudged = table(case.one[step], n), table(case.nudged[step], n)
    order = {place: i for i, place in enumerate(one)}
    found: list[tuple[int, Difference]] = []
    for record in case.many[step]:
        for call in record.calls:
            place = call.layer, call.use
            expected = one.get(place)
            if expected is None or expected.shape[1:] != call.output.shape[1:]:
                continue
            rows = call.rows
            if rows is None:
                if matching_rows(case, call, one, nudged) is not None or len(call.output) > n:
                    continue
                rows = np.arange(len(call.output))
            elif len(rows) != len(call.output):
                continue
            other = nudged.get(place)
            if np.isnan(expected[rows]).any():
                continue
            if case.differ(call.output, expected[rows], None if other is None else other[rows]):
                name = call.layer or "the model"
                d = Difference("forward", step, record.rank, name, False, call.output, expected[rows], call)
                found.append((order[place], d))
    yield from (d for _, d in sorted(found, key=lambda pair: (pair[0], pair[1].rank)))


def _labels(case: Case, step: int) -> Iterator[Difference]:
    inputs, labels = case.batches[step]
    one, nudged = table(case.one[step], len(inputs)), table(case.nudged[step], len(inputs))
    for record in case.many[step]:
        for given, calls in record.labels:
            if not calls:
                continue
            rows = matching_rows(case, record.calls[calls - 1], one, nudged)
            if rows is None or given.size != labels[rows].size:
                continue
            if (given.reshape(-1) != labels[rows].reshape(-1)).any():
                yield Difference("labels", step, record.rank, "labels", False, given, labels[rows])


def _gradients(case: Case, step: int) -> Iterator[Difference]:
    one, nudged, records = case.one[step], case.nudged[step], case.many[step]
    largest = max(
        (float(np.abs(g).max(initial=0)) for g in one.applied.values() if g is not None), default=0.0
    )
    for name in reversed(list(one.end)):  # as backward makes them
        whole, changed = gradient_of(one, name), gradient_of(nudged, name)
        if whole is None or changed is None:
            continue
        holders = [record for record in records if name in record.end]
        got = {record.rank: gradient_of(record, name) for record in holders}
        known = [g for g in got.values() if g is not None]
        if not known or (all(name not in r.applied for r in holders) and len(known) < len(holders)):
            continue
        wrong = []
        for record in holders:
            expected = part_of(whole, name, records, record.rank)
            around = part_of(changed, name, records, record.rank)
            gradient = got[record.rank]
            if gradient is None:
                if case.differ(np.zeros_like(whole), whole, changed, 1e-3 * largest):
                    wrong.append(Difference("gradient", step, record.rank, name, False, None, expected))
            elif expected is not None and case.differ(gradient, expected, around, 1e-3 * largest):
                wrong.append(Difference("gradient", step, record.rank, name, False, gradient, expected))
        shared = len(known) == len(holders) and all(
            g.shape == known[0].shape and not case.differ(g, known[0], None, 1e-3 * largest) for g in known
        )
        ends = [record.end[name] for record in holders]
        if not shared and all(np.array_equal(end, ends[0]) for end in ends):
            continue  # ranks that step on their own, and combine their weights
        yield from (Difference(*(d.stage, d.step, d.rank, d.tensor, shared, d.got, d.one)) for d in wrong)


def _values(case: Case, step: int) -> Iterator[Difference]:
    one, nudged = case.one[step].value, case.nudged[step].value
    for name, expected in one.items():
        said = {record.rank: record.value[name] for record in case.many[step] if name in record.value}
        alike = len(said) == case.ranks and len(set(said.values())) == 1
        alone = len(said) == 1 < case.ranks
        if alike or alone:
            rank, got = next(iter(said.items()))
            a, b, c = (np.array(x) for x in (got, expected, nudged[name]))
            if case.differ(a, b, c):
                yield Difference("value", step, rank, name, True, a, b)
