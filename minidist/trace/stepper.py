"""Step through what ranks say to each other: their arrays after each communication, to be moved through with a slider.

    def program(comm, show):
        x = np.full(8, 10.0 ** comm.rank)
        show(x=x)                                 # the arrays to be seen; they may change in place
        comm.all_reduce(x, out=x)

    step_through(program, 4)                      # in a notebook: shows itself
    step_through(program, 4).save("steps.html")   # a page that needs no network

A step is a communication and what the rank computes from there to its next one. Ranks have no common clock here, and
need none: a rank's steps are in its own order, none comes before the message that it receives is sent, and a collective
is one step for all its ranks (Lamport, "Time, Clocks, and the Ordering of Events in a Distributed System", CACM 1978).

On MPI: `show = Show(comm)` on every rank, and at the end `steps = show.gather()`, which is a Steps on rank 0.
Read next: `stepper_page.py`, which draws it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minidist.comm import Communicator, texts
from minidist.comm.arrays import cut
from minidist.comm.events import Event, Listener
from minidist.comm.message import Header
from minidist.comm.threads import run_ranks
from minidist.errors import UserError
from minidist.trace import stepper_page

MOST = 4096  # numbers of an array that can be shown
MOST_STEPS = 500


@dataclass
class Steps:
    """What all ranks held, step by step; step 0 is the start.

    names: of the arrays. did[step][rank]: which communications the rank completed in this step, "" for none.
    held[step][rank]: {name: the numbers, flat}, as they are after it; without those that the rank has not shown yet.
    """

    names: list[str]
    did: list[list[str]]
    held: list[list[dict[str, np.ndarray]]]

    @property
    def ranks(self) -> int:
        return len(self.held[0])

    def chunks(self, step: int, rank: int, name: str) -> list[np.ndarray]:
        """Give a rank's array in as many chunks as there are ranks; [] if it has none of this name yet."""
        array = self.held[step][rank].get(name)
        return [] if array is None else [array[piece] for piece in cut(array.size, self.ranks)]

    def _repr_html_(self) -> str:
        return stepper_page.part(self)

    def save(self, path: str | Path) -> None:
        """Write a page of HTML that shows it anywhere."""
        Path(path).write_text(stepper_page.whole(self), encoding="utf-8")


def step_through(program: Callable[[Communicator, Show], Any], ranks: int) -> Steps:
    """Run program(comm, show) on so many threads, and give what they held after each communication."""

    def one_rank(comm: Communicator) -> Steps | None:
        show = Show(comm)
        program(comm, show)
        return show.gather()

    steps: Steps = run_ranks(one_rank, ranks)[0]
    return steps


