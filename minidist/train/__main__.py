"""Train a model on one rank, or on all that mpiexec starts: `mpiexec -n 4 python -m minidist.train`.

Read `run` from top to bottom: every rank executes it, and that is the whole of data-parallel training. The two lines
that matter are `replica.forward_backward(batch)` (minidist/split/whole.py) and `sync.step()`
(minidist/sync/data_parallel.py). What can be said on the command line is in options.py, what is shown in
report.py.
"""

import argparse
import hashlib
import math
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from minidist import _kernels as kernels
from minidist import data
from minidist.autograd import no_grad
from minidist.comm import PURPOSES, Communicator, Mesh, world
from minidist.data import Dataset, loader
from minidist.errors import UserError
from minidist.machine import core_count
from minidist.models import CNN, GPT, MLP
from minidist.nn import Group, Module, flatten
from minidist.optim import SGD, AdamW, Optimizer
from minidist.split.replica import Batch, whole_loss
from minidist.split.whole import Whole
from minidist.sync.data_parallel import DataParallel
from minidist.train.options import parse
from minidist.train.report import Progress, check_writable, closing_table, say, write_json

EVALUATION_BATCH = 256
KERNEL_PATHS = ("avx512", "avx2", "neon", "baseline", "numpy")  # best first; every machine has the last


def run(options: argparse.Namespace, comm: Communicator) -> dict[str, Any]:
    """Train as the options say, and return what `--json` writes. Every rank calls this with the same options."""
    shown = comm.rank == 0 and not options.quiet
    if comm.rank == 0:
        data.prepare(options.data, options.data_dir)  # one rank downloads ...
    comm.barrier(purpose="control")
    dataset = data.load(options.data, options.data_dir)  # ... and all read
    path = agree(comm, options, dataset)

    model = build_model(options, dataset)
    groups = flatten(model)
    optimizer = build_optimizer(options, groups)
    sync = DataParallel(Mesh(comm, data=comm.size), groups, optimizer, options.clip_norm)
    replica = Whole(model, whole_loss, sync, options.accumulate)

    n = len(dataset.train_inputs)
    targets = dataset.train_labels[0].size  # per example: 1, or one for each position of a text
    steps = options.steps or options.epochs * math.ceil(n / options.batch)
    if shown:
        introduce(options, comm, dataset, model, path)
    progress = Progress(comm, steps, shown)
    losses: list[float] = []
    norms: list[float] = []
    examples = 0
    began, waited = time.perf_counter(), comm.progress.seconds
    for epoch, rows, count in plan(options, n, steps, comm):
        inputs = as_model_input(dataset.train_inputs[rows], options.dtype)
        batch = Batch(inputs, dataset.train_labels[rows], count * targets)
        loss = replica.forward_backward(batch)
        total = comm.iall_reduce(np.array(loss), purpose="control")
        norm = sync.step()
        losses.append(float(total.wait()))
        norms.append(norm)
        examples += count
        if not math.isfinite(losses[-1]):
            raise UserError(
                f"the loss became {losses[-1]} in step {len(losses)}: the training diverged; "
                f"try --lr {options.lr / 10:g} or --clip-norm 1"
            )
        progress.step(epoch, len(losses), losses[-1], count)
    seconds, waited = time.perf_counter() - began, comm.progress.seconds - waited

    sent = counters_of_all(comm)  # (ranks, purposes, 2): messages and bytes
    accuracy = evaluate(model, dataset, options, comm)
    return {
        "mode": options.mode,
        "model": options.model,
        "world_size": comm.size,
        "transport": comm.transport,
        "kernels": path,
        "parameters": sum(p.size for p in model.parameters()),
        "steps": len(losses),
        "loss_history": losses,
        "grad_norm_history": norms,
        "accuracy": accuracy,
        "test_targets": dataset.test_labels.size,
        "examples_per_second": examples / seconds,
        "seconds": seconds,
        "communication": waited / seconds,
        "messages_sent": by_purpose(sent[:, :, 0]),
        "bytes_sent": by_purpose(sent[:, :, 1]),
        "shared_memory": sync.shared,
        "parameters_sha256": fingerprint(model),
        "sample": sample(model, options) if comm.rank == 0 and options.sample else None,
    }


def plan(
    options: argparse.Namespace, n: int, steps: int, comm: Communicator
) -> Iterator[tuple[int, np.ndarray, int]]:
    """Yield (epoch, this rank's rows, examples in the global batch) for every step."""
    step = epoch = 0
    while step < steps:
        epoch += 1
        for rows, count in loader.read(n, options.batch, options.seed, epoch, comm.rank, comm.size):
            if step == steps:
                return
            yield epoch, rows, count
            step += 1


def agree(comm: Communicator, options: argparse.Namespace, dataset: Dataset) -> str:
    """Refuse to start with ranks that would train differently; settle on the best kernels that all have.

    Kernels with and without fused multiply-add round differently, so ranks that mix them would drift apart.
    """
    for what, text in (("options", repr(sorted(vars(options).items()))), ("data", dataset.sha256)):
        digest = np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8)
        digests = comm.all_gather(digest[None], purpose="control")  # (ranks, 32)
        differing = [rank for rank in range(comm.size) if (digests[rank] != digests[0]).any()]
        if differing:
            raise UserError(
                f"the {what} of rank {differing[0]} differ from those of rank 0; "
                "give every rank the same command and the same files"
            )
    # The best path that every rank has and that is no better than any rank was told to use.
    own = KERNEL_PATHS.index(kernels.path)
    allowed = [place >= own and path in kernels.available for place, path in enumerate(KERNEL_PATHS)]
    common = comm.all_reduce(np.array(allowed, np.int64), op="min", purpose="control")
    path = KERNEL_PATHS[int(np.argmax(common))]
    if path != kernels.path:
        kernels.use(path)
    return path


