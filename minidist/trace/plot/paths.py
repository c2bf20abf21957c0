"""Draw the ways of replicas down a loss of two numbers, while the engine's own sync keeps them in agreement.

    walk(losses, make_sync, steps=20)      one replica per loss, on threads: where each of them was after each step
    paths({"every 8 steps": walks}, losses)        the ways, over the contour lines of the mean of all losses

A loss is (where it is least, how steep it is along both axes): what one replica sees of the data. So replicas are drawn
to different places, and what the mean of all losses makes of it shows how well they agree.

    averaging = lambda mesh, groups, optimizer: ModelAveraging(mesh, groups, optimizer, every=8)

Read next: `minidist/sync/model_averaging.py` and `parameter_server.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from minidist.autograd import Parameter, Tensor
from minidist.comm import Communicator, Mesh
from minidist.comm.threads import run_ranks
from minidist.nn import Module
from minidist.nn.flat import flatten
from minidist.optim import SGD
from minidist.trace.plot import style

Loss = tuple[tuple[float, float], tuple[float, float]]  # (where it is least, how steep)
START = (-2.0, 1.6)
Walks = Sequence[np.ndarray]  # of each replica: (points, 2)

LOSSES: tuple[Loss, ...] = (
    ((1.0, 1.0), (1.0, 4.0)),
    ((1.4, -1.0), (3.0, 1.0)),
)  # of two replicas that disagree


class Point(Module):
    """Two numbers to be trained, and their loss: the sum over both of steepness (w - least)^2 / 2."""

    def __init__(self, start: tuple[float, float]) -> None:
        self.place = Parameter(np.array(start))

    def forward(self, loss: Loss) -> Tensor:
        least, steep = loss
        away = self.place - np.array(least)
        return (away * away * np.array(steep)).sum() * 0.5


def walk(
    losses: Sequence[Loss],
    make_sync: Callable[..., Any],
    steps: int,
    lr: float = 0.1,
    start: tuple[float, float] = START,
) -> list[np.ndarray]:
    """Train two numbers on as many threads as there are losses; give each replica's (steps + 1, 2) places.

    make_sync: gives the sync for (mesh, groups, optimizer), on each rank.
    """

    def one_rank(comm: Communicator) -> np.ndarray:
        mesh = Mesh(comm, data=comm.size)
        descent = Descent(mesh, losses[comm.rank], make_sync, lr, start)
        for _ in range(steps):
            descent.step()
        return np.array(descent.places)

    return run_ranks(one_rank, len(losses))


class Descent:
    """One replica's way down: `places` after each step."""

    def __init__(
        self,
        mesh: Mesh,
        loss: Loss,
        make_sync: Callable[..., Any],
        lr: float,
        start: tuple[float, float] = START,
    ) -> None:
        self.model, self.loss, self.replicas = Point(start), loss, mesh.size("data")
        groups = flatten(self.model)
        self.sync = make_sync(mesh, groups, SGD(groups, lr))
        self.places = [self.model.place.data.copy()]

    def step(self) -> None:
        """Take one step: a replica's share of the loss, divided as the sync says, then whatever the sync does."""
        self.model.place.zero_grad()
        count = self.sync.divisor(1, self.replicas)  # each replica has one example
        (self.model(self.loss) * (1.0 / count)).backward()
        for bucket in self.sync.buckets:
            self.sync.gradient_ready(bucket)
        self.sync.step()
        self.places.append(self.model.place.data.copy())


class Turns:
    """Let replicas that wait for nobody act in a given order, so that a run of them can be repeated.

    for _ in turns.of(rank):       # turns = Turns([0, 0, 0, 1] * 5): rank 0 acts three times as often as rank 1
        descent.step()
    """

    def __init__(self, order: Sequence[int]) -> None:
        self.order = order
        self._next = 0
        self._moved = threading.Condition()

    def of(self, rank: int) -> Iterator[None]:
        """Yield whenever it is this rank's turn."""
        for turn, whose in enumerate(self.order):
            if whose == rank:
                with self._moved:
                    self._moved.wait_for(lambda: self._next == turn)  # noqa: B023
                yield
                with self._moved:
                    self._next += 1
                    self._moved.notify_all()


def paths(runs: Mapping[str, Walks], losses: Sequence[Loss]) -> Any:
    """Draw the walks of several runs beside each other, over the contours of the mean loss; give the figure."""
    columns = min(2, len(runs))
    lines = -(-len(runs) // columns)
    figure = style.figure(3.2 * lines + 0.5)
    every = [place for walks in runs.values() for walk in walks for place in walk]
    every += [np.array(least) for least, _ in losses]
    low, high = np.min(every, 0) - 0.4, np.max(every, 0) + 0.4
    x, y = np.meshgrid(np.linspace(low[0], high[0], 120), np.linspace(low[1], high[1], 120))
    mean = sum(a * (x - p) ** 2 + b * (y - q) ** 2 for (p, q), (a, b) in losses) / (2 * len(losses))
    least, steep = (np.array([loss[part] for loss in losses]) for part in (0, 1))
    best = (least * steep).sum(0) / steep.sum(0)
    handles: dict[str, Any] = {}
    all_axes = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for ax, (name, walks) in zip(all_axes, runs.items(), strict=False):
        ax.contour(x, y, mean, 12, colors="#BDBDBD", linewidths=0.8)
        (handles["least mean loss"],) = ax.plot(*best, "*", color=style.BLACK, markersize=13)
        for rank, way in enumerate(walks):
            colour, dash = style.CYCLE[rank % 8], style.DASHES[rank % 4]
            line = ax.plot(
                *way.T, dash, color=colour, marker=style.MARKERS[rank % 8], markersize=4, linewidth=1.4
            )
            handles[f"replica {rank}"] = line[0]
        style.letter(ax, name)
        ax.set_xlim(low[0], high[0])
        ax.set_ylim(low[1], high[1])
    for ax in all_axes[len(runs) :]:
        ax.set_axis_off()
    labels = sorted(handles)
    figure.legend(
        [handles[label] for label in labels],
        labels,
        loc="outside lower center",
        ncols=4,
        fontsize=style.TEXT,
        frameon=False,
    )
    return figure
