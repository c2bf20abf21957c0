"""The bytes from rank to rank are those that the counters count, whichever way they go."""

import numpy as np
import pytest

from minidist.trace.record import Recorder


@pytest.mark.ranks(2, 3)
def test_bytes_to_each_rank_add_up_to_the_counters_in_messages_and_in_shared_memory(comm):
    def counted() -> int:
        return sum(nbytes for _, nbytes in comm.counters.values())

    recorder = Recorder(comm)
    group, before = comm.split(0, name="group"), counted()
    assert group is not None
    with recorder:
        began = counted()
        group.all_reduce(np.ones(300_000))  # over MPI through the scratch, else by the ring
        shared = group.allocate_shared(5_000)
        group.all_reduce(shared, out=shared)
        group.iall_reduce(shared[:99], out=shared[:99]).wait()
        comm.reduce_scatter(np.ones(7))
        comm.broadcast(np.ones(5_000), root=comm.size - 1)
        dest, source = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        comm.sendrecv(np.ones(comm.rank + 1), dest, np.empty(source + 1), source)
    sent = recorder.messages.sent
    assert sent[comm.rank] == 0
    assert sum(sent) == counted() - began > 0
    assert began == before
    names = [span[1] for span in recorder.spans if span[0] == "communication"]
    assert names.count("all_reduce") >= 3
