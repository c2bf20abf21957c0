"""What is particular to MPI: polite waits and tags."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from minidist.comm import ANY_SOURCE, CommError
from minidist.comm.mpi import Endpoint


@pytest.mark.ranks(2, transports=("mpi",))
def test_a_waiting_rank_leaves_its_core_to_others(comm):
    if comm.rank == 1:
        time.sleep(0.5)
        comm.send(1.0, 0)
    else:
        start = time.process_time()
        comm.recv(np.empty(()), 1)
        assert time.process_time() - start < 0.25  # a wait inside MPI takes all of the 0.5 s


@pytest.mark.ranks(2, transports=("mpi",))
def test_a_waiting_rank_looks_for_ranks_that_have_left(comm):
    from minidist.comm import leaving

    for number, source in enumerate((1, ANY_SOURCE)):
        looks, look = [], leaving.look

        def note(pending, describe, number=number, looks=looks):
            if not looks:
                comm.isend(1.0, 1, tag=8 + number)  # now the message that is waited for may come
            looks.append(([request.peer for request in pending], describe()))

        if comm.rank == 1:
            comm.recv(np.empty(()), 0, tag=8 + number)
            comm.send(1.0, 0, tag=3)
            continue
        leaving.look = note
        try:
            comm.recv(np.empty(()), source, tag=3)
        finally:
            leaving.look = look
        assert looks[0][0] == [comm.members[1] if source == 1 else None]
        assert looks[0][1].startswith(f"recv(source={source}, tag=3) on ")


@pytest.mark.parametrize("largest", [32767, 2**29 - 1, 2**31 - 1])
def test_tags_are_cut_from_what_this_mpi_has(largest):
    world = SimpleNamespace(Get_attr=lambda name: largest, Get_rank=lambda: 0, Get_size=lambda: 1)
    endpoint = Endpoint(SimpleNamespace(TAG_UB="largest tag", COMM_WORLD=world), world, [0], [0])
    parts = [range(endpoint.largest_tag + 1), endpoint.payload_tags, endpoint.collective_tags]
    assert parts[0][-1] < parts[1][0] <= parts[1][-1] < parts[2][0] <= parts[2][-1] <= largest
    assert endpoint.largest_tag == min(2**26, (largest + 1) // 2) - 1


def test_when_mpi_has_no_further_communicator_the_way_out_is_said():
    class Refused(Exception):
        """As MPICH words it."""

        def __str__(self):
            return (
                "Other MPI error, error stack:\ninternal_Comm_split(87)\nToo many communicators (0/2048 free)"
            )

    def refuse(*_):
        raise Refused

    world = SimpleNamespace(
        Get_attr=lambda name: 32767, Get_rank=lambda: 0, Get_size=lambda: 1, Split=refuse, Dup=refuse
    )
    mpi = SimpleNamespace(TAG_UB="largest tag", COMM_WORLD=world, COMM_SELF=world, Exception=Refused)
    endpoint = Endpoint(mpi, world, [0], [0])
    for make in (lambda: endpoint.split(0, 0, [0]), endpoint.alone):
        with pytest.raises(
            CommError, match=r"\(Too many communicators .*\): split, or make a mesh, once before"
        ):
            make()
