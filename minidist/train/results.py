"""What a run has to show for itself: accuracy, weights, a sample, and what was sent."""

import argparse
import hashlib
import sys
from typing import Any

import numpy as np

from minidist import data
from minidist.comm import PURPOSES, Communicator
from minidist.data import Dataset, loader
from minidist.models import GPT
from minidist.nn import Module
from minidist.train.setup import Setup, as_model_input, declare_model

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

EVALUATION_BATCH = 256


def evaluate(setup: Setup, dataset: Dataset, options: argparse.Namespace) -> float:
    """Return the share of test targets that the model gets right; each replica looks at its share of the examples."""
    mesh = setup.mesh
    mine = loader.share(np.arange(len(dataset.test_inputs)), mesh.coordinates["data"], mesh.size("data"))
    first = mesh.coordinates.get("tensor", 0) == 0  # of the ranks that know the same answers, one counts them
    setup.model.eval()
    correct = 0
    for start in range(0, len(mine), EVALUATION_BATCH):
        rows = mine[start : start + EVALUATION_BATCH]
        inputs = as_model_input(dataset.test_inputs[rows], options.dtype)
        classes = setup.replica.predict(inputs)  # (rows, ...)
        if classes is not None and first:
            correct += int((classes == dataset.test_labels[rows]).sum())
    setup.model.train()
    total = mesh.everyone.all_reduce(np.array(correct), purpose="control")
    return int(total) / dataset.test_labels.size


def fingerprint(weights: dict[str, np.ndarray], model: Module) -> str:
    """Hash all parameters in the model's order, so that two runs can be compared bit by bit."""
    digest = hashlib.sha256()
    for name, _ in model.named_parameters():
        digest.update(weights[name].tobytes())
    return digest.hexdigest()


def sample(weights: dict[str, np.ndarray], dataset: Dataset, options: argparse.Namespace) -> str:
    """Let the model write on one rank, beginning on a new line."""
    model = declare_model(options, dataset, options.seed)
    assert isinstance(model, GPT)
    for name, parameter in model.named_parameters():
        parameter.data = weights[name]
    prompt = data.text.encode("\n")
    return data.text.decode(model.sample(prompt, options.sample, options.seed))


def sent_so_far(comm: Communicator) -> np.ndarray:
    """Read this rank's counters of all its communicators: int64 of shape (purposes, 2), messages and bytes."""
    counters = comm.root.counters
    return np.array([counters[purpose] for purpose in PURPOSES], np.int64)


def costs_of_all(comm: Communicator, in_steps: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
    """Collect what each rank has sent, in all and in its steps, and what was predicted for these; and its memory."""
    tables = np.stack([sent_so_far(comm), in_steps, predicted])
    sent, in_steps, predicted = comm.all_gather(tables[None], purpose="control").swapaxes(0, 1)
    return {
        "messages_sent": by_purpose(sent[:, :, 0]),
        "bytes_sent": by_purpose(sent[:, :, 1]),
        "sent_in_steps": _both(in_steps),
        "predicted": _both(predicted),
        "peak_memory": peak_memory_of_all(comm),
    }


def _both(table: np.ndarray) -> dict[str, list[dict[str, int]]]:
    return {"messages": by_purpose(table[:, :, 0]), "bytes": by_purpose(table[:, :, 1])}


def peak_memory_of_all(comm: Communicator) -> list[int]:
    """Collect the most memory that each rank's process has had, in bytes: Python and NumPy take some 40 MB of it."""
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit if resource else 0
    return comm.all_gather(np.array([peak]), purpose="control").tolist()


def by_purpose(table: np.ndarray) -> list[dict[str, int]]:
    """Name the columns of a (ranks, purposes) table, and drop those in which all ranks have 0."""
    used = [p for p, column in zip(PURPOSES, table.T, strict=True) if column.any()]
    return [{p: n for p, n in zip(PURPOSES, row, strict=True) if p in used} for row in table.tolist()]
