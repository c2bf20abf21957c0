"""The options of `python -m minidist.train`: what can be said, what is refused, and in which words.

A mistake raises `UserError` with one sentence, so that one rank can print it for all. `--help` shows what a
beginner needs, `--help-all` everything, in groups. Read next: `__main__.py`.
"""

import argparse
import difflib
from collections.abc import Sequence
from typing import Any, NoReturn

from minidist import data
from minidist.errors import UserError
from minidist.train import mode_options
from minidist.train.arrangement import MODES
from minidist.train.values import number, whole_number, whole_numbers

MODELS = ("mlp", "cnn", "gpt")

# What each model is trained with unless the options say otherwise.
_ON_DIGITS = {"data": "digits", "batch": 64, "optimizer": "sgd", "weight_decay": 1e-3}
DEFAULTS: dict[str, dict[str, Any]] = {
    "mlp": {**_ON_DIGITS, "epochs": 20, "lr": 0.1},
    "cnn": {**_ON_DIGITS, "epochs": 10, "lr": 0.05},
    "gpt": {"data": "text", "batch": 16, "epochs": 1, "optimizer": "adamw", "lr": 1e-3, "weight_decay": 0.01},
}

GPT_SIZES = (
    ("layers", "blocks", 4),
    ("width", "of the residual stream", 128),
    ("heads", "attention heads", 4),
)

EXAMPLE = """\
example: four ranks, twice the usual batch, and so twice the usual step
  mpiexec -n 4 python -m minidist.train --batch 128 --lr 0.2
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message:
            option = unknown.split()[0]
            known = [name for action in self._actions for name in action.option_strings]
            close = difflib.get_close_matches(option, known, n=1)
            meant = f", did you mean {close[0]}?" if close else ""
            if option.lstrip("-") in ("n", "np", "ranks", "nproc", "world-size"):
                meant = "; mpiexec starts the ranks: mpiexec -n 4 python -m minidist.train"
            message = f"there is no option {option}{meant}"
        raise UserError(f"{message}; see python -m minidist.train --help")


def _parser(everything: bool) -> argparse.ArgumentParser:
    """Build the parser; without `everything` the help leaves out what a beginner does not need."""
    parser = _Parser(
        prog="python -m minidist.train",
        description="Train a neural network on one rank, or on all that mpiexec starts.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=False,
        usage=None if everything else "[mpiexec -n RANKS] python -m minidist.train [options]",
    )

    def rest(text: str) -> str:
        return text if everything else argparse.SUPPRESS

    basics = parser.add_argument_group("what to train, and how long")
    add = basics.add_argument
    add("--mode", choices=MODES, help=f"how ranks share the work: {', '.join(MODES)} (default: data)")
    add("--model", choices=MODELS, default="mlp", help="mlp (default), cnn or gpt")
    add("--data", choices=data.NAMES, help="digits (default), mnist, fashion-mnist; text (default for gpt)")
    add("--epochs", type=whole_number("the number of epochs", 1), metavar="N", help="passes over the data")
    add(
        "--batch",
        type=whole_number("the global batch", 1),
        metavar="N",
        help="examples in one step, over all ranks together",
    )
    add("--lr", type=number("the learning rate", above_zero=True), metavar="X", help="learning rate")
    add(
        "--seed",
        type=whole_number("the seed", 0),
        default=0,
        metavar="N",
        help="of weights and shuffling (0)",
    )
    add(
        "--sample",
        type=whole_number("the length of the sample", 0),
        default=0,
        metavar="N",
        help="print N characters that the gpt wrote, at the end",
    )
    help_options = parser.add_argument_group("help")
    help_options.add_argument("-h", "--help", action="store_true", help="show this")
    help_options.add_argument("--help-all", action="store_true", help="show every option")

    add = (parser.add_argument_group("where the data are") if everything else parser).add_argument
    add(
        "--data-dir",
        metavar="PATH",
        help=rest("mnist, fashion-mnist: the directory of the four IDX files; text: a UTF-8 file"),
    )
    add = (parser.add_argument_group("the step") if everything else parser).add_argument
    add(
        "--steps",
        type=whole_number("the number of steps", 1),
        metavar="N",
        help=rest("stop after N steps, whatever --epochs says"),
    )
    add(
        "--accumulate",
        type=whole_number("the number of pieces", 1),
        default=1,
        metavar="K",
        help=rest("work through the same global batch in K pieces, to save memory (1)"),
    )
    add("--optimizer", choices=["sgd", "adamw"], help=rest("default: sgd; adamw for gpt"))
    add(
        "--momentum",
        type=number("the momentum", above_zero=False),
        default=None,
        metavar="X",
        help=rest("of sgd (0.9)"),
    )
    add(
        "--weight-decay",
        type=number("the weight decay", above_zero=False),
        default=None,
        metavar="X",
        help=rest("default: 0.001; 0.01 for gpt"),
    )
    add(
        "--clip-norm",
        type=number("the largest norm", above_zero=True),
        metavar="X",
        help=rest("scale the gradient down to this norm where it is longer"),
    )
    add("--dtype", choices=["float32", "float64"], default="float32", help=rest("of weights (float32)"))
    add = (parser.add_argument_group("the model's size") if everything else parser).add_argument
    add(
        "--hidden",
        type=whole_numbers("the widths of hidden layers"),
        metavar="N,N",
        help=rest("of the mlp: widths of its hidden layers (256,128; more where a pipeline needs them)"),
    )
    for name, what, default in GPT_SIZES:
        kind = whole_number(f"the gpt's {name}", 1)
        add(f"--{name}", type=kind, metavar="N", help=rest(f"of the gpt: {what} ({default})"))
    mode_options.add_to(parser, everything)
    add = (parser.add_argument_group("checkpoints") if everything else parser).add_argument
    add(
        "--checkpoint",
        metavar="DIR",
        help=rest("save weights, optimizer and all else that goes on, to go on later"),
    )
    add(
        "--every",
        type=whole_number("the steps between two checkpoints", 1),
        metavar="N",
        help=rest("save after every N steps (an epoch), and at the end"),
    )
    add("--resume", action="store_true", help=rest("go on from the newest checkpoint in DIR, on any mesh"))
    add = (parser.add_argument_group("output") if everything else parser).add_argument
    add("--json", metavar="PATH", help=rest("write histories, counters and the result to a file"))
    add(
        "--check-every",
        type=whole_number("the steps between checks", 1),
        metavar="K",
        help=rest(
            "every K steps see that replicas are equal, parameters move, and each example is read once"
        ),
    )
    add("--trace", metavar="PATH", help=rest("write what ranks did in 10 steps, for https://ui.perfetto.dev"))
    add(
        "--ranks",
        action="store_true",
        help=rest("show how each rank spends its time, and say if one is slower than the others"),
    )
    add("--tensorboard", metavar="DIR", help=rest("write losses and more for TensorBoard while it trains"))
    add("--report", metavar="PATH", help=rest("write a page (.html) on the run: result, timeline, costs"))
    add("--plot", metavar="PATH", help=rest("draw what every rank did, on one page: .png, .svg or .pdf"))
    add("--explain", action="store_true", help=rest("do not train: say who holds and sends what"))
    add(
        "--guard",
        action="store_true",
        help=rest("look whether ranks call what fits together, and wait for ever"),
    )
    add("--quiet", action="store_true", help=rest("print nothing but errors"))
    return parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the options and fill in the model's defaults; `options.help` is the text to print instead, or None.

    Raises UserError for an unknown option, a value out of range, or options that contradict each other.
    """
    options = _parser(everything=False).parse_args(arguments)
    if options.help or options.help_all:
        options.help = _parser(everything=options.help_all).format_help()
        return options
    options.help = None
    for name, value in DEFAULTS[options.model].items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    _refuse_contradictions(options)
    if options.momentum is None:
        options.momentum = 0.9
    for name, _, default in GPT_SIZES:
        if getattr(options, name) is None:
            setattr(options, name, default)
    return options


