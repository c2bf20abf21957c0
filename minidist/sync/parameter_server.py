"""The worker's side of the parameter server: push gradients, pull weights, keep nothing else.

    worker     forward | backward: part, part, part | push | pull ...... | forward | backward
                                    \\     \\     \\      \\     /
    servers                         take   take  take   update

Gradients leave bucket by bucket while backward still runs. With slack 0 the servers wait for all workers and apply one
update: that is data parallel, and equal to it. With slack s a worker may be s clocks ahead of the slowest, with None
any number, and its gradient is applied at once: by then others may have changed the weights that it was made with.
Such a replica steps on its own: it divides by its own count, clips by its own gradient's norm, and its update counts
by its share of the global batch. Two runs differ then, as the order of arrival does.

Cost per step for S servers and n bytes of weights: each worker pushes n bytes and pulls n, in a message per bucket and
server each way; beside them go S (B + 2) notes of 40 bytes for B buckets. Ring data parallel sends 2 (p-1)/p n. Here
the servers' links carry p n / S each way, the workers' own as little as ever. Memory: no optimizer state.

The servers' side, the papers and the command stand in `server.py`. Read next: `zero.py`, where the workers
themselves are each other's servers.
"""

import json
import math
from collections.abc import Sequence

import numpy as np

from minidist.checkpoint import Piece, State, pieces_of
from minidist.comm import CommError, Mesh, Request
from minidist.comm.mesh import group_number
from minidist.nn.flat import Bucket, Group, cut_into_buckets
from minidist.optim import Optimizer
from minidist.sync import clipping, partial
from minidist.sync.data_parallel import BYTES_PER_BUCKET
from minidist.sync.link import DATA, LEAVE, NOTE, PART, PULL, PUSH, REPLY, SAVE, Link, note
from minidist.sync.saved import other_vectors, places
from minidist.sync.seam import Sync, start_equal
from minidist.sync.staleness import check_slack

__all__ = ["Link", "ParameterServer"]


