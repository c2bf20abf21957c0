"""The communicator: everything that a rank can ask of the others.

    comm = world()                       # rank 2 of 4, say
    total = comm.all_reduce(x)           # the sum of all ranks' x, on every rank

All calls give values, not memory: results are new C-ordered arrays (or `out`) with dtype and shape kept, whatever
memory order each rank's arrays have. Pieces are cut and joined along axis 0. Every call takes `purpose`
("gradient", "activation", "weights", "control", "guard", "user"), under which its messages are counted.

Here stand the all-reduce, which chooses among more ways than all other collectives have together, and how communicators
are made of others. The rest is inherited: `other_collectives.py`, `point_to_point.py`. How the ways work stands in
`all_reduce.py`, `shared_memory.py`, `staged.py` and `two_level.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from minidist.comm import all_reduce, collectives, shared_memory, staged, two_level
from minidist.comm.arrays import as_array, check_out, describe
from minidist.comm.channel import Channel
from minidist.comm.core import PURPOSES
from minidist.comm.errors import CommError, NotShared
from minidist.comm.events import source_line
from minidist.comm.other_collectives import OtherCollectives
from minidist.comm.progress import Request, Steps
from minidist.comm.reductions import reduction


class Communicator(OtherCollectives):
    """A group of ranks that talk to each other. This one is `rank` of `size`."""

    _staged: staged.Scratch | Literal[False] | None = False  # not made yet; None: cannot be had

    def all_reduce(
        self,
        x: Any,
        op: str = "sum",
        out: np.ndarray | None = None,
        algorithm: str | None = None,
        *,
        purpose: str = "user",
    ) -> np.ndarray:
        """Give every rank the sum ("prod", "max", "min") of all ranks' x, the same bytes everywhere.

        x: same shape and dtype on every rank. out: filled and returned if given; may be x itself.
        algorithm: "naive", "tree", "recursive_doubling", "ring", "two_level" (within machines, then between them),
        "mpi" for MPI's own, "staged" through memory that all ranks of one machine see (float32 or float64, "sum"), or
        "shared" for an array in memory from `allocate_shared` that is reduced in place (out=x); by default chosen by
        place and size. On all ranks: as in MPI, an all_reduce on one does not meet an iall_reduce on another.
        float16 is combined (and sent) as float32. Raises TypeError for a sum of bool.
        """
        begun = None
        if (
            out is not None
            and out is x
            and op == "sum"
            and algorithm in (None, "shared")
            and not self.listeners
            and self.progress.at_once
        ):
            begun = self._all_reduce_at_once(x, purpose)
            if begun is not None and begun.stage == shared_memory.COMPLETE:
                return out
        return self._now(self._iall_reduce, x, op, out, algorithm, purpose, begun)

    def _all_reduce_at_once(self, x: Any, purpose: str) -> shared_memory.Begun | None:
        """Begin a sum in place without a request, which would take longer than a small sum; None: it is none."""
        if self.size == 1 or self.freed or purpose not in PURPOSES or type(x) is not np.ndarray:
            return None
        shared = shared_memory.memory_for(self, x, x)
        if shared is None or x.dtype.kind != "f" or not x.flags.writeable:
            return None
        looks = self.endpoint.looks * (1 if self.progress.running else shared_memory.LONGER)
        if self.recorder:
            facts = {"sequence": self._collectives, "dtype": x.dtype, "shape": x.shape, "reduction": "sum"}
            number = self.recorder.begins(self, "all_reduce", source_line(), x, facts)
        begun = shared_memory.begin(shared, self.rank, x, "sum", looks)
        complete = begun.stage == shared_memory.COMPLETE
        if self.recorder:
            self.recorder.ends(number) if complete else self.recorder.take_back()
        if complete and self.new_channel is Channel:  # one less to make: that takes half a microsecond
            self._collectives += 1
            self.count(purpose, begun.plan.nbytes, 2 * (self.size - 1))
        elif complete:
            self.next_channel(purpose).count_shared(begun.plan.nbytes)
        return begun

    def iall_reduce(
        self,
        x: Any,
        op: str = "sum",
        out: np.ndarray | None = None,
        algorithm: str | None = None,
        *,
        purpose: str = "user",
    ) -> Request:
        """Start an all-reduce; `wait()` gives the result."""
        return self._iall_reduce(x, op, out, algorithm, purpose, None)

    def _iall_reduce(
        self,
        x: Any,
        op: str,
        out: np.ndarray | None,
        algorithm: str | None,
        purpose: str,
        begun: shared_memory.Begun | None,
    ) -> Request:
        array, blocking = as_array(x), self._blocking
        reduce_two = reduction(op, array.dtype)
        if algorithm not in (None, "mpi", "shared", "staged", *all_reduce.ALGORITHMS):
            choices = ", ".join(map(repr, all_reduce.ALGORITHMS))
            raise ValueError(
                f"algorithm is {algorithm!r}, expected None, 'shared', 'staged', 'mpi' or one of {choices}"
            )
        if algorithm == "staged" and (not blocking or op != "sum" or array.dtype.char not in "fd"):
            raise ValueError(
                "algorithm='staged' is for all_reduce, not iall_reduce, and sums float32 or float64"
            )
        if algorithm == "mpi" and self.transport != "mpi":
            raise ValueError("algorithm='mpi' needs MPI, and these ranks are threads: leave it out")
        if out is not None:
            check_out(out)
            if out.shape != array.shape or out.dtype.newbyteorder("=") != array.dtype:
                got, expected = describe(out.dtype, out.shape), describe(array.dtype, array.shape)
                raise ValueError(f"out is {got}, expected {expected} like x")

        shared = None
        if out is not None and algorithm in (None, "shared") and self.size > 1:
            shared = shared_memory.memory_for(self, array, out)
        if algorithm == "shared" and shared is None and self.size > 1 and array.size:
            raise ValueError(
                "algorithm='shared' reduces in place an array in memory that this communicator has allocated: "
                "x = comm.allocate_shared(n, dtype), and then comm.all_reduce(x, out=x)"
            )

        scratch = None
        if shared is None and self.size > 1 and not self.freed and blocking:
            scratch = self._scratch_for(array, op, algorithm)
        if algorithm is None and two_level.has_two_levels(self.nodes):
            algorithm = "two_level"

        def steps(channel: Channel) -> Steps:
            if shared is not None:
                return shared_memory.all_reduce(channel, shared, array, op, reduce_two, begun)
            if scratch is not None:
                return staged.all_reduce(channel, scratch, self._collectives, array, out)
            return all_reduce.all_reduce(channel, array, op, reduce_two, out, algorithm)

        return self._collective("all_reduce", steps, purpose, array, reduction=op, out=out)

    def _scratch_for(self, x: np.ndarray, op: str, algorithm: str | None) -> staged.Scratch | None:
        """Give the scratch if x is to go through it: because it was asked for, or because that is the fastest way."""
        if algorithm == "staged":
            scratch = self._scratch(x, op)
            if scratch is None:
                raise NotShared(
                    f"the ranks of {self.name!r} cannot share memory, which algorithm='staged' needs"
                )
            return scratch
        if algorithm is not None or not staged.suits(self, x, op):
            return None
        scratch = self._scratch(x, op)
        return None if scratch is None or scratch.crowded else scratch

    def _scratch(self, array: np.ndarray, op: str) -> staged.Scratch | None:
        """Give the scratch through which arrays are reduced; the first call, on all ranks at once, makes it."""
        if self._staged is False:
            quiet = self.quiet()
            quiet.progress, quiet._collectives, quiet.key = self.progress, self._collectives, self.key
            if self.listeners:
                # What follows is no part of any call; so here they hear of the one that is made.
                quiet.listeners = self.listeners
                call = "all_reduce", collectives.barrier, "control", array
                try:
                    quiet._now(quiet._collective, *call, reduction=op)
                finally:
                    quiet.listeners, self._collectives = [], quiet._collectives
            self._staged = staged.make_scratch(quiet)
            self._collectives = quiet._collectives
        return self._staged or None

    def allocate_shared(self, n: int, dtype: Any = np.float64) -> np.ndarray:
        """Give this rank n numbers in memory that all ranks see, so that `all_reduce(x, out=x)` sends nothing.

        A collective; all ranks give the same n and dtype. The numbers are zeros at first, and the memory lasts as
        long as the array or a view of it. A slice of it is reduced by the same slice on every rank. Raises
        NotShared, on all ranks, where they are not on one machine or there is not enough memory.
        """
        if self.size == 1:
            return np.zeros(n, dtype)
        for rank, node in enumerate(self.nodes):  # pretend machines refuse as well as real ones
            if node != self.nodes[0]:
                raise NotShared(f"rank {rank} of {self.name!r} is on another machine than rank 0")
        return np.asarray(shared_memory.SharedMemory(self, n, np.dtype(dtype)))

    def split(self, color: int | None, key: int = 0, *, name: str | None = None) -> Communicator | None:
        """Form a communicator of all ranks that give the same color, in the order of (key, rank).

        Every rank must call it; one that gives color None is in no new communicator and gets None.
        """
        number = self._collectives
        mine = np.array([[color is not None, color or 0, key]], dtype=np.int64)
        # No rank ends this before every rank has come. That makes it a polite barrier, which MPI's own split
        # needs before it: that one has no non-blocking form, and whoever waited inside it would keep a core.
        gathered = self._now(
            self._collective, "split", lambda channel: collectives.all_gather(channel, mine), "control"
        )
        table = gathered.tolist()  # size rows of [takes part, color, key]
        group = [(row[2], rank) for rank, row in enumerate(table) if row[0] and row[1] == color]
        endpoint = self.endpoint.split(number, color, [rank for _, rank in sorted(group)])
        if endpoint is None:
            return None
        new = Communicator(endpoint, name or f"{self.name}/{color}", self)
        new.key = (*self.key, number, color)
        return new

    def split_by(self, color_of: Callable[[int], int | None], name: str) -> Communicator | None:
        """Form a communicator of all ranks of the same color, where every rank knows each one's: `color_of(rank)`."""
        return self.split(color_of(self.rank), name=name)

    def free(self) -> None:
        """Give back what MPI keeps for this communicator, of which it has some 2,000; all its ranks call this.

        Nothing may be in flight on it, and nothing can be started on it any more. Communicators split from it, and
        arrays that it has allocated, live on.
        """
        if self.parent is None:
            raise CommError(f"{self.name!r} was not split from another communicator and stays until the end")
        self._now(self._collective, "free", collectives.barrier, "control")
        self.freed, self._staged = True, None
        self.endpoint.free()

    def alone(self, name: str) -> Communicator:
        """Form a communicator of this rank alone; needs no other rank and sends nothing."""
        new = Communicator(self.endpoint.alone(), name, self)
        new.key = (*self.key, "alone", self.rank)
        return new
