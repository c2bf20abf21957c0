"""A profile says what it was measured for, is read again, and scales with examples and shares of layers."""

import json

import pytest

from minidist.launch import launch
from minidist.simulate.__main__ import main
from minidist.simulate.imagine import imagine
from minidist.simulate.profile import on_rank, profiled
from minidist.train.options import parse

TINY = "--model gpt --layers 3 --width 8 --heads 2 --batch 4"


def test_each_distinct_piece_is_measured_once_and_stands_for_those_like_it():
    options = parse(TINY.split())
    options.hidden = None
    profile = launch(on_rank, 2, options, 2, transport="threads")[0]
    pieces = profile["pieces"]
    assert len(pieces) == 5
    assert pieces[1] == pieces[2] == pieces[3]
    assert profile["examples"] == 2
    assert (
        min(
            *(profile[one] for one in ("begin", "update", "sum", "latency")),
            *(min(piece[:2]) for piece in pieces),
        )
        > 0
    )


def a_profile(options):
    names = ("model", "data", "dtype", "optimizer", "hidden", "layers", "width", "heads")
    pieces = [[1e-3, 2e-3, 512.0], [3e-3, 6e-3, 1024.0]]
    about = {"for": {name: getattr(options, name) for name in names}, "examples": 8, "pieces": pieces}
    return {**about, "begin": 1e-4, "update": 1e-9, "sum": 1e9, "latency": 1e-5, "bandwidth": 1e9}


def test_a_profile_is_read_and_its_times_are_scaled(tmp_path, capsys):
    text = "--mode model --hidden 4 --batch 16"
    options = parse(text.split())
    job = imagine(options, 2, (0, 0))
    profile = a_profile(options)
    profile["pieces"][0][2] = 2.0 * 64 * 4  # of the whole layer; each rank has half of its columns
    costs, model = profiled(profile), job.worker(0).model
    assert costs.forward(model, 0, 16) == pytest.approx(1e-3)
    assert costs.backward(model, 0, 8) == pytest.approx(1e-3)
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(profile))
    assert main([*["--ranks", "2", "--profile"], str(path), *text.split()]) == 0
    assert "a step takes" in capsys.readouterr().out
    assert main([*["--ranks", "2", "--profile"], str(path), *text.replace("4", "5", 1).split()]) == 2
    assert "was measured with --hidden [4], and this is [5]" in capsys.readouterr().err


def test_a_file_that_is_no_profile_is_refused(tmp_path, capsys):
    path = tmp_path / "profile.json"
    path.write_text("{}")
    assert main(["--profile", str(path)]) == 2
    assert "is not a profile" in capsys.readouterr().err
