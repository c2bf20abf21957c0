"""Pictures of ideas show what the objects hold, and every text can be read: large enough, inside, upon no other."""

from functools import partial
from itertools import combinations
from unittest import mock

import numpy as np
import pytest

from minidist.autograd import Parameter
from minidist.comm import Mesh, guard
from minidist.comm.errors import DeadlockError
from minidist.comm.threads import run_ranks
from minidist.errors import UserError
from minidist.models import GPT, MLP
from minidist.nn import Placement, shares
from minidist.nn.flat import flatten
from minidist.optim import SGD, AdamW
from minidist.plan import cluster, cost, memory
from minidist.split import tensor_parallel
from minidist.split.replica import whole_loss
from minidist.sync.data_parallel import DataParallel
from minidist.sync.model_averaging import ModelAveraging
from minidist.sync.parameter_server import Link, ParameterServer
from minidist.sync.server import serve
from minidist.sync.zero import Zero

pytest.importorskip("matplotlib")
from minidist.trace import plot
from minidist.trace.plot.paths import LOSSES, Descent, Turns, walk
from minidist.trace.plot.wait_graph import waits_for


def texts_of(figure):
    """Give all texts that are seen, after checking that they can be read."""
    from matplotlib.text import Text

    found = []
    draw = Text.draw

    def note(text, renderer):
        found.extend([text] if text.get_text().strip() and text.get_visible() and text not in found else [])
        draw(text, renderer)

    with mock.patch.object(Text, "draw", note):
        figure.draw_without_rendering()
    boxes = [(text.get_text(), text.get_window_extent()) for text in found]
    for text, (words, box) in zip(found, boxes, strict=True):
        assert text.get_fontsize() >= 9, words
        assert figure.bbox.x0 <= box.x0, words
        assert box.x1 <= figure.bbox.x1, words
        assert figure.bbox.y0 <= box.y0, words
        assert box.y1 <= figure.bbox.y1, words
    for (words, a), (others, b) in combinations(boxes, 2):
        apart = a.x1 < b.x0 + 1 or b.x1 < a.x0 + 1 or a.y1 < b.y0 + 1 or b.y1 < a.y0 + 1  # pixels
        assert apart, (words, others)
    return [words for words, _ in boxes]


