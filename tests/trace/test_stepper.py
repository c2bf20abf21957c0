"""The stepper shows what ranks held after each communication, in an order that could have been."""

from html.parser import HTMLParser

import numpy as np
import pytest

from minidist.comm.arrays import cut
from minidist.errors import UserError
from minidist.trace.stepper import step_through


def ring(comm, show):
    """Sum by hand, around a ring; rank r begins with 10**r, so a number's digits say whose parts are in it."""
    x = np.full(2 * comm.size + 1, 10.0**comm.rank)
    show(x=x)
    chunks = [x[piece] for piece in cut(x.size, comm.size)]
    rank, right, left = comm.rank, (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for step in range(comm.size - 1):
        mine, theirs = chunks[(rank - step) % comm.size], chunks[(left - step) % comm.size]
        received = np.empty_like(theirs)
        comm.sendrecv(mine, right, received, left)
        theirs += received
    for step in range(comm.size - 1):
        comm.sendrecv(chunks[(right - step) % comm.size], right, chunks[(rank - step) % comm.size], left)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_each_step_of_a_ring_adds_one_ranks_part_and_in_the_end_all_hold_the_sum(ranks):
    steps = step_through(ring, ranks)
    assert len(steps.held) == 1 + 2 * (ranks - 1)
    everything = float("1" * ranks)
    for rank in range(ranks):
        assert (steps.held[0][rank]["x"] == 10.0**rank).all()
        assert (steps.held[-1][rank]["x"] == everything).all()
        for step in range(1, ranks):  # the chunk that came has the parts of one rank more
            chunk = steps.chunks(step, rank, "x")[(rank - step) % ranks]
            assert str(int(chunk[0])).count("1") == step + 1


def test_a_rank_receives_no_sum_before_it_was_made():
    def gather_and_tell(comm, show):
        x = np.array([10.0**comm.rank])
        show(x=x)
        if comm.rank == 0:
            for source in (1, 2, 3):
                received = np.empty(1)
                comm.recv(received, source)
                x += received
            for dest in (1, 2, 3):
                comm.send(x, dest)
        else:
            comm.send(x, 0)
            comm.recv(x, 0)

    steps = step_through(gather_and_tell, 4)
    assert [held[0]["x"][0] for held in steps.held] == [1, 11, 111, 1111, 1111, 1111, 1111]
    assert [held[2]["x"][0] for held in steps.held] == [100, 100, 100, 100, 100, 1111, 1111]
    assert steps.did[5] == ["send to 2", "", "recv from 0", ""]


def test_what_is_sent_in_the_background_and_large_is_followed_too():
    def swap(comm, show):
        x, y = np.full(2000, float(comm.rank)), np.empty(2000)
        request = comm.isend(x, 1 - comm.rank)
        comm.recv(y, 1 - comm.rank)
        request.wait()
        show(y=y)  # only now: the start has no array
        comm.all_reduce(y, out=y)

    steps = step_through(swap, 2)
    assert steps.held[0] == [{}, {}]
    assert steps.did[-1] == ["all_reduce", "all_reduce"]
    assert (steps.held[-2][0]["y"] == 1).all()
    assert (steps.held[-1][0]["y"] == 1).all()
    assert (steps.held[-1][1]["y"] == 1).all()


def test_a_page_has_every_number_loads_nothing_and_escapes_names(tmp_path):
    name = '<script>alert("x")</script>'

    def program(comm, show):
        x = np.array([1 + comm.rank, np.nan, 0.12345, 1e20])
        show(**{name: x})
        comm.barrier()

    steps = step_through(program, 2)
    steps.save(tmp_path / "steps.html")
    text = (tmp_path / "steps.html").read_text(encoding="utf-8")

    class Reader(HTMLParser):
        def __init__(self):
            super().__init__()
            self.cells, self.scripts, self.linked = [], 0, []

        def handle_starttag(self, tag, attributes):
            self.cells += [""] * (tag == "td")
            self.scripts += tag == "script"
            self.linked += [value for key, value in attributes if key in ("src", "href", "id")]

        def handle_data(self, data):
            if self.lasttag == "td":
                self.cells[-1] += data.strip()

    reader = Reader()
    reader.feed(text)
    assert reader.cells == ["1 nan", "0.1235 1e+20", "2 nan", "0.1235 1e+20"] * 2
    assert reader.scripts == 1
    assert reader.linked == ["data:,"]
    assert name not in text


def test_what_cannot_be_shown_is_refused_in_a_sentence():
    with pytest.raises(UserError, match="x is float, expected a NumPy array"):
        step_through(lambda comm, show: show(x=1.0), 1)
    with pytest.raises(UserError, match="x has 5,000 numbers, and 4,096 are the most"):
        step_through(lambda comm, show: show(x=np.zeros(5000)), 1)


def test_messages_of_one_tag_that_are_waited_for_in_any_order_are_shown_too():
    def program(comm, show):
        got = np.zeros((2, 2000))
        show(got=got)
        requests = [comm.irecv(got[n], 1 - comm.rank) for n in (0, 1)]
        requests += [comm.isend(np.full(2000, 1.0 + n), 1 - comm.rank) for n in (0, 1)]
        for request in reversed(requests):
            request.wait()

    for _ in range(5):
        held = step_through(program, 2).held
        assert all((held[-1][rank]["got"].reshape(2, -1).T == [1, 2]).all() for rank in (0, 1))
