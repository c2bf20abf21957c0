"""Train with the engine's data parallelism: buckets leave during backward, in shared memory."""

# prints: "trained"
import numpy as np

from minidist.comm import Mesh, world
from minidist.models import MLP
from minidist.nn import flatten
from minidist.optim import SGD
from minidist.split.replica import Batch, whole_loss
from minidist.split.whole import Whole
from minidist.sync.data_parallel import DataParallel

comm = world()
x, labels = np.random.default_rng(0).normal(size=(24, 8)), np.arange(24) % 3
model = MLP([8, 6, 3], dtype=np.float64)
groups = flatten(model)
sync = DataParallel(Mesh(comm, data=comm.size), groups, SGD(groups, lr=0.1), bytes_per_bucket=200)
replica, losses = Whole(model, whole_loss, sync), []
for _ in range(8):
    loss = replica.forward_backward(Batch(x[comm.rank :: comm.size], labels[comm.rank :: comm.size], 24))
    losses.append(float(comm.all_reduce(np.array(loss))))
    sync.step()
assert losses[-1] < losses[0]
if comm.rank == 0:
    print("trained")
