"""What does agreeing cost? Data parallel on several ranks beside the same ranks without any communication.

    mpiexec -n 2 python benchmarks/two_ranks.py [--rounds 15] [--sizes 8,65536,1048576]

Two tables. The first: steps of an MLP 784-1024-1024-10 with a global batch of 256, where the ranks do not communicate
at all, where gradients live in shared memory, where they go round our ring, and where one MPI.Allreduce of the whole
gradient follows backward. The second: an all-reduce alone over sizes, each way beside MPI.Allreduce. Everything that
is compared takes turns in one run; times are medians over rounds, of the slowest rank. Run it on a quiet machine with
at least as many cores as ranks.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from minidist.autograd import Tensor, ops
from minidist.comm import Communicator, Mesh, world
from minidist.models import MLP
from minidist.nn import Bucket, flatten
from minidist.optim import SGD
from minidist.split.replica import Batch
from minidist.split.whole import Whole
from minidist.sync.data_parallel import DataParallel

BATCH, STEPS = 256, 3  # global; steps in a row
BYTES_IN_A_ROW = 1 << 24  # of all-reduces of one size
SIZES = ",".join(str(size) for size in (8, 512, *(4**power for power in range(7, 13))))  # 8 B to 16 MB


class ByRing(DataParallel):
    """Send every bucket round our ring, whatever its size."""

    def gradient_ready(self, bucket: Bucket) -> None:
        gradients, comm = bucket.gradients, self.mesh.comm(*bucket.group.axes)
        self._requests[bucket.index] = comm.iall_reduce(gradients, out=gradients, algorithm="ring")


class AfterBackward(DataParallel):
    """Call MPI.Allreduce once, when backward is over: what one writes first with mpi4py."""

    def gradient_ready(self, bucket: Bucket) -> None:
        """Leave it to step()."""

    def step(self) -> float:
        for group in {bucket.group for bucket in self.buckets}:
            MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, group.gradients)
        return super().step()


def trainer(comm: Communicator, kind: type[DataParallel], shared: bool) -> Callable[[], None]:
    """Make a function that trains for some steps."""
    model = MLP([784, 1024, 1024, 10])
    groups = flatten(model)
    sync = kind(Mesh(comm, data=comm.size), groups, SGD(groups, lr=0.01), shared_memory=shared)

    def loss(outputs: Tensor, labels: np.ndarray, count: int) -> Tensor:
        return ops.cross_entropy(outputs, labels, count)

    replica = Whole(model, loss, sync)
    rows = BATCH // MPI.COMM_WORLD.Get_size()
    images = np.random.default_rng(0).random((rows, 1, 28, 28), np.float32)
    batch = Batch(images, np.arange(rows) % 10, BATCH)

    def train() -> None:
        for _ in range(STEPS):
            replica.forward_backward(batch)
            sync.step()

    return train


def in_turn(ways: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Run each way once a round; give the median seconds of the slowest rank."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, run in ways.items():
            MPI.COMM_WORLD.Barrier()
            began = time.perf_counter()
            run()
            seconds = MPI.COMM_WORLD.allreduce(time.perf_counter() - began, MPI.MAX)
            if number:  # the first round warms up
                times[name].append(seconds)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def all_reduces(comm: Communicator, nbytes: int) -> tuple[dict[str, Callable[[], None]], int]:
    """Make the ways to reduce a vector of `nbytes` in place, each so many times in a row."""
    times = max(1, min(200, BYTES_IN_A_ROW // nbytes))
    own, of_mpi, shared = (
        np.zeros(nbytes // 4, "f4"),
        np.zeros(nbytes // 4, "f4"),
        comm.allocate_shared(nbytes // 4, "f4"),
    )

    def repeat(one: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(times):
                one()

        return run

    return {
        "MPI.Allreduce": repeat(lambda: MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, of_mpi)),
        "shared memory": repeat(lambda: comm.all_reduce(shared, out=shared)),
        "staged": repeat(lambda: comm.all_reduce(own, out=own, algorithm="staged")),
        "messages": repeat(lambda: comm.iall_reduce(own, out=own).wait()),
    }, times


def main() -> None:
    """Measure, in turn, and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sizes", default=SIZES, help="bytes of the vectors of the second table")
    options = parser.parse_args()
    comm = world()

    ways = {
        "without communication": trainer(comm.alone("alone"), DataParallel, False),
        "shared memory": trainer(comm, DataParallel, True),
        "our ring": trainer(comm, ByRing, False),
        "MPI.Allreduce": trainer(comm, AfterBackward, False),
    }
    seconds = in_turn(ways, options.rounds)
    if comm.rank == 0:
        print(f"MLP 784-1024-1024-10 on {comm.size} ranks, global batch {BATCH}")
        for name, value in seconds.items():
            ratio = seconds["without communication"] / value
            print(
                f"  {name:22} {value / STEPS * 1e3:8.2f} ms a step   {ratio:5.2f} of the speed without communication"
            )
        print(
            f"\nall-reduce of float32, {comm.size} ranks, in microseconds (and how many times as fast as MPI.Allreduce)"
        )
    for nbytes in map(int, options.sizes.split(",")):
        repeated, times = all_reduces(comm, nbytes)
        seconds = in_turn(repeated, options.rounds)
        if comm.rank == 0:
            row = [
                f"{name} {value / times * 1e6:9.1f} ({seconds['MPI.Allreduce'] / value:5.2f})"
                for name, value in seconds.items()
            ]
            print(f"{nbytes:>10}   {'   '.join(row)}", flush=True)


if __name__ == "__main__":
    main()
