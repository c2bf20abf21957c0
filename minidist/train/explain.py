"""`--explain`: which rank holds what, what it will send and keep, without a step of training.

    who holds what                                   data=0    data=1
      pipe=0   tokens, positions, blocks.0-1         rank 0    rank 2
      pipe=1   blocks.2-3, norm, tokens              rank 1    rank 3

    rank 0 and rank 2 send                                          messages         bytes
      in each step, of 16 examples (439 times)
        pipe       activation   outputs to the next stage                  4       524,288
        ...

Every rank tells its own *story* (`stories.py`), and rank 0 puts them
together; ranks that tell the same story share one table. A run's counters equal these numbers: see its JSON.
"""

import argparse
import json
import re
import textwrap
from collections.abc import Sequence

from minidist.data import Dataset
from minidist.split.pipedream import PipeDream
from minidist.split.pipeline_parallel import PipelineParallel
from minidist.split.schedule_times import peak_live, simulate
from minidist.split.schedules import pipedream, with_messages
from minidist.train.arrangement import Arrangement
from minidist.train.forecast_step import batch_sizes, most_microbatches
from minidist.train.setup import Setup
from minidist.train.stories import Story

WIDEST = 120  # characters of a line that can be read


def tell(
    options: argparse.Namespace,
    dataset: Dataset,
    arrangement: Arrangement,
    setup: Setup,
    stories: Sequence[Story],
) -> str:
    """Put all ranks' stories into one text."""
    lines = ["", *drawing(stories), *_rules(options, arrangement)]
    if isinstance(setup.replica, PipelineParallel):
        lines += ["", *schedule(options, dataset, setup.replica, setup)]
    told: dict[str, list[int]] = {}
    for rank, story in enumerate(stories):
        told.setdefault(json.dumps([story["sends"], story["keeps"]]), []).append(rank)
    for ranks in told.values():
        lines += ["", *_table(ranks, stories[ranks[0]])]
    lines += ["", "Not in these numbers: what layers keep for their backward, the data, and Python itself."]
    return "\n".join(lines)


def drawing(stories: Sequence[Story]) -> list[str]:
    """Draw the mesh: a row for each place in a replica, replicas side by side, servers below."""
    rows: dict[str, list[str]] = {}
    for rank, story in enumerate(stories):
        row = f"{story['row'] + '  ' * bool(story['row'])}{story['holds']}"
        rows.setdefault(row, []).append(f"rank {rank}")
    columns = list(dict.fromkeys(story["column"] for story in stories if story["column"]))
    if len(columns) > 8:
        columns = [*columns[:6], "...", columns[-1]]
        rows = {row: [*r[:6], "...", r[-1]] if len(r) > 8 else r for row, r in rows.items()}
    width = max(map(len, [*rows, "who holds what"])) + 4

    def line(first: str, cells: Sequence[str]) -> str:
        return (f"{first:<{width}}" + "".join(f"{cell:<10}" for cell in cells)).rstrip()

    lines = [line("who holds what", columns), *(line(f"  {row}", ranks) for row, ranks in rows.items())]
    # Model parallel stages are cut alike, so one of each place along tensor says it for all.
    cut = {story["tensor"]: ", ".join(story["shares"]) for story in stories if story["shares"]}
    if len(set(cut.values())) == 1:
        cut = {"each along tensor": next(iter(cut.values()))}
    for place, text in cut.items():
        lines += textwrap.wrap(f"{place}: {text}", WIDEST, initial_indent="  ", subsequent_indent="    ")
    return lines


def _rules(options: argparse.Namespace, arrangement: Arrangement) -> list[str]:
    """Say how replicas agree, and what divides a loss."""
    zero = (
        "",
        "optimizer state is shared out over data",
        "optimizer state and gradients are shared out over data",
        "weights, gradients and optimizer state are shared out over data, and weights fetched to be read",
    )[options.zero]
    alone = arrangement.sync == "averaging" or (arrangement.sync == "parameter-server" and options.slack != 0)
    if alone and arrangement.axes["data"] > 1:
        how = (
            "each replica divides its loss by its own number of targets and clips by its own norm"
            + "; averages count each by its targets" * (arrangement.sync == "averaging")
            + "; its update counts by its share of the global batch" * (arrangement.sync != "averaging")
        )
    else:
        how = "every loss is divided by the number of targets in the global batch, so plain sums combine gradients"
    return ["", *([f"ZeRO {options.zero}: {zero}"] if zero else []), how]


def schedule(
    options: argparse.Namespace, dataset: Dataset, replica: PipelineParallel, setup: Setup
) -> list[str]:
    """Draw who of a pipeline computes what when, and say how long each is idle."""
    count = len(most_microbatches(options, setup, batch_sizes(options, dataset)[0])[0])
    rule = pipedream if isinstance(replica, PipeDream) else replica.schedule
    programs = [
        with_messages(rule, replica.stages, place, count, replica.chunks) for place in range(replica.stages)
    ]
    timeline = simulate(programs)
    picture = re.sub("^rank ", "  pipe=", timeline.picture(), flags=re.MULTILINE).splitlines()
    lines = [f"the schedule {options.schedule}, {count} microbatches; forward takes 1, backward 2"]
    fits = max(map(len, picture)) <= WIDEST
    lines += picture if fits else [f"  (too wide to draw: {timeline.end} units of time)"]
    for place, program in enumerate(programs):
        idle = timeline.bubble(place)
        lines.append(
            f"  pipe={place}: idle {idle} of {timeline.end} ({idle / timeline.end:.0%}), "
            f"microbatches alive: at most {peak_live(program)}"
        )
    return lines


def _table(ranks: Sequence[int], story: Story) -> list[str]:
    names = [f"rank {rank}" for rank in ranks]
    if len(names) > 6:
        names = [*names[:4], "...", names[-1]]
    title = f"{' and '.join(names)} {'sends' if len(ranks) == 1 else 'send, each,'}"
    lines = [f"{title:<71}{'messages':>12}{'bytes':>18}"]
    for what, times, sends in story["sends"]:
        if not sends:
            continue
        often = f"in each {what} ({times:,} time{'s' * (times != 1)})"
        lines.append(f"  at the {what}" if what in ("start", "end") else f"  {often}")
        if not sends[0][0]:
            lines[-1] += ": " + ", ".join(f"{purpose} {n:,} / {b:,}" for _, purpose, _, n, b in sends)
            continue
        lines += [
            f"    {axes:<20}{purpose:<12}{about:<35}{messages:>12,}{nbytes:>18,}"
            for axes, purpose, about, messages, nbytes in sends
        ]
    if len(lines) == 1:
        lines = [f"{title.removesuffix(',')} nothing"]
    for always, words in ((True, "holds"), (False, "and at most, for a while")):
        kept = [f"{what} {nbytes:,}" for what, nbytes, a in story["keeps"] if a == always and nbytes]
        if kept:
            lines.append(f"  {words}: {', '.join(kept)} bytes")
    return lines
