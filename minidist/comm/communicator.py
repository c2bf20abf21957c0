"""The communicator: everything a rank can ask of the others.

    comm = world()                       # rank 2 of 4, say
    total = comm.all_reduce(x)           # the sum of all ranks' x, on every rank

It checks arguments before anything is sent, numbers the collectives, counts what is sent, tells listeners, and
hands each operation to `progress.py` as a generator. How a collective works stands in `collectives.py` and
`all_reduce.py`; how bytes travel in `threads.py` and `mpi.py`.

All calls give values, not memory: results are new C-ordered arrays (or `out`) with dtype and shape kept, whatever
memory order each rank's arrays have. Pieces are cut and joined along axis 0. Every call takes `purpose`, under
which its messages are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minidist.comm import collectives
from minidist.comm.all_reduce import ALGORITHMS, all_reduce
from minidist.comm.arrays import as_array, check_out, cut, describe
from minidist.comm.channel import Channel
from minidist.comm.events import Event, Listener, source_line
from minidist.comm.progress import Progress, Request, Steps
from minidist.comm.reductions import reduction

ANY_SOURCE = -1  # for recv: whoever sends first
PURPOSES = ("gradient", "activation", "weights", "control", "guard", "user")


class Communicator:
    """A group of ranks that talk to each other; `rank` of `size`."""

    def __init__(self, endpoint: Any, name: str = "world", parent: Communicator | None = None) -> None:
        self.endpoint, self.name, self.parent = endpoint, name, parent
        self.rank: int = endpoint.rank
        self.size: int = endpoint.size
        self.members: tuple[int, ...] = endpoint.members  # world ranks, in the order of ranks here
        self.transport: str = endpoint.transport
        self.progress: Progress = parent.progress if parent else Progress(endpoint.idle)
        self.listeners: list[Listener] = parent.listeners if parent else []
        self._sent = {purpose: [0, 0] for purpose in PURPOSES}
        self._collectives = 0  # how many have been started: the number of the next one
        self._sends = 0

    def __repr__(self) -> str:
        return f"<Communicator {self.name!r}: rank {self.rank} of {self.size}, {self.transport}>"

    # ---------------------------------------------------------------- collectives

    def iall_reduce(
        self,
        x: Any,
        op: str = "sum",
        out: np.ndarray | None = None,
        algorithm: str | None = None,
        *,
        purpose: str = "user",
    ) -> Request:
        """Start to combine all ranks' x; `wait()` gives the result (see `all_reduce`)."""
        array = as_array(x)
        reduce_two = reduction(op, array.dtype)
        if algorithm not in (None, "mpi", *ALGORITHMS):
            raise ValueError(
                f"algorithm is {algorithm!r}, expected None, 'mpi' or one of {', '.join(ALGORITHMS)}"
            )
        if algorithm == "mpi" and self.transport != "mpi":
            raise ValueError(
                "algorithm='mpi' needs the mpi transport, and these ranks are threads: leave it out"
            )
        if out is not None:
            check_out(out)
            if out.shape != array.shape or out.dtype.newbyteorder("=") != array.dtype:
                raise ValueError(
                    f"out is {describe(out.dtype, out.shape)}, expected {describe(array.dtype, array.shape)} like x"
                )
        return self._collective(
            "all_reduce",
            lambda ch: all_reduce(ch, array, op, reduce_two, out, algorithm),
            purpose,
            array,
            reduction=op,
        )

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
        algorithm: "naive", "tree", "recursive_doubling", "ring", or "mpi" for MPI's own; by default chosen by size.
        float16 is combined (and sent) as float32. Raises TypeError for a sum of bool.
        """
        return self.iall_reduce(x, op, out, algorithm, purpose=purpose).wait()

    def ireduce_scatter(
        self, x: Any, op: str = "sum", counts: Any = None, *, purpose: str = "user"
    ) -> Request:
        """Start a reduce-scatter; `wait()` gives this rank's piece."""
        array = self._with_rows(x, "reduce_scatter")
        reduce_two, pieces = reduction(op, array.dtype), cut(len(array), self.size, counts)
        return self._collective(
            "reduce_scatter",
            lambda ch: collectives.reduce_scatter(ch, array, reduce_two, pieces),
            purpose,
            array,
            reduction=op,
        )

    def reduce_scatter(
        self, x: Any, op: str = "sum", counts: Any = None, *, purpose: str = "user"
    ) -> np.ndarray:
        """Give rank r piece r of the sum of all ranks' x: counts[r] rows (by default as equal as they can be)."""
        return self.ireduce_scatter(x, op, counts, purpose=purpose).wait()

    def iall_gather(self, x: Any, *, purpose: str = "user") -> Request:
        """Start an all-gather; `wait()` gives all ranks' x joined."""
        array = as_array(x)
        return self._collective("all_gather", lambda ch: collectives.all_gather(ch, array), purpose, array)

    def all_gather(self, x: Any, *, purpose: str = "user") -> np.ndarray:
        """Give every rank all ranks' x, joined along axis 0; row counts may differ, a 0-d value is one row."""
        return self.iall_gather(x, purpose=purpose).wait()

    def ibroadcast(self, x: Any, root: int = 0, *, purpose: str = "user") -> Request:
        """Start a broadcast; `wait()` gives the root's x."""
        self._check_rank(root, "root")
        if self.rank == root:
            array, out = as_array(x), x if isinstance(x, np.ndarray) else None
            result = array if out is None else out
        else:
            array, out, result = None, check_out(x, "x") if isinstance(x, np.ndarray) else None, None

        def steps(channel: Channel) -> Steps:
            received = yield from collectives.broadcast(channel, array, out, root)
            return received if result is None else result

        return self._collective("broadcast", steps, purpose, array if out is None else out, root=root)

    def broadcast(self, x: Any, root: int = 0, *, purpose: str = "user") -> np.ndarray:
        """Give every rank the root's x.

        An array given on another rank is filled and returned: same dtype and shape (else MessageMismatch), writeable.
        Anything else there (None, a number) gives a new array.
        """
        return self.ibroadcast(x, root, purpose=purpose).wait()

    def reduce(self, x: Any, op: str = "sum", root: int = 0, *, purpose: str = "user") -> np.ndarray | None:
        """Give the root the sum ("prod", "max", "min") of all ranks' x, the others None."""
        self._check_rank(root, "root")
        array = as_array(x)
        reduce_two = reduction(op, array.dtype)
        return self._collective(
            "reduce",
            lambda ch: collectives.reduce(ch, array, reduce_two, root),
            purpose,
            array,
            reduction=op,
            root=root,
        ).wait()

    def gather(self, x: Any, root: int = 0, *, purpose: str = "user") -> np.ndarray | None:
        """Give the root all ranks' x, joined along axis 0 (row counts may differ), the others None."""
        self._check_rank(root, "root")
        array = as_array(x)
        return self._collective(
            "gather", lambda ch: collectives.gather(ch, array, root), purpose, array, root=root
        ).wait()

    def scatter(self, x: Any, root: int = 0, counts: Any = None, *, purpose: str = "user") -> np.ndarray:
        """Give rank r piece r of the root's x: counts[r] rows (by default as equal as they can be)."""
        self._check_rank(root, "root")
        array = pieces = None
        if self.rank == root:
            array = self._with_rows(x, "scatter")
            pieces = cut(len(array), self.size, counts)
        return self._collective(
            "scatter", lambda ch: collectives.scatter(ch, array, root, pieces), purpose, array, root=root
        ).wait()

    def all_to_all(self, x: Any, counts: Any = None, *, purpose: str = "user") -> np.ndarray:
        """Send piece r of x (counts[r] rows) to rank r; give what all ranks sent here, joined in rank order."""
        array = self._with_rows(x, "all_to_all")
        pieces = cut(len(array), self.size, counts)
        return self._collective(
            "all_to_all", lambda ch: collectives.all_to_all(ch, array, pieces), purpose, array
        ).wait()

    def barrier(self, *, purpose: str = "user") -> None:
        """Wait until every rank has come here."""
        self._collective("barrier", collectives.barrier, purpose).wait()

    # ---------------------------------------------------------------- point to point

    def isend(self, x: Any, dest: int, tag: int = 0, *, purpose: str = "user") -> Request:
        """Start to send x; do not change it before `wait()` is over."""
        array, channel = as_array(x), self._channel(tag, purpose)
        self._check_rank(dest, "dest")

        def steps() -> Steps:
            yield channel.send_message(array, dest)

        return self._start("send", steps(), purpose, array, peer=dest, tag=tag)

    def send(self, x: Any, dest: int, tag: int = 0, *, purpose: str = "user") -> None:
        """Send x to rank `dest`. A large one returns only when it is being received."""
        if dest == self.rank:
            raise ValueError(
                f"rank {dest} sends to itself and would wait for itself for ever: use isend, or sendrecv"
            )
        self.isend(x, dest, tag, purpose=purpose).wait()

    def irecv(self, out: np.ndarray, source: int, tag: int = 0, *, purpose: str = "user") -> Request:
        """Start to receive into `out`; `wait()` gives the rank it came from."""
        check_out(out)
        channel = self._channel(tag, purpose)
        self._check_rank(source, "source", any_source=True)

        def steps() -> Steps:
            return (yield from collectives.receive(channel, out, source))

        return self._start("recv", steps(), purpose, out, peer=source, tag=tag)

    def recv(self, out: np.ndarray, source: int, tag: int = 0, *, purpose: str = "user") -> int:
        """Fill `out` with what rank `source` (or ANY_SOURCE) sends with this tag; give the rank it came from.

        Raises MessageMismatch, with `out` untouched, if the message has another dtype or shape.
        """
        return self.irecv(out, source, tag, purpose=purpose).wait()

    def sendrecv(
        self, x: Any, dest: int, out: np.ndarray, source: int, tag: int = 0, *, purpose: str = "user"
    ) -> int:
        """Send x to `dest` while receiving `out` from `source`; x and `out` may overlap."""
        array, channel = as_array(x), self._channel(tag, purpose)
        check_out(out)
        self._check_rank(dest, "dest")
        self._check_rank(source, "source", any_source=True)
        if np.may_share_memory(array, out):
            array = array.copy()

        def steps() -> Steps:
            sends = channel.send_message(array, dest)
            came_from = yield from collectives.receive(channel, out, source)
            yield sends
            return came_from

        return self._start("sendrecv", steps(), purpose, array, peer=source, tag=tag).wait()

    # ---------------------------------------------------------------- groups, counters, ending

    def split(self, color: int | None, key: int = 0, *, name: str | None = None) -> Communicator | None:
        """Form a new communicator of all ranks that give the same color, ordered by (key, rank); None: in none.

        Every rank of this communicator must call it.
        """
        mine = np.array([[color is not None, color or 0, key]], dtype=np.int64)
        number = self._collectives
        # All-gather ends on no rank before every rank has come: a polite barrier before MPI's own, blocking split.
        table = self.all_gather(mine, purpose="control").tolist()  # size rows of (takes part, color, key)
        members = sorted(
            (k, rank) for rank, (takes_part, c, k) in enumerate(table) if takes_part and c == color
        )
        endpoint = self.endpoint.split(number, color, [rank for _, rank in members])
        return Communicator(endpoint, name or f"{self.name}/{color}", self) if endpoint else None

    def alone(self, name: str) -> Communicator:
        """Form a communicator of this rank alone; needs no other rank and sends nothing."""
        return Communicator(self.endpoint.alone(), name, self)

    @property
    def counters(self) -> dict[str, tuple[int, int]]:
        """Give {purpose: (messages, bytes)} sent by this rank on this communicator and those split from it."""
        return {purpose: (messages, nbytes) for purpose, (messages, nbytes) in self._sent.items()}

    def count(self, purpose: str, nbytes: int) -> None:
        """Count one message sent (called where messages are sent)."""
        comm: Communicator | None = self
        while comm is not None:
            sent = comm._sent[purpose]
            sent[0] += 1
            sent[1] += nbytes
            comm = comm.parent

    def abort(self, code: int = 1) -> None:
        """End every rank of the job at once."""
        self.endpoint.abort(code)

    # ---------------------------------------------------------------- what all calls share

    def _collective(
        self,
        operation: str,
        steps: Callable[[Channel], Steps],
        purpose: str,
        array: np.ndarray | None = None,
        **facts: Any,
    ) -> Request:
        """Start the next collective: its number gives its tag."""
        number, tags = self._collectives, self.endpoint.collective_tags
        channel = Channel(self, tags[number % len(tags)], purpose)
        self._collectives += 1
        return self._start(operation, steps(channel), purpose, array, sequence=number, **facts)

    def _start(
        self, operation: str, steps: Steps, purpose: str, array: np.ndarray | None, **facts: Any
    ) -> Request:
        """Tell listeners, who may refuse, and start an operation."""
        if purpose not in PURPOSES:
            raise ValueError(f"purpose is {purpose!r}, expected one of {', '.join(map(repr, PURPOSES))}")
        if array is not None:
            facts.update(dtype=array.dtype, shape=array.shape)
        request = Request(self, operation, steps, facts)
        if self.listeners:
            nbytes = 0 if array is None else array.nbytes
            request.event = Event(operation, self, purpose, bytes=nbytes, line=source_line(), **facts)
            for listener in self.listeners:
                listener.before(request.event)
        return self.progress.start(request)

    def _channel(self, tag: int, purpose: str) -> Channel:
        """Give the channel of one point-to-point message; a large payload gets a tag of its own."""
        largest, payload_tags = self.endpoint.largest_tag, self.endpoint.payload_tags
        if not 0 <= tag <= largest:
            raise ValueError(f"tag is {tag}, expected 0 to {largest}")
        self._sends += 1
        return Channel(self, tag, purpose, payload_tags[self._sends % len(payload_tags)])

    def _check_rank(self, rank: int, what: str, any_source: bool = False) -> None:
        if not 0 <= rank < self.size and not (any_source and rank == ANY_SOURCE):
            alternative = " or ANY_SOURCE" if any_source else ""
            raise ValueError(
                f"{what} is {rank}, expected 0 to {self.size - 1}{alternative}: {self.name!r} has {self.size} ranks"
            )

    def _with_rows(self, x: Any, operation: str) -> np.ndarray:
        array = as_array(x)
        if array.ndim == 0:
            raise ValueError(f"{operation} cuts x along axis 0, and x has shape (): give at least one dim")
        return array
