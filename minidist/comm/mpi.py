"""The MPI transport: ranks are processes, started by mpiexec or srun. All that ranks tell each other goes through here.

(`world.py` starts MPI, and `leaving.py` has a line of its own for farewells.) Three rules:

- *Its own communicator.* Each Communicator has a private duplicate, so nothing here is ever matched with what the
  user's own program sends on MPI.COMM_WORLD.
- *Tags in three parts*: the user's own, payloads of the user's large messages, collectives. The standard promises
  tags up to 32767 only, so the parts are cut from what this MPI really has.
- *No call blocks inside MPI.* A rank that waits inside MPI polls without pause and takes the core away from a rank
  that computes: beside three such ranks 1.0 s of work took 1.9 to 2.5 s, with the wait below 1.0 to 1.07 s.

Read `leaving.py` next: what a waiting rank looks out for.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minidist import _kernels as kernels
from minidist.comm import leaving, mapping
from minidist.comm.errors import CommError, MessageMismatch, wrong_size
from minidist.machine import core_count

if TYPE_CHECKING:
    from mpi4py import MPI

    from minidist.comm.communicator import Communicator
    from minidist.comm.progress import Progress, Request

PATIENCE = (
    5e-5  # seconds before the first yield: who yields on a busy machine may wait for a whole time slice
)
SPIN = 2e-3  # seconds in which a waiting rank only yields: most messages come within them
LOOKS = 200  # at a number in shared memory before other work gets its turn: a few microseconds
NAP, LONGEST_NAP = 150e-6, 1e-3  # seconds: long enough to free the core, short beside a step
_yield = getattr(os, "sched_yield", lambda: time.sleep(0))


class _Message:
    """A send or a receive on its way."""

    def __init__(self, mpi: Any, request: MPI.Request, data: np.ndarray, peer: int | None) -> None:
        self._mpi, self._request = mpi, request
        self._data = data  # MPI reads or writes it until the end
        self._status: MPI.Status | None = None  # of a receive
        self._exact = False
        self.peer, self.source, self.count, self.done = peer, -1, 0, False
        self.sending, self.tag = False, -1

    def test(self) -> bool:
        """Say whether it is complete."""
        if self.done:
            return True
        if self._status is None:
            self.done = self._request.Test()
            return self.done
        try:
            if not self._request.Test(self._status):
                return False
        except self._mpi.Exception as error:
            if error.Get_error_class() != self._mpi.ERR_TRUNCATE:
                raise
            self.done = True
            source = self._status.Get_source()  # MPI does not tell how long the message is
            raise MessageMismatch(wrong_size(self._data.nbytes, "more", source)) from None
        self.done = True
        self.source, self.count = self._status.Get_source(), self._status.Get_count(self._mpi.BYTE)
        if self._exact and self.count != self._data.nbytes:
            raise MessageMismatch(wrong_size(self._data.nbytes, self.count, self.source))
        return True


class _FromAnyone(_Message):
    """A receive from whoever sends first: it looks for a message, and receives the one that it has found.

    MPI can receive from any source by itself. But MPICH 5.0.2 (with UCX) loses such a receive if the sender is on
    another machine, and both wait for ever; looking first works everywhere.
    """

    def __init__(self, mpi: Any, private: MPI.Comm, data: np.ndarray, tag: int) -> None:
        super().__init__(mpi, mpi.REQUEST_NULL, data, None)
        self._private, self.tag = private, tag
        self._found = False

    def test(self) -> bool:
        if not self._found:
            message = self._private.Improbe(self._mpi.ANY_SOURCE, self.tag)
            if message is None:
                return False
            self._request, self._found = message.Irecv([self._data, self._mpi.BYTE]), True
        return super().test()


class _Arrival:
    """The moment when another rank's number in shared memory reaches ours.

    A rank that gives an array of another size may send it instead, and would wait for ours: so both are told.
    """

    source, count, sending = -1, 0, False

    def __init__(
        self, numbers: np.ndarray, place: int, number: int, peer: int, private: MPI.Comm, rank: int, tag: int
    ) -> None:
        self._numbers, self._place, self._number = numbers, place, number
        self._private, self._rank, self.tag = private, rank, tag
        self.peer: int | None = peer
        self.done = False

    def test(self) -> bool:
        """Say whether that rank has come."""
        self.done = kernels.has_reached(self._numbers, self._place, self._number)
        if not self.done and self._private.Iprobe(self._rank, self.tag):
            self._private.Isend(np.empty(0, np.uint8), self._rank, self.tag)
            raise MessageMismatch(
                f"rank {self._rank} sends what this rank reduces in shared memory: do all ranks give arrays of the "
                "same shape and dtype, and call the same function?"
            )
        return self.done


class Endpoint:
    """One rank's door to MPI, within one communicator (see `transport.py`).

    mpi: the module mpi4py.MPI, which is imported only where it is needed. private: a communicator that nobody
    else uses. members: the world ranks of its ranks. nodes: of each of them, a number for its machine.
    """

    transport = "mpi"

    def __init__(self, mpi: Any, private: MPI.Comm, members: Sequence[int], nodes: Sequence[int]) -> None:
        self.mpi, self.private, self.members, self.nodes = mpi, private, tuple(members), tuple(nodes)
        self.rank, self.size = private.Get_rank(), private.Get_size()
        crowded = mpi.COMM_WORLD.Get_size() > core_count()  # then whoever looks keeps others from coming
        self.looks, self.patience = (1, 0.0) if crowded else (LOOKS, PATIENCE)
        tags = min(mpi.COMM_WORLD.Get_attr(mpi.TAG_UB) + 1, 2**27)  # MPICH offers 2**29
        self.largest_tag = tags // 2 - 1
        self.payload_tags = range(tags // 2, tags // 4 * 3)
        self.collective_tags = range(tags // 4 * 3, tags // 8 * 7)
        self.guard_tags = range(tags // 8 * 7, tags)

    def isend(self, array: np.ndarray, dest: int, tag: int, synchronous: bool = False) -> _Message:
        """Start to send the bytes of a C-ordered array."""
        start = self.private.Issend if synchronous else self.private.Isend
        request = start([array, self.mpi.BYTE], dest, tag)
        message = _Message(self.mpi, request, array, self.members[dest])
        message.sending, message.tag = True, tag
        return message

    def irecv(self, buffer: np.ndarray, source: int, tag: int, exact: bool) -> _Message:
        """Start to fill a C-ordered array; `exact`: with exactly its number of bytes. Source -1: any."""
        if source == -1:
            received: _Message = _FromAnyone(self.mpi, self.private, buffer, tag)
        else:
            request = self.private.Irecv([buffer, self.mpi.BYTE], source, tag)
            received = _Message(self.mpi, request, buffer, self.members[source])
        received._status, received._exact, received.tag = self.mpi.Status(), exact, tag
        return received

    def iall_reduce(self, array: np.ndarray, op: str) -> _Message:
        """Start MPI's own all-reduce, in place."""
        kind = {"sum": self.mpi.SUM, "prod": self.mpi.PROD, "max": self.mpi.MAX, "min": self.mpi.MIN}[op]
        # MPI knows no largest of two truth values, but of two small numbers.
        numbers = array.view(np.uint8) if array.dtype.kind == "b" else array
        return _Message(self.mpi, self.private.Iallreduce(self.mpi.IN_PLACE, numbers, kind), array, None)

    def share(self, comm: Communicator, stretch: int) -> np.ndarray:
        """Map the same memory into all ranks' processes."""
        return mapping.map_together(comm, stretch)

    def meet(self, numbers: list[np.ndarray], place: int, number: int, tag: int) -> list[_Arrival]:
        """Store our number, and wait for those of others that have not come in a moment: no message is sent."""
        kernels.store_release(numbers[self.rank], place, number)
        return [
            _Arrival(numbers[rank], place, number, member, self.private, rank, tag)
            for rank, member in enumerate(self.members)
            if rank != self.rank and not kernels.has_reached(numbers[rank], place, number, self.looks)
        ]

    def idle(self, progress: Progress, request: Request, since: float) -> None:
        """Let others have the core: after a moment yield, then nap, and look around before each nap."""
        waited = time.perf_counter() - since
        if waited < self.patience:
            return
        if waited < SPIN:
            _yield()
            return
        progress.look(request)
        leaving.look(request.pending, request.describe)
        time.sleep(min(max(NAP, waited / 100), LONGEST_NAP))  # a long wait gets 1 % longer, and costs less

    def split(self, number: int, color: int | None, members: Sequence[int]) -> Endpoint | None:
        """Give this rank's door to the communicator of `members` (ranks of this one, in their new order)."""
        if color is None:
            self.private.Split(self.mpi.UNDEFINED)
            return None
        # MPI wants a color that is not negative: the first member's rank tells groups apart as well.
        with self._making_one_more():
            new = self.private.Split(members[0], members.index(self.rank))
        nodes = [self.nodes[member] for member in members]
        return Endpoint(self.mpi, new, [self.members[member] for member in members], nodes)

    def alone(self) -> Endpoint:
        """Give a door to nobody but this rank itself."""
        with self._making_one_more():
            new = self.mpi.COMM_SELF.Dup()
        return Endpoint(self.mpi, new, [self.members[self.rank]], [self.nodes[self.rank]])

    def free(self) -> None:
        """Give MPI its communicator back; nobody waits in here, for every rank has come."""
        self.private.Free()

    @contextlib.contextmanager
    def _making_one_more(self) -> Iterator[None]:
        """Say it in words if MPI has no further communicator: MPICH has 2,048 for each process."""
        try:
            yield
        except self.mpi.Exception as error:
            why = str(error).strip().splitlines()[-1]
            raise CommError(
                f"MPI could not make another communicator ({why}): split, or make a mesh, once before the loop "
                "and keep what you get, instead of anew in each step; or free() what you need no more"
            ) from None

    def abort(self, code: int) -> None:
        """End every rank."""
        self.private.Abort(code)