class Show(Listener):
    """Write down one rank's arrays after each of its communications: `show(x=x)` says which arrays."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self._arrays: dict[str, np.ndarray] = {}
        self._first: dict[str, list[Any]] = {}  # as they were before all communication
        self._done: list[dict[str, Any]] = []
        self._began: dict[int, int] = {}  # how many were done when an operation that is not complete began
        self._sources: dict[int, int] = {}  # from whom the message of a receive has come
        comm.listeners.append(self)

    def __call__(self, **arrays: np.ndarray) -> None:
        """Show these arrays from now on, beside those before; an array is looked at again after each communication."""
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray):
                raise UserError(
                    f"{name} is {type(array).__name__}, expected a NumPy array, which changes in place"
                )
            if array.dtype.kind not in "biuf":
                raise UserError(f"{name} has dtype {array.dtype}, and only real numbers can be shown")
            if array.size > MOST:
                raise UserError(
                    f"{name} has {array.size:,} numbers, and {MOST:,} are the most that can be shown"
                )
            self._arrays[name] = array
        self._look()

    def _look(self) -> None:
        """Write down what the arrays hold at the end of the step that now ends."""
        held = {name: array.reshape(-1).tolist() for name, array in self._arrays.items()}
        if self._done:
            self._done[-1]["held"] = held
        else:
            self._first = held

    def before(self, event: Event) -> None:
        self._look()
        self._began[id(event)] = len(self._done)

    def arriving(self, event: Event, header: Header, source: int) -> None:
        self._sources[id(event)] = source

    def after(self, event: Event) -> None:
        """Begin a step."""
        if len(self._done) == MOST_STEPS:
            raise UserError(
                f"rank {self.comm.rank} communicates more than {MOST_STEPS} times: show fewer steps"
            )
        members, kind = event.communicator.members, event.operation
        source = self._sources.pop(id(event), event.peer) if kind in ("recv", "sendrecv") else None
        dest = event.peer if kind == "send" else event.dest
        here = {member: rank for rank, member in enumerate(self.comm.members)}
        self._done.append(
            {
                "call": event.call,
                "group": [str(event.communicator.key), event.sequence],
                "source": None if source is None else here.get(members[source]),
                "dest": None if dest is None else here.get(members[dest]),
                "tag": event.tag,
                "began": self._began.pop(id(event), len(self._done)),
            }
        )
        self._look()

    def failed(self, event: Event) -> None:
        self._began.pop(id(event), None)

    def gather(self) -> Steps | None:
        """Give rank 0 what all ranks have written down, and stop writing; a collective."""
        self.comm.listeners.remove(self)
        self._look()
        mine = json.dumps({"first": self._first, "done": self._done}).encode()
        found = texts.gather_bytes(self.comm, mine)
        return None if found is None else in_order([json.loads(of_rank) for of_rank in found])


def in_order(found: list[dict[str, Any]]) -> Steps:
    """Sort what each rank has written down into steps that they have in common."""
    ranks, done = len(found), [of_rank["done"] for of_rank in found]
    at = levels(done)
    held_ever = [of_rank["first"] for of_rank in found] + [
        record["held"] for of_rank in done for record in of_rank
    ]
    names = list(dict.fromkeys(name for held in held_ever for name in held))
    first = [{name: np.array(values) for name, values in of_rank["first"].items()} for of_rank in found]
    steps = Steps(names, [[""] * ranks], [first])
    for step in range(1, 1 + max((level for of_rank in at for level in of_rank), default=0)):
        did, held = [""] * ranks, [dict(arrays) for arrays in steps.held[-1]]
        for rank in range(ranks):
            for record, level in zip(done[rank], at[rank], strict=True):
                if level == step:
                    did[rank] = "; ".join(filter(None, [did[rank], words(record)]))
                    held[rank] |= {name: np.array(values) for name, values in record["held"].items()}
        steps.did.append(did)
        steps.held.append(held)
    return steps


def words(record: dict[str, Any]) -> str:
    """Say in a few words what a rank did."""
    to = "" if record["dest"] is None else f" to {record['dest']}"
    source = "" if record["source"] is None else f" from {record['source']}"
    return record["call"] + to + source


def levels(done: list[list[dict[str, Any]]]) -> list[list[int]]:
    """Say for each rank in which step it has completed each operation."""
    sends: dict[Any, list[tuple[int, int]]] = {}  # the messages of two ranks under one tag come in order
    together: dict[Any, list[tuple[int, int]]] = {}
    for rank, records in enumerate(done):
        for n, record in enumerate(records):
            if record["group"][1] is not None:
                together.setdefault(tuple(record["group"]), []).append((rank, n))
            if record["dest"] is not None:
                way = (record["group"][0], rank, record["dest"], record["tag"])
                sends.setdefault(way, []).append((rank, n))
    for messages in sends.values():
        messages.sort(key=lambda place: done[place[0]][place[1]]["began"])
    waits_for: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for rank, records in enumerate(done):
        for n, record in enumerate(records):
            if record["group"][1] is not None:
                waits_for[rank, n] = together[tuple(record["group"])]
            elif record["source"] is not None:
                way = (record["group"][0], record["source"], rank, record["tag"])
                waits_for[rank, n] = [sends[way].pop(0)] if sends.get(way) else []
    at: list[list[int]] = [[] for _ in done]

    def place(rank: int) -> bool:
        """Place a rank's next operation, unless one that it waits for has not come so far."""
        n = len(at[rank])
        begins = [(other, done[other][m]["began"]) for other, m in waits_for.get((rank, n), [])]
        if any(len(at[other]) < began for other, began in begins):
            return False
        after = [at[other][began - 1] if began else 0 for other, began in begins]
        at[rank].append(1 + max([*after, *at[rank][-1:]], default=0))
        return True

    while waiting := [rank for rank, records in enumerate(done) if len(at[rank]) < len(records)]:
        if not any(place(rank) for rank in waiting):
            # Messages under one tag were not completed in the order in which they were begun: who is whose is a guess.
            at[waiting[0]].append(1 + max(at[waiting[0]], default=0))
    return at
