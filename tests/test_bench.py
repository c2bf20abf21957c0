"""The benchmark compares like with like, counts right, and writes what it promises. No speed is asserted."""

import json
import os

import numpy as np
import pytest

from minidist import _kernels as kernels
from minidist.bench import __main__ as bench
from minidist.bench import comm, in_numpy, ladder, measure, roofline, step
from minidist.bench import kernels as kernel_suite
from minidist.bench.kernels import random
from minidist.comm import world
from minidist.trace.processor import Processor

SMALL = step.Mlp((6, 5, 4, 3), batch=8)


def row(**changes):
    fields = {"suite": "kernels", "name": "gelu", "shape": (64, 10), "dtype": "float32", "threads": 1}
    return measure.Row(**{**fields, "ours_seconds": 2e-6, "peer": "NumPy", "peer_seconds": 6e-6, **changes})


def test_what_is_compared_takes_turns_and_the_order_changes(monkeypatch):
    monkeypatch.setattr(measure, "SECONDS_PER_BLOCK", 0.0)  # one call at a time
    called = []
    times = measure.medians([lambda: called.append("a"), lambda: called.append("b")], 0.0)
    assert len(times) == 2
    assert called[4:] == list("abbaabbaab")  # after two calls each to warm up


def test_a_block_in_which_another_process_had_the_core_does_not_count():
    quiet, disturbed = measure.Block(1.0, 0.99), measure.Block(2.0, 0.5)
    assert measure.undisturbed([disturbed, quiet] * 6) == [1.0] * 6
    assert sorted(measure.undisturbed([quiet, disturbed, disturbed] * 2)) == [1.0, 1.0, 2.0, 2.0, 2.0]


def test_on_a_busy_machine_it_goes_on_up_to_three_times_as_long():
    quiet, disturbed = [measure.Block(1.0, 0.99)] * 5, [measure.Block(1.0, 0.5)] * 5
    assert not measure.enough([quiet, quiet], 0.9, 1.0)
    assert measure.enough([quiet, quiet], 1.1, 1.0)
    assert not measure.enough([quiet, disturbed], 2.9, 1.0)
    assert measure.enough([quiet, disturbed], 3.1, 1.0)


def test_a_ratio_above_1_means_that_ours_is_faster():
    assert row().ratio == pytest.approx(3)
    assert row(ours_seconds=12e-6).ratio == pytest.approx(0.5)


def test_the_json_has_these_keys_and_no_others():
    keys = ["suite", "name", "shape", "dtype", "threads", "ours_seconds", "peer", "peer_seconds", "ratio"]
    assert list(row().as_json()) == keys
    assert json.loads(json.dumps(row().as_json()))["shape"] == [64, 10]


def test_there_is_a_row_for_each_peer():
    case = measure.Case("x", (1,), "float32", int, {"one": int, "two": int}, flops=1.0)
    rows = list(measure.measure("kernels", [case], Processor(), 1, 0.0))
    assert [r.peer for r in rows] == ["one", "two"]
    assert rows[0].ours_seconds == rows[1].ours_seconds


def test_a_roof_is_the_longer_of_arithmetic_and_bytes(monkeypatch):
    monkeypatch.setattr(Processor, "peak", lambda self, dtype: 100.0)
    monkeypatch.setattr(Processor, "bandwidth", lambda self, nbytes: 10.0)
    assert Processor().roof_seconds("float32", flops=300.0, nbytes=20.0) == 3.0
    assert Processor().roof_seconds("float32", flops=300.0, nbytes=50.0) == 5.0
    assert Processor().roof_seconds("float32", flops=300.0, nbytes=0.0) == 3.0


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds nobody")
def test_the_process_is_bound_to_one_core_only_while_it_measures():
    before = os.sched_getaffinity(0)
    with measure.pinned(1):
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before


def close(ours, theirs):
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-4, atol=2e-5)


