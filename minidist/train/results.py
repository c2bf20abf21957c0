"""What a run has to show for itself: accuracy, weights, a sample, and what was sent."""

import argparse
import hashlib
import sys

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
        classes = setup.replica.predict(
            as_model_input(dataset.test_inputs[rows], options.dtype)
        )  # (rows, ...)
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


def counters_of_all(comm: Communicator) -> np.ndarray:
    """Collect what each rank has sent so far: int64 of shape (ranks, purposes, 2), messages and bytes."""
    mine = np.array([comm.counters[purpose] for purpose in PURPOSES], np.int64)
    return comm.all_gather(mine[None], purpose="control")


def peak_memory_of_all(comm: Communicator) -> list[int]:
    """Collect the most memory that each rank's process has had, in bytes: Python and NumPy take some 40 MB of it."""
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit if resource else 0
    return comm.all_gather(np.array([peak]), purpose="control").tolist()


def by_purpose(table: np.ndarray) -> list[dict[str, int]]:
    """Name the columns of a (ranks, purposes) table, and drop those in which all ranks have 0."""
    used = [p for p, column in zip(PURPOSES, table.T, strict=True) if column.any()]
    return [{p: n for p, n in zip(PURPOSES, row, strict=True) if p in used} for row in table.tolist()]
