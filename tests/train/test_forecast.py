"""What a run sends and holds is what was predicted for it: exactly, on every rank, in every mode."""

from __future__ import annotations

import os
import random
from functools import cache
from typing import Any

import numpy as np
import pytest

from minidist.comm import Communicator
from minidist.comm.threads import run_ranks
from minidist.data import Dataset
from minidist.random import uniform
from minidist.split.pipeline_parallel import PipelineParallel
from minidist.sync.data_parallel import DataParallel
from minidist.sync.parameter_server import Link, ParameterServer
from minidist.sync.server import Server
from minidist.sync.zero import Zero
from minidist.train import mode_options
from minidist.train.arrangement import arrange
from minidist.train.forecast import forecast, forecast_server, total
from minidist.train.holdings import kept, kept_by_server
from minidist.train.keeping import Keeping
from minidist.train.loop import train
from minidist.train.options import parse
from minidist.train.results import sent_so_far
from minidist.train.setup import Setup, build_optimizer, set_up

EXAMPLES = 11  # prime, so nothing divides evenly
CLASSES = 7


@cache
def dataset(text: bool) -> Dataset:
    if text:
        tokens = (uniform(2, "tokens", 0, 0, EXAMPLES * 5) * CLASSES).astype(np.int64).reshape(EXAMPLES, 5)
        inputs, labels = tokens[:, :-1], tokens[:, 1:]
    else:
        inputs = uniform(1, "images", 0, 0, EXAMPLES * 16).reshape(EXAMPLES, 1, 4, 4).astype(np.float32)
        labels = (np.arange(EXAMPLES) * 3) % CLASSES
    return Dataset("tiny", inputs, labels, inputs, labels, CLASSES, "made up", "")


MODELS = {
    "mlp": "--hidden 9,8,6,5,5",
    "cnn": "--model cnn",
    "gpt": "--model gpt --layers 3 --width 12 --heads 3",
}


def run(comm: Communicator, words: str) -> dict[str, Any]:
    """Train as the command does with these options; give what was sent, held and predicted."""
    options = parse(words.split())
    arrangement = arrange(options, comm.size)
    mode_options.settle(options, arrangement)
    data = dataset(options.data == "text")
    link = Link(comm, arrangement.workers) if arrangement.servers else None
    if link and link.serves:
        server = Server(link, build_optimizer(options, []))
        before = sent_so_far(comm)
        server.run()
        sent = sent_so_far(comm) - before
        return {
            "sent": sent,
            "predicted": total(forecast_server(options, data, server)),
            "held": held_by_server(server),
            "kept": {held.what: held.nbytes for held in kept_by_server(server) if held.always},
            "learns": True,
            "alive": 0,
            "passing": {},
        }
    setup = set_up(options, data, link.peers if link else comm, arrangement, link)
    predicted = total(forecast(options, data, setup))
    memory = kept(options, data, setup)
    held: dict[str, int] = {}
    alive = [0]

    if isinstance(setup.replica, PipelineParallel):

        class Counting(type(setup.replica)):  # type: ignore[misc]
            def forward(self, m: int, chunk: int) -> None:
                super().forward(m, chunk)
                alive.append(sum(getattr(x, "data", x).nbytes for x, _ in self._live.values()))

        setup.replica.__class__ = Counting

    class Watching(type(setup.sync)):  # type: ignore[misc]
        def finish(self) -> None:
            held.update(held_by(setup))
            super().finish()

    setup.sync.__class__ = Watching
    learns = setup.sync.lockstep or options.batch > setup.mesh.coordinates["data"]
    history, _, _ = train(options, data, setup, Keeping(options, arrangement, data, comm, ""))
    return {
        "sent": history.sent,
        "predicted": predicted,
        "held": held,
        "kept": {what.what: what.nbytes for what in memory if what.always},
        "learns": learns,
        "alive": max(alive),
        "passing": {what.what.partition(",")[0]: what.nbytes for what in memory if not what.always},
    }


def of_owner(array: np.ndarray | None) -> int:
    """The bytes behind an array: none if it stands in for what is elsewhere."""
    return 0 if array is None or (array.size > 1 and not any(array.strides)) else array.nbytes


def held_by(setup: Setup) -> dict[str, int]:
    """Count the bytes of what is alive between two steps."""
    sync, groups = setup.sync, setup.groups
    shards = sync.shards if isinstance(sync, Zero) and sync.stage == 3 else []
    found = {
        "weights": sum(of_owner(g.weights) for g in groups) + sum(s.weights.nbytes for s in shards),
        "gradients": sum(of_owner(g.gradients) for g in groups),
        "optimizer state": sum(v.nbytes for vs in (sync.optimizer._state or {}).values() for v in vs),
    }
    outer = getattr(sync, "outer", None)
    if outer is not None:
        found["outer step: start and velocity"] = sum(a.nbytes for a in outer._starts + outer._velocities)
    return {what: nbytes for what, nbytes in found.items() if nbytes}