class ParameterServer(Sync):
    """Push every gradient to the servers of `link`, and pull the weights that they make of all of them.

    mesh: of the workers, all of them and in the link's order.
    optimizer: only its learning rate is used here, and sent with each push; the servers have the rule and its state.
    clip_norm: of the sum of all replicas' gradients with slack 0, else of each replica's own.
    slack: how many clocks the weights may be behind this worker's; 0: replicas in step; None: any number.
    parts: for each server, which slices of which buckets it has.
    versions: of the weights pulled last, one from each server (`staleness.py`).
    """

    def __init__(
        self,
        mesh: Mesh,
        groups: Sequence[Group],
        optimizer: Optimizer,
        link: Link,
        clip_norm: float | None = None,
        slack: int | None = 0,
        bytes_per_bucket: int = BYTES_PER_BUCKET,
    ) -> None:
        check_slack(slack)
        if link.serves or mesh.everyone.members != link.peers.members:
            raise ValueError(
                f"{mesh} is not of the workers of the link: make it of link.peers, on the workers alone"
            )
        self.mesh, self.groups, self.optimizer, self.link = mesh, groups, optimizer, link
        self.clip_norm, self.slack = clip_norm, slack
        self.lockstep = slack == 0
        self.buckets = cut_into_buckets(groups, bytes_per_bucket)
        # What several ranks of a replica hold, its first holder pushes and pulls, and hands on to the others.
        owned = [bucket for bucket in self.buckets if clipping.counted_here(mesh, bucket.group)]
        self.parts = [link.parts(owned, server) for server in range(link.servers)]
        self.versions = np.zeros(link.servers, np.int64)
        self._clock = 0  # pushes of this worker
        self._share: float | None = None  # of this replica in the coming step's targets, if it was told
        self._sends: list[Request] = []
        self._left = False
        start_equal(mesh, groups)
        self._introduce()

    def _introduce(self) -> None:
        """Tell the servers what will come; the first replica sends the weights to begin with."""
        first = self.mesh.coordinates["data"] == 0
        place = group_number(self.mesh.everyone.rank, self.mesh.axes, ("data",))
        about = {"place": place, "first": first, "slack": self.slack, "clip_norm": self.clip_norm}
        for server, parts in enumerate(self.parts):
            sizes = [[part.stop - part.start, bucket.group.dtype.str] for bucket, part in parts]
            whose = [places(bucket.group, part) for bucket, part in parts] if first else []
            text = np.frombuffer(json.dumps({**about, "sizes": sizes, "whose": whose}).encode(), np.uint8)
            self._send(np.array([text.size]), server, NOTE, "control")
            self._send(text, server, NOTE, "control")
            for bucket, part in parts if first else ():
                self._send(bucket.group.weights[part], server, DATA, "weights")
        self._wait_for_sends()

    def divisor(self, own: int, whole: int) -> int:
        """Divide by the global count where all gradients are summed, else by the replica's own."""
        self._share = own / max(whole, 1)
        return whole if self.lockstep else max(own, 1)

    def gradient_ready(self, bucket: Bucket) -> None:
        """Send a bucket's parts to the servers, unless other ranks of the replica have to add to it first."""
        if not partial.is_partial(bucket.group):
            self._push_parts(bucket)

    def tick(self) -> None:
        """Move the messages that are on their way."""
        self.mesh.everyone.progress.advance()

    def step(self) -> float:
        """Push what is left of the gradient, pull weights; return the norm of the gradient applied, before clipping."""
        if self._share is None and not self.lockstep:
            raise ValueError(
                "nobody said how many targets this step has: batch.count is sync.divisor(own, whole), before each step"
            )
        partial.complete(self.mesh, self.groups)
        for bucket in self.buckets:
            if partial.is_partial(bucket.group):
                self._push_parts(bucket)
        norm = math.nan if self.lockstep else clipping.norm(self.mesh, self.groups)
        if not (self.lockstep or math.isfinite(norm)):
            return norm  # the servers must not apply it: whoever trains stops here
        self._clock += 1
        self.push(norm)
        self._share = None
        norms = self.pull()
        return norms[0] if self.lockstep else norm

    def _push_parts(self, bucket: Bucket) -> None:
        for server, parts in enumerate(self.parts):
            for number, (other, part) in enumerate(parts):
                if other is bucket:
                    self._send(note(PART, self._clock + 1, number), server, NOTE, "control")
                    self._send(bucket.group.gradients[part], server, DATA, "gradient")  # type: ignore[index]

    def push(self, norm: float) -> None:
        """Let the servers apply the gradient whose parts they have; `norm` is its own."""
        scales = (self.optimizer.lr, self._share or 0.0, clipping.clip_scale(norm, self.clip_norm))
        for server in range(self.link.servers):
            self._send(note(PUSH, self._clock, *scales), server, NOTE, "control")

    def pull(self) -> list[float]:
        """Replace the weights by the servers', and return the norm that each of them has applied."""
        answers = [np.empty(2) for _ in range(self.link.servers)]
        receives = []
        for server, (parts, answer) in enumerate(zip(self.parts, answers, strict=True)):
            self._send(note(PULL, self._clock), server, NOTE, "control")
            rank = self.link.workers + server
            receives.append(self.link.comm.irecv(answer, rank, REPLY, purpose="control"))
            for bucket, part in parts:
                weights = bucket.group.weights[part]
                receives.append(self.link.comm.irecv(weights, rank, DATA, purpose="weights"))
        self._wait_for_sends()
        for receive in receives:
            receive.wait()
        self._hand_on()
        self.versions = np.array([int(version) for version, _ in answers])
        oldest = 0 if self.slack is None or self._left else self._clock - self.slack
        if self.versions.min() < oldest:
            raise CommError(
                f"the servers gave versions {self.versions.tolist()} to a worker at clock {self._clock} with slack "
                f"{self.slack}: expected {oldest} or newer"
            )
        return [float(norm) for _, norm in answers]

    def _hand_on(self) -> None:
        """Give the weights to those ranks of the replica that hold the same, along one axis after another."""
        for group in self.groups:
            if group.trainable:
                for axis in group.repeated:
                    self.mesh.comm(axis).broadcast(group.weights, root=0, purpose="weights")
                group.updated()

    def _send(self, x: np.ndarray, server: int, tag: int, purpose: str) -> None:
        self._sends.append(self.link.comm.isend(x, self.link.workers + server, tag, purpose=purpose))

    def _wait_for_sends(self) -> None:
        for request in self._sends:
            request.wait()
        self._sends.clear()

    # ---- checkpoints

    def before_save(self, step: int) -> None:
        """Ask the servers to save together with the workers, when all of these have come so far."""
        for server in range(self.link.servers):
            self._send(note(SAVE, self._clock, step), server, NOTE, "control")
        self._wait_for_sends()

    def snapshot(self) -> State:
        """Say what the next step depends on: the weights, which a worker loads, and the servers save."""
        pieces: list[Piece] = []
        for group in self.groups:
            if group.trainable:
                vectors = {"weights": group.weights}
                pieces += pieces_of(group, slice(0, group.weights.size), vectors, writes=False)
            else:  # the servers have none of these
                pieces += other_vectors(self.mesh, group, {"weights": group.weights})
        return State(pieces, {"clock": self._clock})

    def take_numbers(self, numbers: list[dict[str, float]]) -> None:
        """Take over the clock; where there were no servers it begins again."""
        self._clock = int(numbers[0].get("clock", 0))
        self.versions[:] = self._clock

    def finish(self) -> None:
        """Leave, wait until all workers have, and pull the final weights."""
        if self._left:
            return
        self._left = True
        for server in range(self.link.servers):
            self._send(note(LEAVE, self._clock), server, NOTE, "control")
        self.pull()
