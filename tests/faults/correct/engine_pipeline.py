"""Train with the engine's pipeline of two stages, data-parallel beside it."""

# prints: "trained"
import numpy as np

from minidist.comm import Mesh, world
from minidist.models import MLP
from minidist.nn import flatten
from minidist.optim import SGD
from minidist.split.pipeline_parallel import PipelineParallel, cut
from minidist.split.replica import Batch, whole_loss
from minidist.sync.data_parallel import DataParallel

comm = world()
mesh = Mesh(comm, data=comm.size // 2, pipe=2)
stage = cut(MLP([8, 6, 5, 3], None), mesh)
stage.initialize(0, np.dtype(np.float64))
groups = flatten(stage)
sync = DataParallel(mesh, groups, SGD(groups, lr=0.1))
replica = PipelineParallel(stage, whole_loss, sync, mesh, microbatches=3)
x, labels = np.random.default_rng(0).normal(size=(24, 8)), np.arange(24) % 3
place, replicas = mesh.coordinates["data"], mesh.size("data")
for _ in range(5):
    replica.forward_backward(Batch(x[place::replicas], labels[place::replicas], 24))
    sync.step()
if comm.rank == 0:
    print("trained")
