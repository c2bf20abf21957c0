"""Simulate a training on a cluster: `python -m minidist.simulate --ranks 1024 --cluster gpus --mesh data=64,pipe=16`.

All options of `python -m minidist.train` say what is trained, and how; those here say on what. Nothing is trained, and
no ranks are started, but two with `--profile`, which measures this machine.

    python -m minidist.simulate schedule --pipe 4 --microbatches 8 --schedule 1f1b     draws a schedule
"""

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from minidist.errors import UserError
from minidist.plan.cluster import CLUSTERS, find_cluster
from minidist.simulate import profile as profiles
from minidist.simulate.costs import counted
from minidist.simulate.imagine import Imagination, imagine
from minidist.simulate.job import simulate
from minidist.simulate.report import tell
from minidist.split.schedule_times import KNOWN, as_run, draw
from minidist.trace import chrome, page
from minidist.trace.page.contents import MOST_RANKS, contents
from minidist.trace.plot.one_page import check_picture, one_page, save
from minidist.trace.plot.timeline import timeline as draw_timeline
from minidist.trace.timeline import Timeline
from minidist.train import about
from minidist.train.holdings import kept
from minidist.train.options import parse
from minidist.train.report import check_writable, say, write_json, write_whole
from minidist.train.stories import worker_story
from minidist.train.values import whole_number


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see python -m minidist.simulate --help")


def _own_options() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m minidist.simulate",
        description="Play a training on a cluster that need not exist.",
        epilog="All other options are those of python -m minidist.train (--help-all shows them).",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--ranks", type=whole_number("the number of ranks", 1), metavar="N", default=4, help="how many (4)")
    known = ", ".join(CLUSTERS)
    add("--cluster", metavar="NAME", default="laptop", help=f"{known}, or a TOML file (laptop)")
    add(
        "--profile",
        nargs="?",
        const="",
        metavar="FILE",
        help="take compute times from this file; if it is not there, or none is named, measure this machine on 2 ranks",
    )
    add("--json", metavar="PATH", help="write the timeline to a file")
    add("--trace", metavar="PATH", help="write it for https://ui.perfetto.dev")
    add("--plot", metavar="PATH", help="draw it on one page: .png, .svg or .pdf")
    add("--report", metavar="PATH", help="write a page on it (.html)")
    return parser


def run(arguments: Sequence[str]) -> str:
    """Do what the arguments say; give the text to print. Raises UserError for a mistake in them."""
    own, rest = _own_options().parse_known_args(arguments)
    options = parse(rest)
    if options.help is not None:
        return options.help
    outputs = (("--json", own.json), ("--trace", own.trace), ("--plot", own.plot), ("--report", own.report))
    for option, path in outputs:
        if path:
            check_writable(path, option)
    if own.plot:
        check_picture(own.plot)
    cluster = find_cluster(own.cluster)
    job = imagine(options, own.ranks, cluster.places(own.ranks), cluster.shared_memory)
    costs = counted(cluster)
    if own.profile is not None:
        profile = profile_of(own.profile, job)
        costs = profiles.profiled(profile)
        if own.cluster == "laptop":
            cluster = profiles.on_this_machine(cluster, profile)
    steps = options.average_every if job.arrangement.sync == "averaging" else 1
    timeline = simulate(job, cluster, costs, steps)
    timeline.facts["command"] = shlex.join(["python", "-m", "minidist.simulate", *arguments])
    if own.json:
        write_json(own.json, timeline.to_dict())
    if own.trace:
        chrome.write(timeline, own.trace)
    if own.plot:
        write_picture(one_page(timeline), own.plot)
    if own.report:
        write_page(own.report, job, timeline)
    size = job.arrangement.workers // job.arrangement.axes["data"]
    held = [kept(options, job.dataset, job.worker(rank)) for rank in range(size)]
    return tell(timeline, cluster, options.batch, held)


def write_page(path: str, job: Imagination, timeline: Timeline) -> None:
    """Write the page of a simulation; who holds what, of as many workers as it draws."""
    options, drawn = job.options, range(min(job.arrangement.workers, MOST_RANKS))
    told = [worker_story(options, job.dataset, job.worker(rank), []) for rank in drawn]
    plain = about.of_simulation(timeline.facts, options.model, options.batch, told)
    page.write(contents(timeline, plain), path)


def profile_of(name: str, job: Imagination) -> dict[str, Any]:
    """Read a profile, or measure one and write it where it was not."""
    path = Path(name) if name else None
    if path is not None and path.exists():
        return profiles.load(path, job.options)
    options = job.options
    examples = max(1, options.batch // job.arrangement.axes["data"])
    if "pipe" in job.arrangement.axes:
        examples = max(1, examples // options.microbatches)
    found = profiles.measure(options, examples)
    if path is not None:
        check_writable(str(path), "--profile")
        path.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return found


def draw_schedule(arguments: Sequence[str]) -> str:
    """Draw the schedule that the arguments of the subcommand name."""
    parser = _Parser(prog="python -m minidist.simulate schedule", allow_abbrev=False)
    add = parser.add_argument
    add("--pipe", type=whole_number("the number of stages", 1), default=4, metavar="S", help="ranks (4)")
    add(
        "--microbatches",
        type=whole_number("the number of microbatches", 1),
        default=8,
        metavar="M",
        help="(8)",
    )
    add("--schedule", choices=[*KNOWN, "interleaved"], default="1f1b", help="which one (1f1b)")
    add(
        "--chunks",
        type=whole_number("the number of chunks", 1),
        metavar="V",
        help="interleaved: stages a rank (2)",
    )
    add("--plot", metavar="PATH", help="draw it as a picture: .png, .svg or .pdf")
    own = parser.parse_args(arguments)
    interleaved = own.schedule == "interleaved"
    if own.chunks is not None and own.chunks > 1 and not interleaved:
        raise UserError(
            f"--chunks {own.chunks} needs --schedule interleaved; {own.schedule} has one stage a rank"
        )
    chunks = own.chunks or (2 if interleaved else 1)
    which = "1f1b" if interleaved else own.schedule, own.pipe, own.microbatches, chunks
    if own.plot:
        check_writable(own.plot, "--plot")
        check_picture(own.plot)
        write_picture(draw_timeline(as_run(*which)), own.plot)
    return draw(*which)


def write_picture(figure: Any, path: str) -> None:
    """Write a picture to a file, complete or not at all."""
    write_whole(path, "--plot", lambda part: save(figure, part, Path(path).suffix))


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, play, report; return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        drawn = arguments[:1] == ["schedule"]
        say(draw_schedule(arguments[1:]) if drawn else run(arguments))
    except UserError as error:
        print(f"minidist.simulate: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
