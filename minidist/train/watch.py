"""`--check-every K`: look every K steps whether training is still what it seems to be.

    replicas equal      a hash of each rank's weights, compared along the axes where they are copies
    parameters move     every trainable one, since the check before
    each example once   a ledger of the rows that all replicas have read in this epoch

A run can be wrong in each of these while its loss falls. What is found is said in one sentence, and ends all ranks.
That gradients are finite is looked at in every step, whatever is said here (`nonfinite.py`).

Cost per check: for each group of parameters 4 bytes from each rank and a number for each parameter, and 4 bytes for
each training example, all counted under "guard", which `--explain` leaves out. Hashing reads all
weights once. With K = 10 on one rank that is 5 % of the time of the default mlp, whose step takes 0.4 ms, and 0.5 % of
the gpt's.
"""

import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from minidist.comm import Communicator
from minidist.comm.texts import all_gather_texts
from minidist.errors import UserError
from minidist.nn import Group
from minidist.sync.zero import Zero
from minidist.train.onlooker import Onlooker, Step
from minidist.train.setup import Setup


class Watch(Onlooker):
    """Follow a run on a worker. n: training examples."""

    def __init__(self, setup: Setup, every: int, n: int) -> None:
        super().__init__()
        self.setup, self.every = setup, every
        self.steps = self.epoch = 0
        self.expected = 0  # rows of all replicas in this epoch
        self.n = n
        self.rows: list[np.ndarray] = []  # that this replica has read in this epoch
        self._before = self._hashes()

    def step(self, step: Step) -> None:
        """Take note of the rows of a step, and look at everything if it is time."""
        if step.epoch != self.epoch:
            self._end_of_epoch()
            self.epoch, self.expected = step.epoch, 0
            self.rows = []
        self.rows.append(step.rows)
        self.expected += step.count
        self.steps += 1
        if self.steps % self.every == 0:
            now = self._hashes()
            findings = [*self._replicas(now), *self._still(now), *self._ledger(whole=False)]
            self._before = now
            self._agree(findings)

    def finish(self) -> None:
        """Look at the last epoch, if it has come to its end."""
        self._end_of_epoch()

    def _end_of_epoch(self) -> None:
        if self.epoch and self.expected == self.n:  # a run of so many steps may end before
            self._agree(list(self._ledger(whole=True)))

    def _agree(self, findings: list[str]) -> None:
        """Raise on all ranks what the first of them has found."""
        everyone = self.setup.mesh.everyone
        if not int(everyone.all_reduce(np.array(len(findings)), purpose="guard")):
            return
        texts = all_gather_texts(everyone, findings[0] if findings else "", "guard")
        raise UserError(f"check after step {self.steps}: {next(text for text in texts if text)}")

    # ---- replicas

    def _vectors(self) -> Iterator[tuple[Group, int, np.ndarray]]:
        """Yield (group, where in it, weights that are here)."""
        sync = self.setup.sync
        if isinstance(sync, Zero) and sync.stage == 3:
            for shard in sync.shards:
                yield shard.bucket.group, shard.region.start, shard.weights
            return
        for group in self.setup.groups:
            yield group, 0, group.weights

    def _replicas(self, hashes: list[list[int]]) -> Iterator[str]:
        """Compare hashes where weights should be copies of each other."""
        sync, mesh = self.setup.sync, self.setup.mesh
        if isinstance(sync, Zero) and sync.stage == 3:
            return  # there are no copies
        for group, each in zip(self.setup.groups, hashes, strict=True):
            comms = [mesh.comm(*group.axes)] if sync.equal else []
            comms += [mesh.comm(axis) for axis in group.repeated if axis not in group.axes]
            for comm in comms:
                if comm.size > 1:
                    yield from _apart(comm, group, each)

    # ---- parameters that do not move

    def _hashes(self) -> list[list[int]]:
        return [
            [_hash(entry.within(vector, start)) for entry in group.layout]
            for group, start, vector in self._vectors()
        ]

    def _still(self, now: list[list[int]]) -> Iterator[str]:
        """Name the trainable parameters that no rank has moved since the last check."""
        moved: dict[int, np.ndarray] = {}
        for (group, _, _), old, new in zip(self._vectors(), self._before, now, strict=True):
            changed = np.array([a != b for a, b in zip(old, new, strict=True)], np.int32)
            moved[id(group)] = np.maximum(moved.get(id(group), 0), changed)
        for group in self.setup.groups:
            if not group.trainable:
                continue
            anywhere = self.setup.mesh.comm(*group.axes).all_reduce(
                moved[id(group)], op="max", purpose="guard"
            )
            still = [entry.name for entry, one in zip(group.layout, anywhere, strict=True) if not one]
            if still:
                yield (
                    f"{', '.join(still[:3])}{' and others' * (len(still) > 3)} did not move in {self.every} steps, "
                    "though trainable: is it unused, left out of the update, or lr too small for its numbers?"
                )

    # ---- examples

    def _ledger(self, whole: bool) -> Iterator[str]:
        """See that no row is read twice, and, when an epoch is over, that each was read."""
        comm = self.setup.mesh.comm("data")
        # How often each row.
        reads = np.bincount(np.concatenate(self.rows), minlength=self.n).astype(np.int32)
        total = comm.all_reduce(reads, purpose="guard")
        twice, never = np.flatnonzero(total > 1), np.flatnonzero(total == 0)
        if not twice.size and not (whole and never.size):
            return
        own = comm.all_gather(reads[None], purpose="guard")  # (replicas, n)
        alike = [rank for rank in range(comm.size) if np.array_equal(own[rank], own[0])]
        when = f"in epoch {self.epoch}"
        if twice.size and len(alike) > 1:
            yield (
                f"replicas {', '.join(map(str, alike))} read identical rows {when}: {twice.size} examples are read "
                f"{total.max()} times; each replica needs a share of its own"
            )
        elif twice.size:
            times = f"row {twice[0]}: {total[twice[0]]} times"
            yield f"rows {_few(twice)} were read more than once {when} ({times}): each example should be read once"
        else:
            yield f"rows {_few(never)} were read by no replica {when}: each example should be read once"


def _apart(comm: Communicator, group: Group, each: list[int]) -> Iterator[str]:
    """Compare the hashes of a group's parameters on the ranks of `comm`, and name the first parameter that differs."""
    digests = comm.all_gather(
        np.array([zlib.crc32(np.array(each, np.uint32).data)], np.uint32), purpose="guard"
    )
    if (digests == digests[0]).all():
        return
    table = comm.all_gather(np.array([each], np.uint32), purpose="guard")  # (ranks, parameters)
    column = int(np.flatnonzero((table != table[0]).any(axis=0))[0])
    rank = int(np.flatnonzero(table[:, column] != table[0, column])[0])
    yield (
        f"replicas are no longer equal: {group.layout[column].name} has hash {int(table[0, column]):08x} on rank "
        f"{comm.members[0]} and {int(table[rank, column]):08x} on rank {comm.members[rank]}"
    )


def _hash(array: np.ndarray) -> int:
    """Give a checksum: against accidents, which are what parts replicas, 32 bits will do, and they cost the least."""
    return zlib.crc32(np.ascontiguousarray(array).data)


def _few(rows: Sequence[int] | np.ndarray) -> str:
    shown = ", ".join(str(int(row)) for row in rows[:5])
    return f"{shown} and {len(rows) - 5} others" if len(rows) > 5 else shown
