"""The long form of `test_train.py`: every model, 1 to 4 ranks, in one piece and in three; not part of plain `pytest`.

pytest tests/long_histories.py
"""

import functools
import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

_spec = importlib.util.spec_from_file_location("test_train", Path(__file__).with_name("test_train.py"))
assert _spec is not None
assert _spec.loader is not None
test_train = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(test_train)


@functools.cache
def run(model: str, ranks: int, pieces: int) -> dict[str, Any]:
    options = [*test_train.REFERENCE, "--batch", "50", "--model", model, "--accumulate", str(pieces)]
    with tempfile.TemporaryDirectory() as directory:
        return test_train.result_of(Path(directory, "run.json"), ranks, *options)


@pytest.mark.parametrize("model", ["mlp", "cnn", "gpt"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("pieces", [1, 3])
def test_histories_equal_those_of_one_process(model: str, ranks: int, pieces: int) -> None:
    one, many = run(model, 1, 1), run(model, ranks, pieces)
    assert many["world_size"] == ranks
    for history in ("loss_history", "grad_norm_history"):
        np.testing.assert_allclose(many[history], one[history], rtol=1e-12, atol=0)
    assert many["accuracy"] == one["accuracy"]


@pytest.mark.parametrize("model", ["mlp", "cnn", "gpt"])
def test_the_same_command_gives_the_same_bytes(model: str) -> None:
    first = run(model, 4, 3)
    run.cache_clear()
    assert run(model, 4, 3)["parameters_sha256"] == first["parameters_sha256"]
