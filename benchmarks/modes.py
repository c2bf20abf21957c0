"""Does every mode learn the same, and what does each cost? One training, on one process and in every mode on 4 ranks.

    python benchmarks/modes.py [--steps 100] [options of minidist.train]

Prints a Markdown table: the loss after the same number of examples, whether it equals that of one process, and what the
busiest rank sent in a step (messages, bytes) and the largest one held. Every line can be run by itself: the command is
in its first column, after `mpiexec -n 4 python -m minidist.train --model gpt`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from minidist.launch.mpiexec import find_mpiexec

LINES = (  # ranks, options, whether it equals one process
    (1, "", True),
    (4, "--mode data", True),
    (4, "--mode data --zero 1", True),
    (4, "--mode data --zero 2", True),
    (4, "--mode data --zero 3", True),
    (4, "--mode model", True),
    (4, "--mode model --sequence-parallel", True),
    (4, "--mode pipeline", True),
    (4, "--mode pipeline --schedule zero-bubble", True),
    (4, "--mode pipeline --recompute", True),
    (4, "--mesh data=2,pipe=2", True),
    (4, "--mesh data=2,tensor=2", True),
    (4, "--mesh pipe=2,tensor=2", True),
    (4, "--mode parameter-server", True),
    (4, "--mode parameter-server --slack 2", False),
    (4, "--mode parameter-server --slack none", False),
    (4, "--mode averaging --average-every 4", False),
    (4, "--mode averaging --average-every 8 --outer nesterov", False),
    (4, "--mode pipeline --schedule pipedream", False),
)


def run(ranks: int, options: list[str], path: Path) -> dict[str, Any]:
    """Run one training and return what it wrote."""
    command = [find_mpiexec(), "-n", str(ranks), sys.executable, "-m", "minidist.train", *options]
    subprocess.run([*command, "--quiet", "--json", str(path)], check=True)
    return json.loads(path.read_text())


def size(count: float) -> str:
    """Write a number of bytes with three digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError


def main() -> None:
    """Run all lines and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument(
        "--only", default="", help="run only the lines that contain this text, and one process"
    )
    own, options = parser.parse_known_args()
    options = [*(options or ["--model", "gpt"]), "--steps", str(own.steps)]
    print(
        "| options | loss | against one process | messages a step | bytes a step | largest rank | ms a step |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    one = None
    with tempfile.TemporaryDirectory() as directory:
        for ranks, mode, equal in LINES:
            if mode and own.only not in mode:
                continue
            result = run(ranks, [*options, *mode.split()], Path(directory, "run.json"))
            loss = result["loss_history"][-1]
            one = loss if one is None else one
            difference = abs(loss - one) / one
            against = f"{difference:.1e}" if equal else f"{(loss - one) / one:+.1%}"
            messages = max(sum(rank.values()) for rank in result["messages_sent"]) / own.steps
            sent = max(sum(rank.values()) for rank in result["bytes_sent"]) / own.steps
            name, against = (f"`{mode}`", against) if mode else ("one process", "")
            memory, milliseconds = size(max(result["peak_memory"])), 1e3 * result["seconds"] / own.steps
            cells = [
                name,
                f"{loss:.4f}",
                against,
                f"{messages:.0f}",
                size(sent),
                memory,
                f"{milliseconds:.0f}",
            ]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
