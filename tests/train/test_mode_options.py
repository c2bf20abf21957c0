"""An option of one mode is refused in all others, in one sentence, and has its default where it was not given."""

from __future__ import annotations

import argparse

import pytest

from minidist.errors import UserError
from minidist.train.arrangement import arrange
from minidist.train.mode_options import OPTIONS, ModeOption, settle
from minidist.train.options import parse

AT_WORK = {  # where an option's owner is at work, and where not
    "pipe": ("--mode pipeline", "--mode averaging"),
    "tensor": ("--mode model --model gpt", "--mode pipeline"),
    "data": ("--mode data", "--mode parameter-server"),
    "averaging": ("--mode averaging", "--mode data"),
    "parameter-server": ("--mode parameter-server", "--mode averaging"),
}
VALUES = {"schedule": "gpipe", "chunks": "1", "balance": "measured", "zero": "2"}
VALUES |= {"average-state": "reset", "outer": "nesterov"}


def settled(words: str, ranks: int = 3) -> argparse.Namespace:
    options = parse(words.split())
    settle(options, arrange(options, ranks))
    return options


def given(option: ModeOption) -> str:
    value = "" if "action" in option.reading else VALUES.get(option.name, "1")
    return f"--{option.name} {value}"


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_an_option_works_with_its_owner_and_is_refused_without(option: ModeOption) -> None:
    at_work, elsewhere = AT_WORK[option.belongs]
    name = option.name.replace("-", "_")
    default = 1 if option.name == "chunks" else option.default
    assert getattr(settled(at_work), name) == getattr(settled(elsewhere), name) == default
    got = str(getattr(settled(f"{at_work} {given(option)}"), name))
    assert got in (VALUES.get(option.name, "1"), "1.0", "True")
    with pytest.raises(UserError, match=rf"^--{option.name} belongs to --.*; here \(.*\) leave it out$"):
        settled(f"{elsewhere} {given(option)}")


def test_even_a_default_is_refused_where_it_means_nothing() -> None:
    with pytest.raises(UserError, match="--average-every belongs to --sync averaging"):
        settled("--mode pipeline --average-every 8")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--mode pipeline --chunks 2", "--chunks 2 needs --schedule interleaved; 1f1b has one stage a rank"),
        (
            "--mode pipeline --zero 1",
            "--zero 1 shards over the data axis, which has one rank here: leave it out",
        ),
        *(
            (
                f"--mesh pipe=3 --schedule pipedream {beside}",
                f"--schedule pipedream updates after every microbatch and goes without {beside.split()[0]}",
            )
            for beside in ("--clip-norm 1", "--accumulate 2", "--recompute", "--sync averaging")
        ),
        ("--mode parameter-server --slack -1", "the slack must be a whole number, 0 or more"),
        ("--mode averaging --average-every 0", "the gap between averages must be a whole number, 1 or more"),
        ("--mode pipeline --schedule 2f2b", "invalid choice: '2f2b'"),
        ("--zero 4", "invalid choice: 4"),
    ],
)
def test_options_that_exclude_each_other_get_one_sentence(words: str, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        settled(words)
    assert sentence in str(error.value)


def test_defaults_depend_on_each_other() -> None:
    assert settled("--mode pipeline --schedule interleaved").chunks == 2
    assert settled("--mode pipeline --schedule interleaved --chunks 3").chunks == 3
    assert settled("--mode parameter-server --slack none").slack == "none"
    assert settled("--mode pipeline").hidden == [256, 128]
    assert len(settled("--mode pipeline", ranks=6).hidden) == 5  # six stages want six layers
