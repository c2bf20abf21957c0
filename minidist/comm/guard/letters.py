"""What the board says, by letters: for ranks of several machines, which have no memory in common.

    rank 2    has waited for 0.2 s: "where do you stand?"        asks all others, then less and less often
    0, 1, 3   wait: "I wait for ...; this is my 7th standing"    who computes does not answer, and counts as running
    rank 2    0, 1, 2 are stuck by that: "rank 0, look"          the lowest of those who are stuck asks on
    rank 0    "where do you stand? what have you sent?"          asks them once more, and compares

A standing is numbered anew with each move. Who has answered twice with the same number has not moved in between; so
at the moment between the two answers all of them stood still together. What was under way at that moment is seen by the
counts (`counts.py`). Where nothing was, nothing ever will be. While nobody waits that long no letter is written.

Letters travel on the line that ranks have for farewells (`comm/line.py`), in order: none is left unread at the end.
p ranks that wait write p (p-1) questions and as many answers of some 500 bytes each, after 0.2, 0.6, 1.4, 3, 6.2 s ...

Read next: `counts.py`; and `board.py`, the same by memory.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Sequence
from typing import Any

from minidist.comm import line
from minidist.comm.errors import CommError, DeadlockError
from minidist.comm.guard import counts as counting
from minidist.comm.guard.counts import Counts
from minidist.comm.guard.graph import Operation, Sent, Standing, from_plain

FIRST, LONGEST = 0.2, 4.0  # seconds before a rank that waits asks; and at most between two times that it does
# Seconds for ranks that still run to come to be stuck as well, so that the report is a whole one; fewer where a rank
# has left: who waits for it would soon end the job by itself (`comm/leaving.py`), with less to say.
SETTLE, SETTLE_LEFT = 0.5, 0.1
ANSWERED = 1.0  # seconds in which a rank that waits has answered: who has not then runs


class Letters:
    """What one rank says of itself, and has heard of the others."""

    def __init__(self, me: int, counts: Counts) -> None:
        self.me, self.counts = me, counts
        self.run = 0  # of a job that runs one program after another: letters of another one are not for us
        self.version = 0
        self.number = 0  # of our last question
        self.begin()
        line.on("guard", self._hear)

    def begin(self) -> None:
        """Say that this rank runs, and forget who has left: all ranks begin (again) together."""
        self.run += 1
        self.counts.clear()
        self.left: dict[int, Standing] = {}
        self.counts_of_left: dict[int, Counts] = {}
        self.say("runs")

    def say(self, state: str, operations: Sequence[Operation] = (), sent: Sequence[Sent] = ()) -> None:
        """Say what this rank does from now on; those who ask are told, and all others when it leaves."""
        self.state, self.operations = state, tuple(operations)
        self.sent = tuple(sent)
        self.version += 1
        self.since = time.monotonic()
        self._ask_at, self._pause = self.since + FIRST, FIRST
        self._verdict: CommError | None = None
        self._stop_asking()
        if state == "left":
            self._write(
                "left", None, standing=dataclasses.asdict(self._standing()), counts=self.counts.as_plain()
            )

    def say_more(self, sent: Sequence[Sent], unreceived: Sequence[Sent]) -> None:
        """Say what this rank has sent; what it has not taken of others' is seen by its counts."""
        self.sent = tuple(sent)

    def look(self, ranks: Sequence[int]) -> None:
        """Ask where all stand, if it is time to."""
        now = time.monotonic()
        if self.state == "waits" and now >= self._ask_at:
            self._pause = min(2 * self._pause, LONGEST)
            self._ask_at = now + self._pause
            self._stop_asking()
            self._others.update(rank for rank in ranks if rank != self.me and rank not in self.left)
            self._ask(self._others)

    def _ask(self, ranks: Collection[int], **more: Any) -> None:
        self.number += 1
        self._asked = time.monotonic()
        self._write("ask", ranks, number=self.number, **more)

    def _stop_asking(self) -> None:
        self._asked = 0.0  # 0: there is no question
        self._others: set[int] = set()
        self._answers: dict[int, tuple[int, Standing, float]] = {}  # rank -> (version, ..., since when)
        self._suspects: set[int] = set()  # who is asked a second time
        self._again: dict[int, tuple[int, Counts]] = {}  # and has answered
        self._pointed = False

    def standings(self, ranks: Sequence[int]) -> dict[int, Standing]:
        """Give where these ranks stand: who has not answered in time runs, who may yet answer is left out."""
        now = time.monotonic()
        in_time = not self._suspects and now - self._asked < ANSWERED
        known = {} if in_time or not self._asked else {rank: Standing(rank, "runs") for rank in ranks}
        for rank, (_, standing, since) in self._answers.items():
            known[rank] = dataclasses.replace(standing, ago=now - since)
        known[self.me] = self._standing()
        standings = {rank: standing for rank, standing in (known | self.left).items() if rank in ranks}
        if self._suspects and len(self._again) == len(self._suspects) - 1:
            counted = {rank: counts for rank, (_, counts) in self._again.items()} | self.counts_of_left
            counted[self.me] = self.counts
            standings = counting.with_unreceived(counting.without_under_way(standings, counted), counted)
        return standings

    def settled(self, found: set[int], ranks: Sequence[int]) -> bool:
        """Say whether these ranks have all stood still together, and nothing for them was under way."""
        if not self._asked or self.me not in found:
            return False
        if self.me != min(found):
            if not self._pointed:
                self._pointed = True
                self._write("look", [min(found)])
            return False
        if not self._suspects:
            settle = SETTLE_LEFT if self.left else SETTLE
            if self._others <= {*self._answers, *self.left} or time.monotonic() - self._asked > settle:
                self._suspects = set(found)
                wanted: set[tuple[str, int | None]] = set()
                for standing in self.standings(ranks).values():
                    wanted.update((op.key, op.tag) for op in standing.operations)
                    wanted.update((one.key, one.tag) for one in standing.sent)
                self._ask(found - {self.me}, wanted=list(wanted))
            return False
        if len(self._again) < len(self._suspects) - 1:
            return False
        stood = all(self._again[rank][0] == self._answers[rank][0] for rank in self._again)
        if not stood or found != self._suspects:  # somebody can go on
            self._stop_asking()
            return False
        return True

    def decide(self, error: CommError) -> None:
        """Tell all who are stuck the report, which they are to raise."""
        facts = [str(error), error.kind, list(error.ranks), list(error.lines.items())]
        for rank, (version, _) in self._again.items():
            self._write("verdict", [rank], version=version, facts=facts)

    def decided(self) -> CommError | None:
        """Give the report that another rank has made and that this one is to raise."""
        verdict, self._verdict = self._verdict, None
        return verdict

    def _write(self, what: str, ranks: Collection[int] | None, **content: Any) -> None:
        line.tell({"guard": {"what": what, "run": self.run, **content}}, ranks)

    def _hear(self, rank: int, letter: Any) -> None:
        """Read a letter of another rank."""
        if letter["run"] != self.run:
            return
        what = letter["what"]
        if what == "ask" and self.state == "waits":
            counts = self.counts.as_plain(map(tuple, letter["wanted"])) if "wanted" in letter else None
            standing = dataclasses.asdict(self._standing())
            more = {"number": letter["number"], "version": self.version, "counts": counts}
            self._write("answer", [rank], standing=standing, **more)
        elif what == "answer" and letter["number"] == self.number:
            if letter["counts"] is None:
                theirs = _standing_from_plain(letter["standing"])
                self._answers[rank] = letter["version"], theirs, time.monotonic() - theirs.ago
            else:
                self._again[rank] = letter["version"], counting.from_plain(letter["counts"])
        elif what == "look" and not self._suspects:
            self._ask_at = 0.0
        elif what == "left":
            self.left[rank] = _standing_from_plain(letter["standing"])
            self.counts_of_left[rank] = counting.from_plain(letter["counts"])
        elif what == "verdict" and letter["version"] == self.version:
            text, kind, ranks, lines = letter["facts"]
            self._verdict = DeadlockError(text, kind, ranks, dict(lines))

    def _standing(self) -> Standing:
        ago = time.monotonic() - self.since
        return Standing(self.me, self.state, self.operations, ago, self.sent)


def _standing_from_plain(facts: Any) -> Standing:
    operations = tuple(map(from_plain, facts["operations"]))
    return Standing(
        **{**facts, "operations": operations, "sent": tuple(Sent(**one) for one in facts["sent"])}
    )
