"""Is a simulated step as long as a real one? Real trainings on 2, 4 and 8 ranks beside the simulator, in one run.

    python benchmarks/simulated.py [--only pipe] [--sleep 0.02]

On 2 ranks the gpt is trained as it is, and the simulator takes its times from a profile that is measured just before.
On 4 and 8 ranks, which have no core for each here, every layer of an mlp sleeps for so long per example instead of
computing: sleeping needs no core, so all that is real is the order of things, the messages and the waiting.

Prints a Markdown table: milliseconds a step, really and simulated, and the places of each group in order of time.
With `--pictures DIR` it only draws GPipe and 1F1B, really run on 4 such ranks, as they stand in `docs/pictures/`.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from minidist.autograd import Tensor
from minidist.autograd.tape import record
from minidist.comm import Communicator
from minidist.launch import launch
from minidist.models import MLP
from minidist.plan.cluster import CLUSTERS
from minidist.simulate import profile as profiles
from minidist.simulate.costs import Costs
from minidist.simulate.imagine import imagine
from minidist.simulate.job import simulate
from minidist.trace import chrome, plot
from minidist.train import __main__ as training
from minidist.train import setup
from minidist.train.options import parse

LAYERS = "--hidden " + ",".join(["256"] * 15) + " --batch"  # four buckets of gradients
measured: dict[tuple[int, float, str], dict[str, Any]] = {}

GROUPS: dict[str, list[tuple[int, str]]] = {
    "the gpt on 2 ranks, computing": [
        (2, "--model gpt --mode data"),
        (2, "--model gpt --mode pipeline --schedule gpipe"),
        (2, "--model gpt --mode pipeline --schedule 1f1b"),
        (2, "--model gpt --mode data --zero 1"),
    ],
    "an mlp of 16 layers on 4 ranks, sleeping": [
        (4, f"--mode pipeline --schedule naive {LAYERS} 16"),
        (4, f"--mode pipeline --schedule gpipe {LAYERS} 16"),
        (4, f"--mode pipeline --schedule 1f1b {LAYERS} 16"),
        (4, f"--mode pipeline --schedule interleaved {LAYERS} 16"),
        (4, f"--mesh data=2,pipe=2 {LAYERS} 16"),
        (4, f"--mode data {LAYERS} 16"),
        (4, f"--mode data --zero 1 {LAYERS} 16"),
        (4, f"--mode averaging --average-every 2 {LAYERS} 16"),
        (4, f"--mode parameter-server {LAYERS} 12"),
    ],
    "an mlp of 16 layers on 8 ranks, sleeping": [
        (8, f"--mode pipeline --schedule naive --microbatches 8 {LAYERS} 16"),
        (8, f"--mode pipeline --schedule gpipe --microbatches 8 {LAYERS} 16"),
        (8, f"--mode pipeline --schedule 1f1b --microbatches 8 {LAYERS} 16"),
        (8, f"--mode pipeline --schedule interleaved --microbatches 8 {LAYERS} 16"),
        (8, f"--mesh data=2,pipe=4 {LAYERS} 16"),
        (8, f"--mode data {LAYERS} 16"),
    ],
}


def sleep_instead(seconds: float) -> None:
    """Let the layers of an mlp sleep for so long per example, twice that in backward, on the rank that calls this."""

    class Sleepy(MLP):
        def apply(self, number: int, x: Any) -> Tensor:
            y = super().apply(number, x)
            if not y.requires_grad:  # to evaluate
                return y
            time.sleep(seconds * len(y.data))

            def backward(g: np.ndarray) -> np.ndarray:
                time.sleep(2 * seconds * len(g))
                return g

            return record(y.data, (y, backward))

    if seconds:
        setup.MLP = Sleepy


def train(comm: Communicator, text: str, seconds: float) -> dict[str, Any]:
    """Train really, on one rank of several."""
    sleep_instead(seconds)
    return training.run(parse(text.split()), comm)


def train_traced(comm: Communicator, text: str, seconds: float) -> int:
    """Train by the command, which can write traces, on one rank of several."""
    sleep_instead(seconds)
    return training.main(text.split())


def measure(comm: Communicator, options: argparse.Namespace, examples: int, seconds: float) -> dict[str, Any]:
    """Measure a profile, on one rank of two."""
    sleep_instead(seconds)
    return profiles.on_rank(comm, options, examples)


def main() -> None:
    """Run all lines and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument(
        "--steps", type=int, default=1, help="of those that sleep; twenty times as many of the others"
    )
    parser.add_argument(
        "--sleep", type=float, default=2e-2, help="seconds forward for each example and layer (0.02)"
    )
    parser.add_argument("--only", default="", help="run only the lines that contain this text")
    parser.add_argument("--pictures", metavar="DIR", help="draw two pipelines instead")
    own = parser.parse_args()
    if own.pictures:
        draw(Path(own.pictures))
        return
    print("| ranks | options | ms a step | simulated | difference | place |\n|---:|---|---:|---:|---:|---|")
    for group, lines in GROUPS.items():
        rows = []
        for ranks, text in lines:
            if own.only not in text:
                continue
            sleeping = 0.0 if "computing" in group else own.sleep
            costs, cluster, job = prepared(ranks, text, sleeping)
            steps = own.steps if sleeping else 20 * own.steps
            played = simulate(job, cluster, costs, steps).facts["seconds_per_step"]
            result = launch(train, ranks, f"{text} --steps {steps} --quiet", sleeping, timeout=120)[0]
            rows.append((ranks, text.split(LAYERS)[0].strip(), result["seconds"] / steps, played))
        print(f"| | **{group}** | | | | |")
        places = [sorted(range(len(rows)), key=lambda i, column=column: rows[i][column]) for column in (2, 3)]
        for number, (ranks, text, real, played) in enumerate(rows):
            there = " and ".join(str(order.index(number) + 1) for order in places)
            cells = [
                str(ranks),
                f"`{text}`",
                f"{1e3 * real:.1f}",
                f"{1e3 * played:.1f}",
                f"{played / real - 1:+.1%}",
            ]
            print(f"| {' | '.join(cells)} | {there} |", flush=True)


def draw(directory: Path) -> None:
    """Draw a step of GPipe and one of 1F1B, of 4 equal stages."""
    for schedule in ("gpipe", "1f1b"):
        path = directory / f"{schedule}.json"
        options = f"--mode pipeline --schedule {schedule} --microbatches 8 --hidden 256,256,256 --batch 16"
        launch(train_traced, 4, f"{options} --steps 4 --quiet --trace {path}", 1.5e-2, timeout=120)
        run = chrome.read(path)
        run.facts["note"] = "really run on 4 ranks, whose layers sleep instead of computing"
        plot.timeline(run).savefig(path.with_suffix(".png"))
        path.unlink()


def prepared(ranks: int, text: str, sleeping: float) -> tuple[Costs, Any, Any]:
    """Say what the simulator has to know: times, cluster, job."""
    options = parse(text.split())
    cluster = CLUSTERS["laptop"]
    if sleeping:  # which needs no core
        cluster = replace(cluster, devices=ranks)
    job = imagine(options, ranks, cluster.places(ranks))
    examples = options.batch // job.arrangement.axes["data"]
    if "pipe" in job.arrangement.axes:
        examples //= options.microbatches
    key = examples, sleeping, str(options.hidden)
    if key not in measured:  # what is the same is measured once
        measured[key] = launch(measure, 2, options, examples, sleeping)[0]
    profile = measured[key]
    return profiles.profiled(profile), profiles.on_this_machine(cluster, profile), job


if __name__ == "__main__":
    main()