def _refuse_contradictions(options: argparse.Namespace) -> None:
    wants_text = options.model == "gpt"
    if wants_text != (options.data == "text"):
        fitting = "--data text" if wants_text else "--data digits, mnist or fashion-mnist"
        raise UserError(
            f"--model {options.model} cannot be trained on --data {options.data}; give it {fitting}"
        )
    if options.momentum is not None and options.optimizer != "sgd":
        raise UserError(
            "--momentum belongs to --optimizer sgd; adamw has running means of its own, so leave it out"
        )
    if options.momentum is not None and options.momentum >= 1:
        raise UserError(
            f"--momentum is {options.momentum:g}, but from 1 on the steps grow without end; 0.9 is usual"
        )
    if options.data_dir is not None and options.data == "digits":
        raise UserError(
            "--data digits is part of minidist and reads no --data-dir; leave it out, or take --data mnist"
        )
    for name, owner in (("hidden", "mlp"), *((name, "gpt") for name, _, _ in GPT_SIZES)):
        if getattr(options, name) is not None and options.model != owner:
            raise UserError(f"--{name} is a size of the {owner}; leave it out, or say --model {owner}")
    for output in ("json", "trace", "plot", "report", "tensorboard"):
        if options.explain and getattr(options, output) is not None:
            raise UserError(
                f"--explain trains nothing, so there is no result to write: leave --{output} out, or --explain"
            )
    for name in ("every", "resume"):
        if getattr(options, name) and options.checkpoint is None:
            raise UserError(
                f"--{name} belongs to --checkpoint DIR: say where the checkpoints are, or leave it out"
            )
    if options.sample and options.model != "gpt":
        raise UserError(f"--sample needs --model gpt; {options.model} does not write text")
