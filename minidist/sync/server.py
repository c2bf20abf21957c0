"""The server's side of the parameter server: weights that live apart from those who compute gradients.

    worker 0   gradient of its batch  --- push --->   server 0   part 0 of every bucket, and its optimizer state
    worker 1   gradient of its batch  --- push --->   server 1   part 1 of every bucket, and its optimizer state
    worker 2   ...                    <--- pull ---

A server listens to one note after another, from whoever sends next, and never waits for a particular worker:

    slack 0       an update when all workers have pushed: the sum of their gradients in rank order, clipped by the norm
                  of the whole sum, of which each server knows its part. Equal to data parallel.
    slack s       an update for each push, at once, by the worker's share of the global batch; a pull waits until the
                  weights are new enough (`staleness.py`)
    slack None    the same, and no pull waits

Every update and every answer is made by this one loop, and an answer is a copy: so weights are never half old, half new
within one server. Pushes are numbered, and one that comes twice is applied once.

Where a replica is spread over several ranks, each of them has shards of its own here, except for what others of its
replica hold too: that belongs to the first of them alone, so every parameter is here, and in the norm, once.

Memory of one of S servers, for p workers and n bytes of weights: n/S weights, as much for each slot of optimizer
state, p n/S gradients that have come, and answers on their way. Bytes per step: p n/S received, p n/S sent.

Li et al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014, section 3.

    mpiexec -n 4 python -m minidist.train --mode parameter-server --servers 1

Read next: `parameter_server.py`, the workers' side.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidist import _kernels as kernels
from minidist.checkpoint import Found, Piece, State
from minidist.comm import ANY_SOURCE, Request
from minidist.errors import UserError
from minidist.optim import Optimizer
from minidist.sync.clipping import clip_scale
from minidist.sync.link import DATA, LEAVE, NOTE, PART, PULL, PUSH, REPLY, SAVE, Link, blank_note
from minidist.sync.saved import pieces_at, slots_of
from minidist.sync.staleness import Clock, Event


@dataclass
class Shard:
    """This server's part of one bucket: what an optimizer updates."""

    weights: np.ndarray
    gradients: np.ndarray | None
    trainable: bool = True

    def updated(self) -> None:
        """Nobody here computes with the weights."""


@dataclass
class Stock:
    """All shards of those workers who hold the same part of the model, one in each replica."""

    shards: list[Shard]
    optimizer: Optimizer
    held: list[Any]  # for each shard, what of the model it is (`saved.places`)
    answer: list[np.ndarray] | None = None  # the weights as they are now, copied when somebody asks


def serve(link: Link, optimizer: Optimizer, history: list[Event] | None = None) -> None:
    """Serve until all workers have left. `optimizer` says the rule; its learning rate comes with every push.

    history: what happens is appended to it, if given.
    """
    Server(link, optimizer, history).run()