def held_by_server(server: Server) -> dict[str, int]:
    stocks = server.stocks.values()
    found = {
        "weights": sum(shard.weights.nbytes for stock in stocks for shard in stock.shards),
        "gradients that come": sum(part.nbytes for parts in server.received for part in parts),
        "optimizer state": sum(v.nbytes for s in stocks for vs in s.optimizer.state.values() for v in vs),
    }
    return {what: nbytes for what, nbytes in found.items() if nbytes}


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let even these models be several buckets."""
    for sync in (DataParallel, ParameterServer, Zero):
        small = tuple(300 if value == 1 << 20 else value for value in sync.__init__.__defaults__)
        assert 300 in small
        monkeypatch.setattr(sync.__init__, "__defaults__", small)


MESHES = [
    *("data=1", "data=2", "data=3", "data=4", "pipe=1", "pipe=2", "pipe=3", "tensor=2", "tensor=3"),
    *("data=2,pipe=2", "data=2,tensor=2", "pipe=2,tensor=2", "data=3,pipe=2", "data=2,pipe=3"),
    *("data=1,pipe=2", "data=2,pipe=1,tensor=2", "data=2,pipe=2,tensor=2"),
]


def draw(chance: random.Random) -> tuple[int, str, int]:
    """Draw any arrangement of any training: ranks, options, and on how many machines the ranks believe they are."""
    mesh = chance.choice(MESHES)
    axes = {axis: int(size) for axis, size in (part.split("=") for part in mesh.split(","))}
    ranks = int(np.prod(list(axes.values())))
    sync = chance.choice(["data", "data", "averaging", "parameter-server"])
    words = ["--mesh", mesh, "--sync", sync, "--batch", chance.choice("12456")]
    words += ["--optimizer", *chance.choice([["sgd"], ["sgd", "--momentum", "0"], ["adamw"]])]
    words += ["--dtype", chance.choice(["float32", "float64"])]
    words += chance.choice([["--epochs", "1"], ["--steps", "5"]])
    model = chance.choice(["mlp", "gpt"] if "tensor" in axes else ["mlp", "gpt", "cnn"])
    schedule = "1f1b"
    if "pipe" in axes:
        schedule = chance.choice(mode_options.SCHEDULES)
        if model == "cnn" and (axes["pipe"] > 1 or schedule == "pipedream"):
            schedule = "1f1b"
        if schedule == "pipedream" and sync != "data":
            schedule = "gpipe"
        words += ["--schedule", schedule, "--microbatches", chance.choice("1235")]
        if model == "gpt" and axes["pipe"] == 3 and schedule == "interleaved":
            model = "mlp"
        if schedule != "pipedream" and chance.random() < 0.3:
            words += ["--recompute"]
    if schedule != "pipedream":
        words += ["--accumulate", chance.choice("113")]
        words += chance.choice([[], ["--clip-norm", "0.5"]])
        if sync == "data" and axes.get("data", 1) > 1:
            words += ["--zero", chance.choice("0123")]
    if model == "gpt" and "tensor" in axes and chance.random() < 0.5:
        words += ["--sequence-parallel"]
    if sync == "averaging":
        words += ["--average-every", chance.choice("123"), "--average-growth", chance.choice(["1", "1.5"])]
        words += ["--average-state", chance.choice(["keep", "average", "reset"])]
        words += ["--warm-up", chance.choice("002"), "--outer", chance.choice(["none", "nesterov"])]
    elif sync == "parameter-server":
        servers = chance.choice([1, 2])
        ranks += servers
        words += ["--servers", str(servers), "--slack", chance.choice(["0", "0", "1", "none"])]
    return ranks, " ".join([*words, *MODELS[model].split()]), chance.choice([1, 1, 2])


# One group's gradients are on one machine, the others' are not.
HALF_SHARED = "--mesh pipe=2,tensor=2 --steps 2 --microbatches 3 --sequence-parallel"
CASES = [(4, f"{HALF_SHARED} {MODELS['gpt']}", 2)]
# Of fewer microbatches, more chunks are alive.
SHORT_LAST = "--mesh pipe=2 --batch 4 --epochs 1 --schedule interleaved --microbatches 5 --optimizer sgd"
CASES += [(2, f"{SHORT_LAST} {MODELS['mlp']}", 1)]
CASES += [draw(random.Random(seed)) for seed in range(int(os.environ.get("MINIDIST_GRID", "50")))]


@pytest.mark.parametrize(("ranks", "words", "machines"), CASES)
def test_any_run_sends_and_holds_what_was_predicted(ranks: int, words: str, machines: int) -> None:
    nodes = [rank * machines // ranks for rank in range(ranks)]
    for rank, got in enumerate(run_ranks(run, ranks, f"{words} --quiet", nodes=nodes)):
        assert got["sent"].tolist() == got["predicted"].tolist(), rank
        if got["learns"]:  # a replica that never had an example has no optimizer state yet
            assert got["held"] == got["kept"], rank
        assert got["alive"] <= got["passing"].get("inputs of stages", 0), rank
