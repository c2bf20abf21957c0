"""How much faster is a training on more ranks? The same command on 1 and on n ranks, in turn.

    python benchmarks/more_ranks.py [--ranks 2] [--rounds 5] [options of minidist.train]

Prints the median of examples per second for each, and the ratio of the medians. Run it on a quiet machine with at
least as many cores as ranks.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from minidist.launch.mpiexec import find_mpiexec
from minidist.train.report import FASTER_ON_TWO


def examples_per_second(ranks: int, options: list[str], path: Path) -> float:
    """Run one training and return what it measured."""
    command = [find_mpiexec(), "-n", str(ranks), sys.executable, "-m", "minidist.train", *options]
    subprocess.run([*command, "--quiet", "--json", str(path)], check=True)
    return json.loads(path.read_text())["examples_per_second"]


def main() -> None:
    """Measure, in turn, and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    own, options = parser.parse_known_args()
    options = options or FASTER_ON_TWO.split("minidist.train ")[1].split()
    speeds: dict[int, list[float]] = {1: [], own.ranks: []}
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(own.rounds):
            for ranks, measured in speeds.items():
                measured.append(examples_per_second(ranks, options, Path(directory, "run.json")))
    for ranks, measured in speeds.items():
        print(f"{ranks} ranks: {statistics.median(measured):8.1f} examples/s  {sorted(map(round, measured))}")
    print(f"ratio: {statistics.median(speeds[own.ranks]) / statistics.median(speeds[1]):.2f}")


if __name__ == "__main__":
    main()