def test_the_opponents_in_numpy_compute_what_the_kernels_compute():
    x, grad, gain, bias = random(7, 5), random(5, 7).T.copy(), random(5), random(5)
    labels, each = np.arange(7) % 5, np.full(7, 1 / 7, np.float32)

    losses, sums, exponentials = kernels.cross_entropy(x, labels)
    close(
        (losses, kernels.cross_entropy_backward(exponentials, labels, sums, each)),
        in_numpy.cross_entropy(x, labels, each),
    )
    y, mean, rstd = kernels.layer_norm(x, gain, bias, 1e-5)
    close(
        (y, *kernels.layer_norm_backward(grad, x, gain, mean, rstd)), in_numpy.layer_norm(grad, x, gain, bias)
    )
    close((kernels.gelu(x), kernels.gelu_backward(grad, x)), in_numpy.gelu(grad, x))
    y = kernels.relu(x)
    close((y, kernels.relu_backward(grad, y)), in_numpy.relu(grad, x))
    close([kernels.softmax(x)], [in_numpy.softmax(x)])


def test_the_attention_in_numpy_computes_what_the_tape_computes():
    from minidist.autograd import Tensor, ops

    q, k, v, grad = random(4, 2, 3, 6, 4)
    inputs = [Tensor(array, requires_grad=True) for array in (q, k, v)]
    y = ops.causal_attention(*inputs)
    y.backward(grad)
    close((y.data, *(t.grad for t in inputs)), in_numpy.causal_attention(q, k, v, grad))


def test_the_updates_in_numpy_compute_what_the_kernels_compute():
    g = random(50)
    ours = [random(50), np.full(50, 0.1, np.float32), np.full(50, 0.2, np.float32)]
    theirs = [array.copy() for array in ours]
    kernels.adamw(ours[0], g, ours[1], ours[2], 3, 1e-2, 0.9, 0.999, 1e-8, 0.01, 1.0)
    in_numpy.adamw(theirs[0], g, theirs[1], theirs[2], np.empty_like(g), 3, 1e-2, 0.01)
    close(ours, theirs)
    kernels.sgd(ours[0], g, ours[1], 1e-2, 0.9, 0.0, 1.0)
    in_numpy.sgd(theirs[0], g, theirs[1], np.empty_like(g), 1e-2, 0.9)
    close(ours, theirs)


def test_the_step_by_hand_goes_the_same_way_as_ours():
    ours, by_hand = step.our_step(SMALL, world()), step.by_hand(SMALL)
    losses = [(ours(), by_hand()) for _ in range(20)]
    assert losses[0][0] > losses[-1][0]
    np.testing.assert_allclose(*zip(*losses, strict=True), rtol=1e-4)


def test_the_products_of_a_step_are_those_that_its_layers_need():
    assert step.Mlp((6, 5, 3), batch=8).products() == [
        ((8, 6), (6, 5)),  # forward
        ((6, 8), (8, 5)),  # weight gradient; nobody needs the gradient of the images
        ((8, 5), (5, 3)),
        ((5, 8), (8, 3)),
        ((8, 3), (3, 5)),
    ]
    gpt = step.Gpt(layers=2, width=8, heads=2, time=4, batch=3, vocabulary=5)
    assert len(gpt.products()) == 2 * (6 + 4 * 3) + 3
    step.products_alone(gpt)()  # all of them fit


def test_a_step_of_the_transformer_lowers_its_loss():
    make = step.our_step(step.Gpt(layers=1, width=8, heads=2, time=4, batch=3, vocabulary=5), world())
    losses = [make() for _ in range(10)]
    assert losses[-1] < losses[0]


def test_the_memory_that_a_step_needs_is_counted():
    peak, needed = step.peak_memory(SMALL)
    parameters = 6 * 5 + 5 + 5 * 4 + 4 + 4 * 3 + 3
    assert needed == 4 * (2 * parameters + 8 * (5 + 4 + 3)) + 8 * 6 * 4 + 8 * 8
    assert peak > needed / 2


def test_importing_takes_time():
    assert step.import_seconds() > 0


def test_all_cases_run_and_their_bytes_and_operations_are_counted(monkeypatch):
    monkeypatch.setattr(kernel_suite, "SQUARES", (16, 32, 64, 128, 8))
    cases = list(kernel_suite.cases(quick=False))
    products = [case for case in cases if case.name.startswith("matmul")]
    assert {case.name for case in products} == {"matmul x @ w", "matmul g @ w.T", "matmul x.T @ g"}
    assert len({case.shape for case in products}) >= 25
    for case in kernel_suite.cases(quick=True):
        assert case.flops > 0
        assert case.nbytes > 0
        case.ours()
        for peer in case.peers.values():
            peer()


