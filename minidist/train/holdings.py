"""What this rank will hold in memory, from the first step to the last or for a while in each.

The sizes are those of what was built, the rules stand in `minidist/plan/memory.py`; a test counts the bytes of what is
alive after some steps, and they are equal.
"""

import argparse
from typing import Any

import numpy as np

from minidist.data import Dataset
from minidist.optim import Optimizer
from minidist.plan import memory, splits
from minidist.plan.memory import Held
from minidist.split import schedules
from minidist.split.pipedream import PipeDream
from minidist.split.pipeline_parallel import PipelineParallel
from minidist.split.schedule_times import peak_live
from minidist.sync.model_averaging import ModelAveraging
from minidist.sync.parameter_server import ParameterServer
from minidist.sync.server import Server
from minidist.sync.zero import Zero
from minidist.train.forecast_step import batch_sizes, most_microbatches, shared_buckets
from minidist.train.setup import Setup, as_model_input


def kept(options: argparse.Namespace, dataset: Dataset, setup: Setup) -> list[Held]:
    """List what a worker will hold."""
    sync, replica, groups = setup.sync, setup.replica, setup.groups
    if isinstance(sync, Zero):
        found = memory.shards(groups, shared_buckets(sync), sync.stage, len(sync.optimizer.slots))
    else:
        optimizer: Optimizer = sync.optimizer
        found = memory.vectors(groups, 0 if isinstance(sync, ParameterServer) else len(optimizer.slots))
    sizes = batch_sizes(options, dataset)
    if isinstance(sync, ModelAveraging) and sync.outer is not None and len(sizes) > options.warm_up:
        found += memory.outer(groups)
    if isinstance(replica, PipelineParallel):
        schedule: Any = schedules.pipedream if isinstance(replica, PipeDream) else replica.schedule
        # A short batch at the end of an epoch is fewer microbatches, of which more chunks may be alive.
        rounds = [part for count in set(sizes) for part in most_microbatches(options, setup, count)]
        peaks = [(peak_live(replica.program(schedule, len(part))), max(part)) for part in rounds]
        alive, largest = max(peaks, key=lambda peak: peak[0] * peak[1])
        inputs = [entering(options, dataset, setup, run.start) for run in replica.stage.runs]
        found += memory.stage_inputs(alive, largest * max(inputs[replica.rank :: replica.stages]))
        if isinstance(replica, PipeDream):
            found += memory.stashed(groups, alive)
    return found


def entering(options: argparse.Namespace, dataset: Dataset, setup: Setup, piece: int) -> int:
    """Count the bytes of one example that enter a piece of the model here."""
    if piece == 0:
        return as_model_input(dataset.train_inputs[:1], options.dtype).nbytes
    return splits.numbers_after(setup.model, piece - 1) * np.dtype(options.dtype).itemsize


def kept_by_server(server: Server) -> list[Held]:
    """List what a server will hold."""
    shards = [shard.weights.nbytes for stock in server.stocks.values() for shard in stock.shards]
    received = [part.nbytes for parts in server.received for part in parts]
    slots = {len(stock.optimizer.slots) for stock in server.stocks.values()}
    return memory.server(shards, received, max(slots))
