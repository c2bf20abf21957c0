"""Meshes: how ranks are numbered, which groups there are, what cannot be formed."""

import numpy as np
import pytest

from minidist.comm import Mesh
from minidist.comm.mesh import check_axes, coordinates, group_number, nearest
from minidist.comm.threads import run_ranks
from minidist.errors import UserError


def test_the_last_axis_changes_fastest():
    axes = {"data": 2, "pipe": 2, "tensor": 3}
    table = [tuple(coordinates(rank, axes).values()) for rank in range(12)]
    assert table == [(d, p, t) for d in range(2) for p in range(2) for t in range(3)]
    assert coordinates(0, {}) == {}


def test_groups_are_the_ranks_that_differ_along_the_axes_alone():
    axes = {"data": 2, "pipe": 3}
    assert [group_number(rank, axes, ("data",)) for rank in range(6)] == [0, 1, 2, 0, 1, 2]
    assert [group_number(rank, axes, ("pipe",)) for rank in range(6)] == [0, 0, 0, 1, 1, 1]
    assert [group_number(rank, axes, ("data", "pipe")) for rank in range(6)] == [0] * 6


@pytest.mark.parametrize(
    ("ranks", "axes", "words"),
    [
        (
            4,
            {"data": 2, "tensor": 3},
            r"4 ranks cannot form data=2 x tensor=3 \(6\); try data=2,tensor=2 or ",
        ),
        (
            6,
            {"data": 2, "tensor": 2},
            r"6 ranks cannot form data=2 x tensor=2 \(4\); try data=2,tensor=3 or data=3,tensor=2 or ",
        ),
        (7, {"data": 2}, r"7 ranks cannot form data=2 \(2\); try data=7, or start 2 ranks"),
        (2, {}, "2 ranks cannot form a mesh without axes"),
        (4, {"data": 0}, "mesh axis data is 0, expected a whole number >= 1"),
        (4, {"data": 2.0}, "mesh axis data is 2.0"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(ranks, axes, words):
    with pytest.raises(UserError, match=words):
        check_axes(ranks, axes)


def test_the_nearest_choices_change_few_axes_a_little():
    assert nearest(8, {"data": 2, "pipe": 2, "tensor": 3})[0] == (2, 2, 2)
    assert all(np.prod(sizes) == 12 for sizes in nearest(12, {"a": 5, "b": 5}))


@pytest.mark.ranks(4)
def test_each_axis_has_its_communicator(comm):
    mesh = Mesh(comm, data=2, pipe=2, tensor=1)
    assert mesh.coordinates == {"data": comm.rank // 2, "pipe": comm.rank % 2, "tensor": 0}
    assert [mesh.size(axis) for axis in mesh.axes] == [2, 2, 1]
    assert mesh.comm("data").all_gather(comm.rank).tolist() == [comm.rank % 2, comm.rank % 2 + 2]
    assert mesh.comm("pipe").all_gather(comm.rank).tolist() == [comm.rank // 2 * 2, comm.rank // 2 * 2 + 1]
    assert (mesh.comm("data").rank, mesh.comm("pipe").rank) == (comm.rank // 2, comm.rank % 2)
    assert mesh.comm("data").name == "data"
    both = mesh.comm("pipe", "data")
    assert both is mesh.comm("data", "pipe")
    assert (both.rank, both.size, both.name) == (comm.rank, 4, "world")
    assert mesh.comm("data", "tensor").all_reduce(1) == 2


@pytest.mark.ranks(3, 4)
def test_a_part_of_an_axis_can_be_asked_for_by_its_ranks_alone(comm):
    mesh = Mesh(comm, data=1, pipe=3) if comm.size == 3 else Mesh(comm, data=2, pipe=2)
    mesh.name_part("ends", "pipe", (0, mesh.size("pipe") - 1))
    if mesh.coordinates["pipe"] == 1 and mesh.size("pipe") == 3:
        assert mesh.comm("ends").size == 1
        return  # without a word about ("data", "ends")
    assert mesh.comm("ends").size == 2
    assert mesh.comm("data", "ends").all_reduce(1) == 2 * mesh.size("data")


@pytest.mark.ranks(1, 3)
def test_axes_of_size_1_send_nothing(comm):
    before = comm.counters
    lone = comm.alone("lone")
    assert lone.all_reduce(2.0) == 2.0
    assert lone.all_gather(np.ones(3)).tolist() == [1.0] * 3
    lone.barrier()
    assert comm.counters == before
    assert lone.members == (comm.members[comm.rank],)
    if comm.size == 1:
        mesh = Mesh(comm, data=1, tensor=1)
        assert mesh.comm("data", "tensor").all_reduce(5) == 5
        assert comm.counters == before


def test_unknown_axes_are_named():
    def on_rank(comm):
        mesh = Mesh(comm, data=2)
        with pytest.raises(ValueError, match=r"axis 'pipe' is not in Mesh\(data=2\): expected one of 'data'"):
            mesh.comm("pipe")
        with pytest.raises(ValueError, match="each once"):
            mesh.comm("data", "data")
        with pytest.raises(ValueError, match="at least one"):
            mesh.comm()

    run_ranks(on_rank, 2)