@pytest.mark.ranks(2, transports=("mpi",))
def test_two_ranks_measure_every_way_of_all_reduce(comm):
    from minidist.bench.comm import WAYS, all_reduce_medians

    times = all_reduce_medians(comm, 4096, 0.0)
    assert tuple(times) == WAYS
    assert min(times.values()) > 0


@pytest.fixture
def short(monkeypatch):
    """Let the command measure little."""
    for seconds in ("QUICK_SECONDS", "SECONDS"):
        monkeypatch.setattr(bench, seconds, dict.fromkeys(bench.SUITES, 0.0))
    monkeypatch.setattr(measure, "SECONDS_PER_BLOCK", 0.0)
    monkeypatch.setattr(kernel_suite, "cases", lambda quick: kernel_suite.fused(4, 3))
    monkeypatch.setattr(step, "WORKS", (SMALL,))
    monkeypatch.setattr(step, "import_seconds", lambda: 0.1)
    monkeypatch.setattr(comm, "rows", lambda quick, seconds: iter([row(suite="comm", name="all_reduce")]))


def test_the_command_prints_rows_and_writes_them(short, tmp_path, capsys):
    path = tmp_path / "rows.json"
    assert bench.main(["--quick", "--json", str(path)]) == 0
    rows = json.loads(path.read_text())
    assert {r["suite"] for r in rows} == {"kernels", "step", "comm"}
    printed = capsys.readouterr().out
    assert "gelu of 4x3" in printed
    assert "NumPy by hand" in printed
    assert "import minidist: 0.100 s" in printed
    assert "memory: at most" in printed


def test_the_ladder_is_climbed_step_by_step(short, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(ladder, "STEPS", (("naive", np.matmul), ("threaded", np.matmul)))
    monkeypatch.setattr(ladder, "SQUARES", (4, 5))
    path = tmp_path / "rows.json"
    assert bench.main(["--ladder", "--json", str(path)]) == 0
    rows = [(r["name"], r["shape"]) for r in json.loads(path.read_text())]
    assert rows == [(name, [n] * 3) for n in (4, 5) for name in ("naive", "threaded")]
    capsys.readouterr()


def test_without_a_compiler_there_is_no_ladder_and_that_is_said(monkeypatch, capsys):
    monkeypatch.setattr(ladder, "STEPS", ())
    assert bench.main(["--ladder"]) == 2
    assert "that needs a C compiler: python -m minidist.doctor" in capsys.readouterr().err


def test_one_suite_can_be_asked_for(short, tmp_path, capsys):
    path = tmp_path / "rows.json"
    assert bench.main(["comm", "--quick", "--json", str(path)]) == 0
    assert {r["suite"] for r in json.loads(path.read_text())} == {"comm"}
    capsys.readouterr()


def test_a_suite_that_is_none_is_refused_with_the_choices(capsys):
    with pytest.raises(SystemExit):
        bench.main(["kernel"])
    assert "there is no suite 'kernel'; choose from kernels, step, comm" in capsys.readouterr().err


def test_a_picture_without_matplotlib_is_refused_before_anything_is_measured(monkeypatch, capsys):
    monkeypatch.setattr(roofline.util, "find_spec", lambda name: None)
    assert bench.main(["--plot", "roof.png"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "minidist.bench: --plot needs matplotlib: pip install matplotlib\n"


def test_a_path_that_cannot_be_written_is_refused_before_anything_is_measured(capsys):
    assert bench.main(["--json", "/nowhere/rows.json"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "/nowhere" in said.err


def test_times_are_written_with_three_digits():
    assert [bench.duration(s) for s in (2.5, 0.0123, 4.56e-5, 7.89e-7)] == [
        "2.5 s",
        "12.3 ms",
        "45.6 us",
        "789 ns",
    ]


def test_a_picture_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "roof.png"
    roofline.draw([row(flops=1e4, nbytes=1e4)], Processor(), path)
    assert path.read_bytes().startswith(b"\x89PNG")
