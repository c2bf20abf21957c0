"""A rank's *story*: which part of the model it holds, what it will send, what it will keep; plain data.

    {"row": "pipe=0", "column": "data=1", "holds": "tokens, blocks.0-1", "shares": [], "sends": [...], "keeps": [...]}

Read next: `explain.py`, which puts all ranks' stories into one text.
"""

import argparse
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from minidist.comm import Communicator
from minidist.comm.texts import gather_bytes
from minidist.data import Dataset
from minidist.models import GPT
from minidist.plan.memory import Held
from minidist.plan.sent import by_purpose
from minidist.split.pipeline_parallel import PipelineParallel
from minidist.sync.server import Server
from minidist.train.forecast import Occasion, forecast_server
from minidist.train.holdings import kept, kept_by_server
from minidist.train.setup import Setup

Story = dict[str, Any]


def worker_story(
    options: argparse.Namespace, dataset: Dataset, setup: Setup, occasions: Sequence[Occasion]
) -> Story:
    """Say what this worker holds and sends."""
    places = {axis: place for axis, place in setup.mesh.coordinates.items() if setup.mesh.axes[axis] > 1}
    return {
        "row": " ".join(f"{axis}={place}" for axis, place in places.items() if axis != "data"),
        "column": f"data={places['data']}" if "data" in places else "",
        "holds": "; then ".join(fold(names) for names in parts_here(setup)),
        "tensor": f"tensor={places['tensor']}" if "tensor" in places else "",
        "shares": shares(options, setup),
        **_costs(occasions, kept(options, dataset, setup)),
    }


def server_story(options: argparse.Namespace, dataset: Dataset, server: Server) -> Story:
    """Say what this server holds and sends."""
    link = server.link
    holds = f"part {link.place + 1} of {link.servers} of every bucket" if link.servers > 1 else "every bucket"
    occasions = forecast_server(options, dataset, server)
    return {
        "row": "server",
        "column": "",
        "holds": holds,
        "tensor": "",
        "shares": [],
        **_costs(occasions, kept_by_server(server)),
    }


def _costs(occasions: Iterable[Occasion], held: Iterable[Held]) -> Story:
    found = []
    for number, occasion in enumerate(occasions):
        lines = [[s.axes, s.purpose, s.what, s.traffic.messages, s.traffic.bytes] for s in occasion.lines]
        if occasion.what.startswith("step") and number:  # as the first one, with other numbers
            sums = by_purpose(occasion.lines).items()
            lines = [["", purpose, "", sent.messages, sent.bytes] for purpose, sent in sums]
        found.append([occasion.what, occasion.times, [line for line in lines if line[3]]])
    return {"sends": found, "keeps": [[held.what, held.nbytes, held.always] for held in held]}


def parts_here(setup: Setup) -> list[list[str]]:
    """Name the parameters of this rank's pieces: for each chunk of a pipeline, or for the whole model."""
    name_of = {parameter: name for name, parameter in setup.model.named_parameters()}
    if isinstance(setup.replica, PipelineParallel):
        return [[name_of[p] for p in parameters] for parameters in setup.replica.stage.parameters_of]
    return [list(name_of.values())]


def fold(names: Iterable[str]) -> str:
    """Name the layers that parameters are of: "blocks.0.norm1.gain, blocks.1.norm1.gain, ..." is "blocks.0-1"."""
    layers = dict.fromkeys(re.sub(r"^([^.]+(?:\.\d+)?)\..*", r"\1", name) for name in names)
    runs: list[tuple[str, int, int]] = []  # what, first and last number; -1: without
    for layer in layers:
        what, _, digits = layer.partition(".")
        number = int(digits) if digits.isdigit() else -1
        if runs and number >= 0 and runs[-1][0] == what and runs[-1][2] == number - 1:
            runs[-1] = (what, runs[-1][1], number)
        else:
            runs.append((what if digits.isdigit() else layer, number, number))
    return ", ".join(
        what if last < 0 else f"{what}.{first}" + (f"-{last}" if last > first else "")
        for what, first, last in runs
    )


def shares(options: argparse.Namespace, setup: Setup) -> list[str]:
    """Say what is here of each matrix that is cut, alike in all blocks: "widen.weight 256 of 512 columns"."""
    found = []
    for name, parameter in setup.model.named_parameters():
        spread = parameter.placement
        if spread is not None and spread.dim is not None and len(spread.shape) == 2:
            here, whole = spread.here[spread.dim], spread.shape[spread.dim]
            name = re.sub(r"^blocks\.\d+\.", "", name)
            found.append(f"{name} {here} of {whole} {('rows', 'columns')[spread.dim]}")
    if found and isinstance(setup.model, GPT):
        found.append(f"{setup.model.blocks[0].attention.heads} of {options.heads} heads")
    return list(dict.fromkeys(found))


def gather(comm: Communicator, story: Story) -> list[Story]:
    """Bring all ranks' stories to rank 0; the others get an empty list."""
    stories = gather_bytes(comm, json.dumps(story).encode())
    return [json.loads(text) for text in stories or []]
