"""The board: memory that all ranks of a machine see, in which each says what it does.

    rank 0   | version  state  looks  since ... | what it waits for | its verdict |      only rank 0 writes here
    rank 1   | version  state  looks  since ... | what it waits for | its verdict |      only rank 1

A version is odd while its rank writes, and grows with every change: who has read the same even version before and
after has read what was written as a whole. It lives in a file without a name (`comm/mapping.py`), so nothing is left
behind, however a rank ends. Times are monotonic, which is one clock for all processes of a machine.

That ranks are stuck by what it says is not enough: a message may be under way, which is seen at the next look or the
one after. So they are only when *each* of them has looked NEEDED times more and none has moved. A rank that computes,
or is stopped, does not look: it is never accused.

Read `listener.py` next, which writes and reads it; `letters.py` takes its place where there is no memory in common.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from minidist.comm.errors import CommError, DeadlockError
from minidist.comm.guard.graph import Operation, Sent, Standing, from_plain

STATES = ("runs", "waits", "left")
VERSION, STATE, LOOKS, LENGTH, SINCE, VERDICT = range(6)  # int64 at the start of a stretch
TEXT, VERDICTS, STRETCH = 64, 16384, 32768  # bytes: where texts begin, and how long a stretch is
NEEDED = 20  # looks of each rank without any movement
SILENT = 2.0  # seconds without a look: such a rank is stopped, or computes
# Seconds for ranks that still run to come to be stuck as well, so that the report is a whole one.
SETTLE = 0.25


class Board:
    """The board, and this rank's stretch of it."""

    def __init__(self, memory: np.ndarray, rank: int) -> None:
        self.memory, self.rank = memory, rank
        self.numbers = memory[:, :TEXT].view(np.int64)  # (ranks, 8)
        self.own = self.numbers[rank]
        self.operations: Sequence[Operation] = ()  # that this rank has in flight
        self.obeyed: set[tuple[int, int]] = set()  # (rank, time) of reports that this rank has raised
        self.before = self.numbers  # as they were just before standings were read
        self.seen: dict[
            int, tuple[int, float]
        ] = {}  # rank -> (looks, when they were first seen to be so many)
        self.suspects: dict[int, tuple[int, int]] = {}  # rank -> (version, looks) when it was found stuck
        self.suspected = 0.0  # when

    def begin(self) -> None:
        """Say that this rank runs, and no more that it has left."""
        self.say("runs")

    def say(self, state: str, operations: Sequence[Operation] = (), sent: Sequence[Sent] = ()) -> None:
        """Say what this rank does from now on; see `facts.py`."""
        self.operations = operations
        self._write(STATES.index(state), time.monotonic_ns(), operations, sent, ())

    def say_more(self, sent: Sequence[Sent], unreceived: Sequence[Sent]) -> None:
        """Say more of this rank, which goes on waiting."""
        self._write(int(self.own[STATE]), int(self.own[SINCE]), self.operations, sent, unreceived)

    def _write(self, state: int, since: int, *many: Sequence[Operation] | Sequence[Sent]) -> None:
        """Write as much as there is room for."""
        facts = [[dataclasses.asdict(one) for one in some] for some in many]
        content = json.dumps(facts).encode()
        while len(content) > VERDICTS - TEXT:
            facts = [some[: len(some) // 2] for some in facts]
            content = json.dumps(facts).encode()
        self.own[VERSION] += 1
        self.memory[self.rank, TEXT : TEXT + len(content)] = np.frombuffer(content, np.uint8)
        self.own[LENGTH], self.own[STATE], self.own[SINCE] = len(content), state, since
        self.own[VERSION] += 1

    def read(self, rank: int) -> Standing | None:
        """Give what a rank does; None while it is writing."""
        row = self.numbers[rank]
        before = int(row[VERSION])
        state, length, since = int(row[STATE]), int(row[LENGTH]), int(row[SINCE])
        content = self.memory[rank, TEXT : TEXT + length].tobytes() if state else b"[[], [], []]"
        if before % 2 or int(row[VERSION]) != before:
            return None
        operations, sent, unreceived = json.loads(content)
        return Standing(
            rank,
            STATES[state],
            tuple(map(from_plain, operations)),
            (time.monotonic_ns() - since) / 1e9,
            tuple(Sent(**facts) for facts in sent),
            tuple(Sent(**facts) for facts in unreceived),
        )

    def look(self, ranks: Sequence[int]) -> None:
        """Count that this rank has looked around."""
        self.own[LOOKS] += 1

    def standings(self, ranks: Sequence[int]) -> dict[int, Standing]:
        """Give what these ranks do; of one that is writing just now nothing. Who waits and does not look runs."""
        self.before = self.numbers.copy()
        now, standings = time.monotonic(), {}
        for rank in ranks:
            standing, looks = self.read(rank), int(self.before[rank, LOOKS])
            if looks != self.seen.get(rank, (-1,))[0]:
                self.seen[rank] = looks, now
            if standing is not None:
                is_silent = standing.state == "waits" and now - self.seen[rank][1] > SILENT
                standings[rank] = dataclasses.replace(standing, state="runs") if is_silent else standing
        return standings

    def settled(self, found: set[int], ranks: Sequence[int]) -> bool:
        """Say whether ranks that are stuck by their standings have looked often enough since, and none has moved."""
        if self.rank not in found:
            self.suspects = {}
            return False
        versions = {rank: int(self.before[rank, VERSION]) for rank in found}
        looks = {rank: int(self.before[rank, LOOKS]) for rank in found}
        now = time.monotonic()
        if {rank: version for rank, (version, _) in self.suspects.items()} != versions:
            self.suspects = {rank: (version, looks[rank]) for rank, version in versions.items()}
            self.suspected = now
            return False
        looked = min(looks[rank] - then for rank, (_, then) in self.suspects.items())
        unsettled = any(self.before[rank, STATE] == 0 for rank in ranks) and now - self.suspected < SETTLE
        return looked >= NEEDED and not unsettled

    def decide(self, error: CommError) -> None:
        """Publish the report of a deadlock: all who are in it are to raise it."""
        facts: list[Any] = [
            time.monotonic_ns(),
            str(error),
            error.kind,
            list(error.ranks),
            list(error.lines.items()),
        ]
        content = json.dumps(facts).encode()[: STRETCH - VERDICTS]
        self.memory[self.rank, VERDICTS : VERDICTS + len(content)] = np.frombuffer(content, np.uint8)
        self.own[VERDICT] = len(content)
        self.obeyed.add((self.rank, facts[0]))

    def decided(self) -> CommError | None:
        """Give the report that some rank has published and that concerns this one."""
        for rank in np.flatnonzero(self.numbers[:, VERDICT]).tolist():
            length = int(self.numbers[rank, VERDICT])
            content = self.memory[rank, VERDICTS : VERDICTS + length].tobytes()
            when, text, kind, ranks, lines = json.loads(content)
            if self.rank in ranks and (rank, when) not in self.obeyed:
                self.obeyed.add((rank, when))
                return DeadlockError(text, kind, ranks, dict(lines))
        return None