def build_model(options: argparse.Namespace, dataset: Dataset) -> Module:
    """Build the model that fits the data, with weights that depend on the seed alone."""
    how: dict[str, Any] = {"seed": options.seed, "dtype": np.dtype(options.dtype)}
    if options.model == "gpt":
        return GPT(dataset.classes, time=dataset.input_shape[0], **how)
    depth, height, width = dataset.input_shape
    if options.model == "cnn":
        return CNN((depth, height, width), dataset.classes, **how)
    return MLP([depth * height * width, 256, 128, dataset.classes], **how)


def build_optimizer(options: argparse.Namespace, groups: Sequence[Group]) -> Optimizer:
    """Make the update rule that the options name."""
    if options.optimizer == "sgd":
        return SGD(groups, options.lr, options.momentum, options.weight_decay)
    return AdamW(groups, options.lr, weight_decay=options.weight_decay)


def as_model_input(inputs: np.ndarray, dtype: str) -> np.ndarray:
    """Give images the model's dtype; tokens stay integers."""
    return inputs if inputs.dtype.kind == "i" else inputs.astype(dtype, copy=False)


def evaluate(model: Module, dataset: Dataset, options: argparse.Namespace, comm: Communicator) -> float:
    """Return the share of test targets that the model gets right; each rank looks at its share of the examples."""
    model.eval()
    mine = loader.share(np.arange(len(dataset.test_inputs)), comm.rank, comm.size)
    correct = 0
    with no_grad():
        for start in range(0, len(mine), EVALUATION_BATCH):
            rows = mine[start : start + EVALUATION_BATCH]
            outputs = model(as_model_input(dataset.test_inputs[rows], options.dtype))  # (rows, ..., classes)
            correct += int((kernels.argmax(outputs.data, axis=-1) == dataset.test_labels[rows]).sum())
    model.train()
    total = comm.all_reduce(np.array(correct), purpose="control")
    return int(total) / dataset.test_labels.size


def sample(model: Module, options: argparse.Namespace) -> str:
    """Let the model write, beginning on a new line."""
    assert isinstance(model, GPT)
    prompt = data.text.encode("\n")
    return data.text.decode(model.sample(prompt, options.sample, options.seed))


def counters_of_all(comm: Communicator) -> np.ndarray:
    """Collect what each rank has sent so far: int64 of shape (ranks, purposes, 2), messages and bytes."""
    mine = np.array([comm.counters[purpose] for purpose in PURPOSES], np.int64)
    return comm.all_gather(mine[None], purpose="control")


def by_purpose(table: np.ndarray) -> list[dict[str, int]]:
    """Name the columns of a (ranks, purposes) table, and drop those in which all ranks have 0."""
    used = [p for p, column in zip(PURPOSES, table.T, strict=True) if column.any()]
    return [{p: n for p, n in zip(PURPOSES, row, strict=True) if p in used} for row in table.tolist()]


def fingerprint(model: Module) -> str:
    """Hash all parameters in the order of their names, so that two runs can be compared bit by bit."""
    digest = hashlib.sha256()
    for _, parameter in model.named_parameters():
        digest.update(parameter.data.tobytes())
    return digest.hexdigest()


def introduce(
    options: argparse.Namespace, comm: Communicator, dataset: Dataset, model: Module, path: str
) -> None:
    """Say what is about to be trained, on what, by whom."""
    cores = core_count()
    ranks = f"{comm.size} ranks over {comm.transport.upper()}" if comm.size > 1 else "one rank"
    if comm.size == 1 and comm.transport != "mpi":
        ranks += " (started without mpiexec)"
    say(f"{ranks}, {cores} core{'s' if cores > 1 else ''}, data parallel, {path} kernels")
    if why := kernels.why_numpy():
        say(why)
    parameters = sum(p.size for p in model.parameters())
    say(f"model  {options.model}, {parameters:,} parameters, {options.dtype}")
    say(f"data   {dataset.source}")
    n, n_test = len(dataset.train_inputs), len(dataset.test_inputs)
    version = f"; sha256 {dataset.sha256}" if dataset.is_text else ""  # every Python has prose of its own
    say(f"       {n:,} examples to train on, {n_test:,} to test{version}")
    pieces = f" in {options.accumulate} pieces" if options.accumulate > 1 else ""
    say(f"step   {options.batch} examples{pieces}, {options.optimizer}, learning rate {options.lr:g}")
    if options.batch < comm.size:
        idle = comm.size - options.batch
        say(f"note   a batch of {options.batch} leaves {idle} of {comm.size} ranks without work")


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, build, run, report; return the exit code."""
    comm = None
    try:
        comm = world()
        options = parse(sys.argv[1:] if arguments is None else arguments)
        if options.help is not None:
            if comm.rank == 0:
                say(options.help)
            return 0
        if options.json and comm.rank == 0:
            check_writable(options.json)
        result = run(options, comm)
        if comm.rank == 0 and not options.quiet:
            say(closing_table(result, "characters" if options.data == "text" else "images"))
            if result["sample"] is not None:
                say(f"\nthe model writes:\n{result['sample']}")
        if comm.rank == 0 and options.json:
            write_json(options.json, result)
    except UserError as error:
        if comm is not None and comm.size > 1:
            raise  # comm/leaving.py prints it, once for all ranks, and ends them
        print(f"minidist.train: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
