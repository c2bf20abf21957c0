"""What any rank of a job would have, without starting it: its mesh, its part of the model, its buckets and shards.

    whole = imagine(options, ranks=1024, nodes=cluster.places(1024))
    whole.worker(700)       ->  the Setup that rank 700 would train with; its weights have no numbers

It is the very code of a training (`minidist/train/setup.py`) on an imagined communicator, so what it sends and holds is
what `--explain` says. Read next: `program.py`.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from minidist import data
from minidist.comm.imagined import imagined
from minidist.data import Dataset
from minidist.sync.link import Link
from minidist.train import mode_options
from minidist.train.arrangement import Arrangement, arrange
from minidist.train.setup import Setup, check_fits, set_up


@dataclass(frozen=True)
class Imagination:
    """A job that nobody has started. nodes: which machine each rank is on."""

    options: argparse.Namespace
    arrangement: Arrangement
    dataset: Dataset  # its inputs are one example, over and over
    ranks: int
    nodes: Sequence[int]
    shares: bool  # whether ranks of one machine share memory

    def worker(self, rank: int) -> Setup:
        """Build what a worker has."""
        comm = imagined(rank, self.ranks, self.nodes, self.shares)
        link = Link(comm, self.arrangement.workers) if self.arrangement.servers else None
        workers = link.peers if link else comm
        return set_up(self.options, self.dataset, workers, self.arrangement, link, draw=False)


def imagine(
    options: argparse.Namespace, ranks: int, nodes: Sequence[int], shares: bool = True
) -> Imagination:
    """Settle the options for so many ranks. Raises UserError where they do not fit."""
    arrangement = arrange(options, ranks)
    mode_options.settle(options, arrangement)
    check_fits(options, arrangement)
    found = data.load(options.data, options.data_dir)
    inputs, labels = (
        np.broadcast_to(one[:1], (options.batch, *one.shape[1:]))
        for one in (found.train_inputs, found.train_labels)
    )
    options.steps = 1
    dataset = replace(found, train_inputs=inputs, train_labels=labels)
    return Imagination(options, arrangement, dataset, ranks, nodes, shares)
