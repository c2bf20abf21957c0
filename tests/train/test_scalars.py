"""`--tensorboard`: the file that TensorBoard reads holds every loss once, also of a run that was interrupted."""

import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from minidist.comm.threads import run_ranks
from minidist.errors import UserError
from minidist.train.__main__ import main
from minidist.train.options import parse
from minidist.train.run import run
from minidist.train.scalars import check


def curves(directory: Path) -> dict[str, dict[int, float]]:
    """Read all files as TensorBoard does: each record is a length and its checksum, an event and its checksum."""
    from tensorboardX.proto.event_pb2 import Event

    found: dict[str, dict[int, float]] = {}
    for path in sorted(directory.glob("events.out.tfevents.*"), key=lambda path: path.stat().st_mtime_ns):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + length])
            at += length + 16
            if event.HasField("session_log"):  # what comes later than this was written before an interruption
                for curve in found.values():
                    for step in [step for step in curve if step >= event.step]:
                        del curve[step]
            for value in event.summary.value:
                curve = found.setdefault(value.tag, {})
                assert event.step not in curve
                curve[event.step] = value.simple_value
    return found


def trained(ranks: int, *words: str) -> dict[str, Any]:
    command = ["--quiet", "--batch", "300", "--hidden", "8", *words]  # 5 steps an epoch
    return run_ranks(lambda comm: run(parse(command), comm), ranks)[0]


def test_the_file_holds_every_loss_and_what_else_is_known(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="pip install 'minidist[tensorboard]'")
    result = trained(2, "--steps", "7", "--tensorboard", str(tmp_path))
    found = curves(tmp_path)
    assert list(found["train/loss"]) == list(range(1, 8))
    assert list(found["train/loss"].values()) == pytest.approx(result["loss_history"], rel=1e-6)
    assert found["test/accuracy"] == {7: pytest.approx(result["accuracy"])}
    assert found["train/learning_rate"] == {5: pytest.approx(0.1), 7: pytest.approx(0.1)}
    assert found["train/bytes_sent_by_rank_0"][7] > found["train/bytes_sent_by_rank_0"][5] > 0
    assert sorted(found["train/seconds"]) == [5, 7]


def test_a_resumed_run_goes_on_where_its_checkpoint_was_made(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="pip install 'minidist[tensorboard]'")
    checkpoint, board = tmp_path / "kept", tmp_path / "board"
    words = ["--checkpoint", str(checkpoint), "--tensorboard", str(board)]
    trained(1, "--steps", "4", *words)
    # As if that run had gone on for two steps more, and had been killed before it saved again.
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(board), filename_suffix=".more") as writer:
        for step in (5, 6):
            writer.add_scalar("train/loss", 99.0, step)
    result = trained(1, "--steps", "7", "--resume", *words)
    losses = curves(board)["train/loss"]
    assert list(losses) == list(range(1, 8))
    assert list(losses.values()) == pytest.approx(result["loss_history"], rel=1e-6)


def test_what_cannot_be_written_is_refused_before_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setitem(sys.modules, "tensorboardX", sys)  # any module: nothing gets as far as to use it
    assert main(["--tensorboard", str(tmp_path / "file")]) == 2
    assert "file: nothing can be written there (File exists)" in capsys.readouterr().err
    (tmp_path / "events.out.tfevents.1.other").touch()
    with pytest.raises(UserError, match="has the curves of a training: name another directory"):
        check(parse(["--tensorboard", str(tmp_path)]))
    with pytest.raises(UserError, match="leave --tensorboard out, or --explain"):
        parse(["--explain", "--tensorboard", str(tmp_path)])
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(UserError, match=r"tensorboardX: pip install 'minidist\[tensorboard\]'"):
        check(parse(["--tensorboard", str(tmp_path / "new")]))
    assert not (tmp_path / "new").exists()
