"""The options of the modes: each belongs to one of them, and is refused where that one is not at work.

An option that is not given stays None until `settle` knows the arrangement. So `--average-every 8` beside
`--mode pipeline` is told from its default, and answered by one sentence instead of being ignored.
"""

import argparse
from dataclasses import dataclass, field
from typing import Any

from minidist.errors import UserError
from minidist.train.arrangement import SYNCS, Arrangement
from minidist.train.values import number, whole_number

SCHEDULES = ("naive", "gpipe", "1f1b", "interleaved", "zero-bubble", "pipedream")


@dataclass(frozen=True)
class ModeOption:
    """One option: how it is read, and who it belongs to."""

    name: str
    belongs: str  # "pipe" or "tensor": an axis; or the name of a sync
    default: Any
    help: str
    reading: dict[str, Any] = field(default_factory=dict)

    def works_in(self, arrangement: Arrangement) -> bool:
        """Say whether it means something there."""
        if self.belongs in ("pipe", "tensor"):
            return self.belongs in arrangement.axes
        return arrangement.sync == self.belongs


def _slack(text: str) -> int | str:
    return "none" if text == "none" else whole_number("the slack", 0)(text)


FLAG: dict[str, Any] = {"action": "store_const", "const": True}
OPTIONS = (
    ModeOption(
        "microbatches",
        "pipe",
        4,
        "into how many a step's examples are cut",
        {"type": whole_number("the number of microbatches", 1), "metavar": "M"},
    ),
    ModeOption("schedule", "pipe", "1f1b", ", ".join(SCHEDULES), {"choices": SCHEDULES}),
    ModeOption(
        "chunks",
        "pipe",
        None,
        "stages on each rank, for interleaved (2)",
        {"type": whole_number("the number of chunks", 1), "metavar": "V"},
    ),
    ModeOption(
        "recompute",
        "pipe",
        False,
        "keep only what enters a stage, and compute the rest again in backward",
        FLAG,
    ),
    ModeOption(
        "balance",
        "pipe",
        "counted",
        "even out the stages by counted or by measured work",
        {"choices": ["counted", "measured"]},
    ),
    ModeOption(
        "sequence-parallel", "tensor", False, "share out the norms and residuals along the text, too", FLAG
    ),
    ModeOption(
        "zero",
        "data",
        0,
        "shard optimizer state (1), gradients too (2), weights too (3)",
        {"type": int, "choices": [0, 1, 2, 3]},
    ),
    ModeOption(
        "average-every",
        "averaging",
        8,
        "steps between two averages",
        {"type": whole_number("the gap between averages", 1), "metavar": "K"},
    ),
    ModeOption(
        "average-growth",
        "averaging",
        1.0,
        "factor by which the gap grows after each average",
        {"type": number("the growth of the gap", True), "metavar": "X"},
    ),
    ModeOption(
        "average-state",
        "averaging",
        "keep",
        "what becomes of the optimizer's state at an average",
        {"choices": ["keep", "average", "reset"]},
    ),
    ModeOption(
        "warm-up",
        "averaging",
        0,
        "steps at the start with an average after each",
        {"type": whole_number("the warm-up", 0), "metavar": "N"},
    ),
    ModeOption(
        "outer",
        "averaging",
        "none",
        "nesterov: DiLoCo's outer step on the averaged change",
        {"choices": ["none", "nesterov"]},
    ),
    ModeOption(
        "outer-lr",
        "averaging",
        0.7,
        "of the outer step",
        {"type": number("the outer learning rate", True), "metavar": "X"},
    ),
    ModeOption(
        "outer-momentum",
        "averaging",
        0.9,
        "of the outer step",
        {"type": number("the outer momentum", False), "metavar": "X"},
    ),
    ModeOption(
        "slack",
        "parameter-server",
        0,
        "by how many steps a worker may be ahead; none: by any number",
        {"type": _slack, "metavar": "S"},
    ),
)


def add_to(parser: argparse.ArgumentParser, everything: bool) -> None:
    """Add all of them; without `everything` the help does not show them."""

    def said(text: str) -> str:
        return text if everything else argparse.SUPPRESS

    add = (parser.add_argument_group("the mode, in full") if everything else parser).add_argument
    add(
        "--mesh",
        metavar="AXES",
        help=said("ranks along each axis, like data=2,pipe=2,tensor=1, instead of --mode"),
    )
    add(
        "--sync",
        choices=SYNCS,
        help=said("how replicas agree: data (sum gradients), averaging, parameter-server"),
    )
    add(
        "--servers",
        type=whole_number("the number of servers", 1),
        metavar="N",
        help=said("parameter-server: ranks that serve (1)"),
    )
    add = (parser.add_argument_group("details of the modes") if everything else parser).add_argument
    for option in OPTIONS:
        where = {"pipe": "pipeline", "tensor": "model"}.get(option.belongs, option.belongs)
        default = "" if option.default in (None, False) else f" ({option.default})"
        add(f"--{option.name}", help=said(f"{where}: {option.help}{default}"), **option.reading)


def settle(options: argparse.Namespace, arrangement: Arrangement) -> None:
    """Fill in the defaults. Raises UserError for an option that means nothing in this arrangement."""
    for option in OPTIONS:
        name = option.name.replace("-", "_")
        if getattr(options, name) is None:
            setattr(options, name, option.default)
        elif not option.works_in(arrangement):
            needed = {
                "pipe": "--mode pipeline, or a mesh with an axis pipe",
                "tensor": "--mode model, or a mesh with an axis tensor",
                "data": "--sync data",
            }.get(option.belongs, f"--sync {option.belongs}")
            raise UserError(
                f"--{option.name} belongs to {needed}; here ({arrangement.describe()}) leave it out"
            )
    if options.chunks is None:
        options.chunks = 2 if options.schedule == "interleaved" else 1
    elif options.chunks > 1 and options.schedule != "interleaved":
        raise UserError(
            f"--chunks {options.chunks} needs --schedule interleaved; {options.schedule} has one stage a rank"
        )
    if options.schedule == "pipedream":
        beside = [name for name in ("accumulate", "recompute", "zero", "clip_norm") if getattr(options, name)]
        beside = [name for name in beside if (name, options.accumulate) != ("accumulate", 1)]
        if beside or arrangement.sync != "data":
            what = f"--{beside[0].replace('_', '-')}" if beside else f"--sync {arrangement.sync}"
            raise UserError(
                f"--schedule pipedream updates after every microbatch and goes without {what}: leave that out, or take "
                "--schedule 1f1b"
            )
    if options.zero and arrangement.axes.get("data", 1) == 1:
        raise UserError(
            f"--zero {options.zero} shards over the data axis, which has one rank here: leave it out"
        )
    if options.hidden is None:
        stages = arrangement.axes.get("pipe", 1) * options.chunks
        options.hidden = [256, 128] if stages <= 3 else [128] * (stages - 1)
