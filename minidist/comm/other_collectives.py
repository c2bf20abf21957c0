"""The collectives other than the all-reduce, as a rank asks for them: arguments are checked here.

    reduce_scatter   all_gather   broadcast   reduce   gather   scatter   all_to_all   barrier

How each of them works stands in `collectives.py`. Read next: `communicator.py`, which adds the all-reduce.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minidist.comm import collectives
from minidist.comm.arrays import as_array, check_out, cut, is_plain
from minidist.comm.channel import Channel
from minidist.comm.point_to_point import PointToPoint
from minidist.comm.progress import Request, Steps
from minidist.comm.reductions import reduction


class OtherCollectives(PointToPoint):
    """Move and combine arrays over all ranks."""

    def reduce_scatter(
        self, x: Any, op: str = "sum", counts: Any = None, *, purpose: str = "user"
    ) -> np.ndarray:
        """Give rank r piece r of the sum of all ranks' x: counts[r] rows, by default as equal as can be."""
        return self._now(self.ireduce_scatter, x, op, counts, purpose=purpose)

    def ireduce_scatter(
        self, x: Any, op: str = "sum", counts: Any = None, *, purpose: str = "user"
    ) -> Request:
        """Start a reduce-scatter; `wait()` gives this rank's piece."""
        array = self._with_rows(x, "reduce_scatter")
        reduce_two, pieces = reduction(op, array.dtype), cut(len(array), self.size, counts)

        def steps(channel: Channel) -> Steps:
            return collectives.reduce_scatter(channel, array, reduce_two, pieces)

        rows = tuple(piece.stop - piece.start for piece in pieces)
        return self._collective("reduce_scatter", steps, purpose, array, reduction=op, counts=rows)

    def all_gather(self, x: Any, out: np.ndarray | None = None, *, purpose: str = "user") -> np.ndarray:
        """Give every rank all ranks' x, joined along axis 0. Row counts may differ; a 0-d value is one row.

        out: filled and returned if given; then the row counts must be as equal as can be, the first ranks' larger.
        x may be this rank's rows of it.
        """
        return self._now(self.iall_gather, x, out, purpose=purpose)

    def iall_gather(self, x: Any, out: np.ndarray | None = None, *, purpose: str = "user") -> Request:
        """Start an all-gather; `wait()` gives all ranks' x joined."""
        array = as_array(x)
        if out is not None and not is_plain(check_out(out)):
            raise ValueError("out must be C-ordered, of native byte order: give np.empty(shape, dtype)")

        def steps(channel: Channel) -> Steps:
            return collectives.all_gather(channel, array, out)

        return self._collective("all_gather", steps, purpose, array, out=out)

    def broadcast(self, x: Any, root: int = 0, *, purpose: str = "user") -> np.ndarray:
        """Give every rank the root's x.

        An array given on another rank is filled and returned: it must be writeable and of the root's dtype and
        shape (else MessageMismatch). Anything else there (None, a number) gives a new array.
        """
        return self._now(self.ibroadcast, x, root, purpose=purpose)

    def ibroadcast(self, x: Any, root: int = 0, *, purpose: str = "user") -> Request:
        """Start a broadcast; `wait()` gives the root's x."""
        self._check_rank(root, "root")
        given = x if isinstance(x, np.ndarray) else None
        array = as_array(x) if self.rank == root else None
        if array is None and given is not None:
            check_out(given, "x")

        def steps(channel: Channel) -> Steps:
            return collectives.broadcast(channel, array, given, root)

        mine = given if array is None else array
        return self._collective(
            "broadcast", steps, purpose, mine, root=root, out=given if array is None else None
        )

    def reduce(self, x: Any, op: str = "sum", root: int = 0, *, purpose: str = "user") -> np.ndarray | None:
        """Give the root the sum ("prod", "max", "min") of all ranks' x, the others None."""
        self._check_rank(root, "root")
        array = as_array(x)
        reduce_two = reduction(op, array.dtype)

        def steps(channel: Channel) -> Steps:
            return collectives.reduce(channel, array, reduce_two, root)

        return self._now(self._collective, "reduce", steps, purpose, array, reduction=op, root=root)

    def gather(self, x: Any, root: int = 0, *, purpose: str = "user") -> np.ndarray | None:
        """Give the root all ranks' x, joined along axis 0 (row counts may differ), the others None."""
        self._check_rank(root, "root")
        array = as_array(x)

        def steps(channel: Channel) -> Steps:
            return collectives.gather(channel, array, root)

        return self._now(self._collective, "gather", steps, purpose, array, root=root)

    def scatter(self, x: Any, root: int = 0, counts: Any = None, *, purpose: str = "user") -> np.ndarray:
        """Give rank r piece r of the root's x: counts[r] rows, by default as equal as can be.

        x and counts are read on the root alone; the others give None.
        """
        self._check_rank(root, "root")
        array = self._with_rows(x, "scatter") if self.rank == root else None
        pieces = None if array is None else [array[piece] for piece in cut(len(array), self.size, counts)]

        def steps(channel: Channel) -> Steps:
            return collectives.scatter(channel, pieces, root)

        return self._now(self._collective, "scatter", steps, purpose, array, root=root)

    def all_to_all(self, x: Any, counts: Any = None, *, purpose: str = "user") -> np.ndarray:
        """Send piece r of x (counts[r] rows) to rank r; give what all ranks sent here, in rank order."""
        array = self._with_rows(x, "all_to_all")
        pieces = [array[piece] for piece in cut(len(array), self.size, counts)]

        def steps(channel: Channel) -> Steps:
            return collectives.all_to_all(channel, pieces)

        return self._now(self._collective, "all_to_all", steps, purpose, array)

    def barrier(self, *, purpose: str = "user") -> None:
        """Wait until every rank has come here."""
        self._now(self._collective, "barrier", collectives.barrier, purpose)
