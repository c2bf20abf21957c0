"""What is said before the first step."""

import argparse

import numpy as np

from minidist import _kernels as kernels
from minidist.comm import Communicator
from minidist.data import Dataset
from minidist.machine import core_count
from minidist.nn import Module
from minidist.train.arrangement import Arrangement
from minidist.train.report import say


def introduce(
    options: argparse.Namespace,
    comm: Communicator,
    arrangement: Arrangement,
    dataset: Dataset,
    model: Module,
    path: str,
) -> None:
    """Say what is about to be trained, on what, by whom."""
    cores = core_count()
    ranks = f"{comm.size} ranks over {comm.transport.upper()}" if comm.size > 1 else "one rank"
    if comm.size == 1 and comm.transport != "mpi":
        ranks += " (started without mpiexec)"
    say(f"{ranks}, {cores} core{'s' if cores > 1 else ''}, {arrangement.describe()}, {path} kernels")
    if why := kernels.why_numpy():
        say(why)
    # As one process has them, whatever is here.
    shapes = [p.placement.shape if p.placement else p.shape for p in model.parameters()]
    parameters = sum(int(np.prod(shape)) for shape in shapes)
    sizes = (
        " " + "-".join(str(shape[0]) for shape in shapes[::2] + shapes[-1:]) if options.model == "mlp" else ""
    )
    say(f"model  {options.model}{sizes}, {parameters:,} parameters, {options.dtype}")
    say(f"data   {dataset.source}")
    n, n_test = len(dataset.train_inputs), len(dataset.test_inputs)
    version = f"; sha256 {dataset.sha256}" if dataset.is_text else ""  # every Python has prose of its own
    say(f"       {n:,} examples to train on, {n_test:,} to test{version}")
    pieces = f" in {options.accumulate} pieces" if options.accumulate > 1 else ""
    say(f"step   {options.batch} examples{pieces}, {options.optimizer}, learning rate {options.lr:g}")
    replicas = arrangement.axes["data"]
    if options.batch < replicas:
        idle = replicas - options.batch
        say(f"note   a batch of {options.batch} leaves {idle} of {replicas} replicas without work")
