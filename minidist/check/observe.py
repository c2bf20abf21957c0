"""Run a user's step on some ranks, and bring home what each rank did.

    observe(program, 4, batches)    ->    records[step][rank]

The ranks are threads of this process, or MPI processes: the records are the same. Read next: `record.py`.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidist.autograd import Tensor, ops
from minidist.check.prepare import heard_by, prepared
from minidist.check.record import Arrays, Record, Recorder
from minidist.comm import Communicator
from minidist.launch import RankFailed, launch
from minidist.nn import Module

Batch = tuple[np.ndarray, np.ndarray]
Loss = Callable[[Tensor, np.ndarray], Tensor]  # (outputs, labels) -> the mean over the targets


@dataclass(frozen=True)
class Program:
    """What the user gave: build(comm) -> state, and step(comm, state, inputs, labels) -> loss, metrics or nothing."""

    build: Callable[..., Any]
    step: Callable[..., Any]


def observe(
    program: Program,
    ranks: int,
    batches: Sequence[Batch],
    transport: str,
    nudge: bool = False,
    seconds: float = 60.0,
) -> list[list[Record]]:
    """Build and run on so many ranks, one step for each batch; give the records of each step, by rank.

    Raises what the program raises (RankFailed), with the rank.
    """
    own = launch(_one_rank, ranks, program, batches, nudge, transport=transport, timeout=seconds)
    return [list(step) for step in zip(*own, strict=True)]


def _one_rank(comm: Communicator, program: Program, batches: Sequence[Batch], nudge: bool) -> list[Record]:
    with nullcontext() if comm.transport == "threads" else prepared(nudge):
        state = program.build(comm)
        recorder = Recorder(comm.rank, state)
        records = []
        with heard_by(recorder):
            for inputs, labels in batches:
                recorder.begin(inputs)
                before = _messages(comm)
                value = program.step(comm, state, inputs.copy(), labels.copy())
                records.append(recorder.end(_plain(value), _messages(comm) - before))
    return records


def _messages(comm: Communicator) -> int:
    return sum(messages for messages, _ in comm.root.counters.values())


def _plain(value: Any) -> dict[str, float]:
    """Turn what a step returned into named numbers: a loss, or a dict of them; the rest is left out."""
    named_values = value if isinstance(value, dict) else {"the loss": value}
    found = {}
    for name, number in named_values.items():
        number = number.data if isinstance(number, Tensor) else number
        if isinstance(number, int | float | np.number) or (
            isinstance(number, np.ndarray) and number.size == 1
        ):
            found[str(name)] = float(np.asarray(number).reshape(()))
    return found


def mean_cross_entropy(outputs: Tensor, labels: np.ndarray) -> Tensor:
    """Give the mean cross entropy of all targets."""
    return ops.cross_entropy(outputs, labels, labels.size)


def _model(comm: Communicator, program: Program) -> tuple[Recorder, Module] | None:
    """Build on one rank, and give the one model that was found; None if there are several, or none."""
    recorder = Recorder(0, program.build(comm))
    if len(recorder.modules) != 1:
        return None
    root = recorder.modules[0]
    return recorder, getattr(root, "model", root)  # of a stage


def _alone(work: Callable[[Communicator], Any]) -> Any:
    """Try something on one rank that may not be possible with the user's model: then None."""
    try:
        return launch(work, 1, transport="threads")[0]
    except RankFailed:
        return None


def gradients_by_row(program: Program, batch: Batch, loss: Loss) -> list[Arrays] | None:
    """Give the gradient of each example's own loss, with the weights that one process starts from.

    None where that cannot be had: no module that maps inputs to outputs was found, or the loss does not fit it.
    """

    def work(comm: Communicator) -> list[Arrays] | None:
        found = _model(comm, program)
        if found is None:
            return None
        model, (inputs, labels) = found[1], batch
        gradients = []
        for row in range(len(inputs)):
            for _, parameter in model.named_parameters():
                parameter.zero_grad()
            loss(model(inputs[row : row + 1]), labels[row : row + 1]).backward()
            trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
            gradients.append({n: np.zeros(p.shape) if p.grad is None else p.grad.copy() for n, p in trained})
        return gradients

    return _alone(work)


def forward_alone(program: Program, batch: Batch, rows: np.ndarray, layer: str) -> np.ndarray | None:
    """Give what a layer gives when these rows are the whole batch of one process."""

    def work(comm: Communicator) -> np.ndarray | None:
        found = _model(comm, program)
        if found is None:
            return None
        recorder, model = found
        recorder.begin(batch[0])
        model(batch[0][rows])
        return next((call.output for call in recorder.record.calls if call.layer == layer), None)

    return _alone(work)


def values_by_row(program: Program, batch: Batch) -> list[np.ndarray]:
    """Give what is often reported, example by example: the loss, and whether the class is right; (rows,) each."""

    def work(comm: Communicator) -> list[np.ndarray] | None:
        found = _model(comm, program)
        if found is None:
            return None
        outputs, labels = found[1](batch[0]), batch[1]
        rows = range(len(labels))
        losses = [mean_cross_entropy(outputs[row : row + 1], labels[row : row + 1]).item() for row in rows]
        right = outputs.data.argmax(axis=-1) == labels
        return [np.array(losses), right.reshape(len(labels), -1).mean(axis=1)]

    return _alone(work) or []