@pytest.mark.parametrize(("n", "batch", "ranks"), [(22, 5, 3), (3, 8, 4), (9, 9, 1), (10_000, 1000, 8)])
def test_who_read_names_every_row_once_or_how_many_each_rank_read(n, batch, ranks):
    numbers = [int(text) for text in texts_of(plot.who_read(n, batch, ranks)) if text.isdigit()]
    if n < 100:
        assert sorted(numbers) == list(range(n))
    else:
        assert numbers == [batch // ranks] * ranks * min(10, 16)


def split_layers(comm, sequence):
    model = GPT(8, 4, 1, 8, 4, seed=None)
    tensor_parallel.parallelize(model, Mesh(comm, tensor=comm.size), sequence)
    block = model.blocks[0]
    return block.attention.queries_keys_values, block.narrow


@pytest.mark.parametrize("sequence", [False, True])
def test_a_cut_weight_has_its_ranks_parts_and_its_collective(sequence):
    columns, rows = zip(*run_ranks(split_layers, 2, sequence), strict=True)
    texts = texts_of(plot.cut_weight(columns, "queries_keys_values.weight"))
    assert [text for text in texts if text.isdigit()] == ["0", "0", "0", "1", "1", "1"] * 2  # W and y
    assert any(
        ("reduce-scatter" if sequence else "all-reduce") in text and "backward" in text for text in texts
    )
    texts = texts_of(plot.cut_weight(rows))
    assert [text for text in texts if text.isdigit()] == ["0", "1"] * 2  # x and W
    assert any(
        ("reduce-scatter" if sequence else "all-reduce") in text and "forward" in text for text in texts
    )
    texts = texts_of(plot.cut_weight(rows[1], "a_very_long_name." * 9))
    assert [text for text in texts if text.isdigit()] == ["1", "1"]


def test_a_cut_weight_is_drawn_from_shapes_too_and_one_that_is_not_cut_is_refused():
    texts_of(plot.cut_weight([Placement((1, 100_000), 1, here) for here in shares(100_000, 8)]))
    with pytest.raises(UserError, match="this weight is not cut"):
        plot.cut_weight(Placement((4, 6)))


def sync_of(comm, stage, bytes_per_bucket):
    groups, mesh = flatten(MLP([8, 16, 8, 4])), Mesh(comm, data=comm.size)
    if stage:
        return Zero(mesh, groups, AdamW(groups, 0.1), bytes_per_bucket=bytes_per_bucket, stage=stage)
    return DataParallel(mesh, groups, AdamW(groups, 0.1), bytes_per_bucket=bytes_per_bucket)


@pytest.mark.parametrize(("ranks", "stage", "size"), [(1, 0, 1 << 20), (3, 2, 600), (8, 3, 1), (3, 0, 600)])
def test_buckets_lie_where_the_sync_has_them_and_their_owners_too(ranks, stage, size):
    sync = run_ranks(sync_of, ranks, stage, size)[ranks - 1]
    figure = plot.buckets(sync)
    texts_of(figure)
    (ax,) = figure.axes
    (group,) = sync.groups
    boxes = [(patch.get_x(), patch.get_y(), patch.get_width()) for patch in ax.patches]
    heights = sorted({y for _, y, _ in boxes})
    scale = group.weights.size / max(x + width - 1.05 for x, y, width in boxes if y == heights[0])

    def row(place):
        return [
            (round((x - 1.05) * scale), round(width * scale)) for x, y, width in boxes if y == heights[place]
        ]

    assert row(0) == [(entry.offset, entry.size) for entry in group.layout]
    assert row(1) == [(bucket.region.start, bucket.size) for bucket in sync.buckets]
    if stage:
        own = [(shard.region.start, shard.region.stop - shard.region.start) for shard in sync.shards]
        assert row(2)[ranks - 1 :: ranks] == own


def test_memory_bars_are_as_long_as_what_is_held():
    held = memory.stages(flatten(MLP([8, 16, 8, 4])), ranks=4, slots=2, bytes_per_bucket=600)
    figure = plot.memory_bars(held)
    texts_of(figure)
    widths = [patch.get_width() for patch in figure.axes[0].patches]
    parts = [part.nbytes for stage in held.values() for part in stage]
    assert np.allclose(np.array(widths) * 1000, parts)
    whole = sum(part.nbytes for part in held["stage 0"])
    assert sum(part.nbytes for part in held["stage 3"] if part.always) < whole / 3


def test_the_tape_is_drawn_with_operations_shapes_and_parameters_and_changes_no_gradient():
    model = MLP([6, 5, 4])
    flatten(model)
    loss = whole_loss(model(np.ones((3, 6), np.float32)), np.zeros(3, np.int64), 3)
    texts = texts_of(plot.tape(loss))
    operations = ["linear through relu (3, 5)", "linear (3, 4)", "cross_entropy ()"]
    assert [text for text in texts if text in operations] == operations
    for name, parameter in model.named_parameters():
        assert f"{name} {parameter.shape}" in texts
        assert parameter.grad is not None
        assert not parameter.grad.any()
    loss.backward()
    assert model.layers[0].weight.grad.any()


def test_a_tape_with_branches_and_long_names_can_be_read_and_a_deep_one_is_refused():
    w = Parameter(np.ones((3, 3)), name="blocks.0.attention.a_very_long_name.weight")
    figure = plot.tape(((w @ w) + w * w + (w - 2.0)).sum())
    assert [text.split()[0] for text in texts_of(figure)[2:] if "blocks" not in text] == [
        "matmul",
        "multiply",
        "add",
        "subtract",
        "add",
        "sum",
    ]
    deep = w
    for _ in range(50):
        deep = deep * 2.0
    with pytest.raises(UserError, match="the tape has 50 operations, and 40 can be read"):
        plot.tape(deep)
    with pytest.raises(UserError, match="not computed on the tape"):
        plot.tape(w)


def caught(program, ranks):
    """Give the error of a deadlock, with or without the guard."""
    with pytest.raises(DeadlockError) as error:
        run_ranks(program, ranks)
    return error.value


def receive_from_the_next(comm, guarded=True):
    if guarded:
        guard.watch(comm)
    got = np.empty(3)
    comm.recv(got, (comm.rank + 1) % comm.size)


def leave_out_a_collective(comm):
    guard.watch(comm)
    x = np.ones(3)
    if comm.rank == 2:
        comm.recv(x, 0)
    elif comm.rank != 3:
        comm.all_reduce(x)


def test_the_graph_of_a_deadlock_has_an_arrow_for_each_wait():
    for ranks in (1, 3, 8):
        error = caught(receive_from_the_next, ranks)
        assert {rank: waits_for(rank, error.standings) for rank in range(ranks)} == {
            rank: [(rank + 1) % ranks] for rank in range(ranks)
        }
        texts = texts_of(plot.wait_graph(error))
        assert "Who waits for whom: cycle" in texts
        assert f"rank 0: recv(source={1 % ranks}, tag=0)" in texts
    error = caught(leave_out_a_collective, 4)
    assert [waits_for(rank, error.standings) for rank in range(4)] == [[2, 3], [2, 3], [0], []]
    assert "rank 3: has finished" in texts_of(plot.wait_graph(error))


def test_a_deadlock_that_nobody_watched_is_refused_with_the_remedy():
    error = caught(lambda comm: receive_from_the_next(comm, guarded=False), 2)
    with pytest.raises(UserError, match=r"guard\.watch\(comm\)"):
        plot.wait_graph(error)


def test_replicas_walk_as_their_sync_says():
    together = walk(LOSSES, partial(DataParallel, shared_memory=False), 8)
    averaged = walk(LOSSES, partial(ModelAveraging, every=4), 8)
    assert (together[0] == together[1]).all()
    assert [bool((a == b).all()) for a, b in zip(*averaged, strict=True)] == [1, 0, 0, 0, 1, 0, 0, 0, 1]
    place = np.array([-2.0, 1.6])
    for here in together[0]:  # plain descent on the mean of the losses
        np.testing.assert_allclose(here, place, rtol=1e-12)
        place = place - 0.1 * np.mean([np.array(steep) * (place - least) for least, steep in LOSSES], 0)
    texts = texts_of(
        plot.paths({"data parallel": together, "every 4 steps": averaged, "again": averaged}, LOSSES)
    )
    assert {"replica 0", "replica 1", "least mean loss", "every 4 steps"} <= set(texts)
    texts_of(plot.paths({"alone": walk(LOSSES[:1], partial(ModelAveraging, every=4), 3)}, LOSSES[:1]))


def test_stale_updates_are_walked_in_an_order_that_can_be_repeated():
    turns = Turns([0, 0, 0, 1] * 3)

    def one_rank(comm):
        link = Link(comm, 2)
        if link.serves:
            return serve(link, SGD([], lr=1.0))
        make = partial(ParameterServer, link=link, slack=None)
        descent = Descent(Mesh(link.peers, data=2), LOSSES[comm.rank], make, lr=0.1)
        for _ in turns.of(comm.rank):
            descent.step()
        descent.sync.finish()
        return np.array(descent.places)

    walks = run_ranks(one_rank, 3)[:2]
    assert [len(way) for way in walks] == [10, 4]
    here, server = [np.array([-2.0, 1.6])] * 2, np.array([-2.0, 1.6])
    for whose in [0, 0, 0, 1] * 3:  # the gradient is of the weights that were pulled last, half of the batch
        least, steep = LOSSES[whose]
        server = server - 0.1 * 0.5 * np.array(steep) * (here[whose] - least)
        here[whose] = server
    np.testing.assert_allclose([way[-1] for way in walks], here, rtol=1e-12)


def test_the_crossover_is_where_the_formulas_cross():
    link = cluster.Link(1e-4, 1e8)
    figure = plot.ring_or_tree(
        lambda nbytes, way: cost.all_reduce(nbytes // 8, 8, 4, link, way), ("ring", "tree")
    )
    texts = texts_of(figure)
    (size,) = [line.get_xdata()[0] for line in figure.axes[0].lines if line.get_linestyle() == ":"]
    # 4 a + 4 n/B = 6 a + 1.5 n/B
    assert size == pytest.approx(2 * 1e-4 * 1e8 / 2.5, rel=1e-6)
    assert any("The fastest: tree; from 8 kB on ring" in " ".join(text.split()) for text in texts)
    texts_of(plot.ring_or_tree(lambda nbytes, way: 0.0, measured={"mpi": [(1e3, 1e-6), (1e9, 100.0)]}))
    texts_of(plot.ring_or_tree(lambda nbytes, way: 0.0))