class Server:
    """One server: what it has, what it has heard, and what it does about a note."""

    clock_rule = Clock

    def __init__(self, link: Link, optimizer: Optimizer, history: list[Event] | None = None) -> None:
        if not link.serves:
            raise ValueError(
                f"rank {link.comm.rank} is a worker and cannot serve: call serve() on the servers"
            )
        self.link, self.comm, self.history = link, link.comm, history
        self.stocks: dict[int, Stock] = {}  # by place in the replica
        self.stock_of: list[Stock] = []  # by worker
        self.received: list[list[np.ndarray]] = []  # by worker: the parts of the gradient it is pushing
        # Of each worker's last push: lr, its factor, the gradient's.
        self.scales = np.zeros((link.workers, 3))
        self.asking: list[int] = []  # workers whose pull has to wait
        self.sending: list[Request] = []
        self.saving = 0  # workers that have asked for a checkpoint
        self.save: Callable[[int], Any] = lambda step: None  # saves it, together with all ranks
        self.updates = 0
        self.norm = math.nan  # of the last sum of all workers' gradients
        self._welcome(optimizer)

    def _welcome(self, optimizer: Optimizer) -> None:
        """Hear from every worker what it will push, and from the first replica the weights to begin with."""
        told = []
        for worker in range(self.link.workers):
            length = np.empty(1, np.int64)
            self.comm.recv(length, worker, NOTE, purpose="control")
            text = np.empty(int(length[0]), np.uint8)
            self.comm.recv(text, worker, NOTE, purpose="control")
            told.append(json.loads(text.tobytes()))
            place, sizes = told[-1]["place"], told[-1]["sizes"]
            self.received.append([np.empty(size, dtype) for size, dtype in sizes])
            if told[-1]["first"]:
                shards = [Shard(np.empty_like(part), part) for part in self.received[-1]]
                for shard in shards:
                    self.comm.recv(shard.weights, worker, DATA, purpose="weights")
                self.stocks[place] = Stock(shards, optimizer.over(shards), told[-1]["whose"])
        first = {what["place"]: worker for worker, what in enumerate(told) if what["first"]}
        for worker, what in enumerate(told):
            model = told[first[what["place"]]]
            differing = [key for key in ("sizes", "slack", "clip_norm") if what[key] != model[key]]
            if differing:
                raise UserError(
                    f"worker {worker} has {differing[0]} {what[differing[0]]}, and worker {first[what['place']]} "
                    f"{model[differing[0]]}: give all workers the same model and options"
                )
        self.stock_of = [self.stocks[what["place"]] for what in told]
        self.clip_norm: float | None = told[0]["clip_norm"]
        self.clock = self.clock_rule(self.link.workers, told[0]["slack"])

    def run(self) -> None:
        """Listen until all workers have left and have their final weights."""
        finished = 0
        while finished < self.link.workers:
            note = blank_note()
            worker = self.comm.recv(note, ANY_SOURCE, NOTE, purpose="control")
            kind, number = int(note[0]), int(note[1])
            if kind == PART:
                self._take(worker, number, int(note[2]))
            elif kind == PUSH:
                self._push(worker, number, note[2:])
            elif kind == PULL:
                self.asking.append(worker)
            elif kind == LEAVE:
                self.clock.leave(worker, number)
                self._record("leave", worker, number)
            elif kind == SAVE:
                self.saving += 1
                if self.saving == len(self.clock.active):  # so nothing is on its way here
                    self.saving = 0
                    self.save(int(note[2]))
            if self.clock.slack == 0 and self.clock.version > self.updates:
                self._update_by_all()
            for asker in [asker for asker in self.asking if self.clock.may_pull(asker)]:
                self.asking.remove(asker)
                self._answer(asker)
                finished += asker not in self.clock.active
        for request in self.sending:
            request.wait()

    def _take(self, worker: int, number: int, part: int) -> None:
        """Receive one part of a gradient; what belongs to a push that was applied before is thrown away."""
        room = self.received[worker][part]
        if number <= self.clock.pushes[worker]:
            room = np.empty_like(room)
        self.comm.recv(room, worker, DATA, purpose="gradient")

    def _push(self, worker: int, number: int, scales: np.ndarray) -> None:
        """Hear that all parts of a gradient have come: an update, unless all workers have to push first."""
        fresh = self.clock.push(worker, number)
        self._record("push" if fresh else "duplicate", worker, number)
        if fresh:
            self.scales[worker] = scales
            if self.clock.slack != 0:
                self._update_by_one(worker)

    def _update_by_one(self, worker: int) -> None:
        """Apply one worker's gradient; the update counts as much as its examples do in the global batch."""
        lr, share, scale = self.scales[worker].tolist()
        if share:  # else it had no examples
            stock = self.stock_of[worker]
            for shard, part in zip(stock.shards, self.received[worker], strict=True):
                shard.gradients = part
            self._apply(stock, lr * share, scale)

    def _update_by_all(self) -> None:
        """Apply the sum of all gradients of one clock, in rank order."""
        self.updates = self.clock.version
        pushed = [worker for worker, count in enumerate(self.clock.pushes) if count == self.updates]
        squares = 0.0
        for stock in self.stocks.values():
            parts = [self.received[worker] for worker in pushed if self.stock_of[worker] is stock]
            for shard, *gradients in zip(stock.shards, *parts, strict=True):
                total = shard.gradients = gradients[0]
                for gradient in gradients[1:]:
                    total += gradient
                squares += kernels.sum_of_squares(total)
        self.norm = math.sqrt(self.link.peers.all_reduce(np.array(squares), purpose="control"))
        for stock in self.stocks.values():
            self._apply(stock, float(self.scales[pushed[0], 0]), clip_scale(self.norm, self.clip_norm))

    def _apply(self, stock: Stock, lr: float, scale: float) -> None:
        stock.optimizer.lr = lr
        stock.optimizer.step(scale)
        stock.answer = None

    def _answer(self, worker: int) -> None:
        """Send a worker its weights, and which version they are. It may take them later than the next update."""
        stock = self.stock_of[worker]
        if stock.answer is None:
            stock.answer = [shard.weights.copy() for shard in stock.shards]
        facts = np.array([self.clock.version, self.norm])
        self.sending = [request for request in self.sending if not request.done]
        self.sending.append(self.comm.isend(facts, worker, REPLY, purpose="control"))
        for weights in stock.answer:
            self.sending.append(self.comm.isend(weights, worker, DATA, purpose="weights"))
        self._record("pull", worker, self.clock.pushes[worker])

    def snapshot(self) -> State:
        """Say what is here to be saved or filled: of each worker's place, weights and optimizer state."""
        pieces: list[Piece] = []
        for stock in self.stocks.values():
            for number, (shard, held) in enumerate(zip(stock.shards, stock.held, strict=True)):
                pieces += pieces_at(held, {"weights": shard.weights, **slots_of(stock.optimizer, number)})
        steps = max(stock.optimizer.steps for stock in self.stocks.values())
        return State(pieces, {"optimizer steps": steps, "clock": max(self.clock.pushes)})

    def restore(self, found: Found) -> None:
        """Go on from a checkpoint, as the workers do at the same time."""
        found.load(self.snapshot())
        clock = int(found.numbers[0].get("clock", 0))
        self.clock.pushes = [clock] * self.link.workers
        self.clock.version = self.updates = clock
        for stock in self.stocks.values():
            stock.optimizer.steps = int(found.numbers[0]["optimizer steps"])
            stock.answer = None

    def _record(self, kind: str, worker: int, clock: int) -> None:
        if self.history is not None:
            self.history.append(Event(kind, worker, clock, self.clock.version))
