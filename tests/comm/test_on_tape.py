"""Collectives with gradients: every row of the table against differences of the one loss that the ranks share.

Each rank knows all ranks' inputs, so it can compute the one loss alone, in NumPy. What the ranks compute together must
be that number, and what backward leaves on a rank must be its derivative with respect to the rank's own input.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from minidist.autograd import Parameter, Tensor, no_grad, ops
from minidist.comm import Communicator, on_tape
from minidist.random import normal


def numbers(shape: Sequence[int], rank: int = 0) -> np.ndarray:
    return normal(3, "numbers", rank, 0, int(np.prod(shape))).reshape(shape)


def use(x, rank: int):
    """Use a value in rank's own way: one number, curved, with a derivative for every element."""
    weights = np.cos(np.arange(1, x.size + 1) + rank).reshape(x.shape)
    return ((x * x + x) * weights).sum()


def differences(loss: Callable[[np.ndarray], float], x: np.ndarray) -> np.ndarray:
    gradient = np.empty_like(x)
    for index in np.ndindex(x.shape):
        sides = []
        for h in (6e-6, -6e-6):
            moved = x.copy()
            moved[index] += h
            sides.append(loss(moved))
        gradient[index] = (sides[0] - sides[1]) / 12e-6
    return gradient


def check(
    comm: Communicator,
    inputs: list[np.ndarray],  # of all ranks
    here: Callable[[Tensor], Tensor],  # this rank's share of the one loss, or the loss itself
    loss: Callable[[list[np.ndarray]], float],
    same: bool = False,  # whether the inputs are one value
    summed: bool = True,  # whether the loss is the sum of the ranks' shares
) -> None:
    x = Tensor(inputs[comm.rank], requires_grad=True)
    share = here(x)
    total = float(comm.all_reduce(share.data)) if summed else share.item()
    np.testing.assert_allclose(total, loss(inputs), rtol=1e-12, atol=1e-12)
    share.backward()

    def moved(mine: np.ndarray) -> float:
        return loss([mine if same or rank == comm.rank else other for rank, other in enumerate(inputs)])

    expected = differences(moved, inputs[comm.rank])
    got = np.zeros_like(expected) if x.grad is None else x.grad
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-7 * np.abs(expected).max(initial=1))


def every(comm: Communicator, shape: Sequence[int], same: bool = False) -> list[np.ndarray]:
    return [numbers(shape, 0 if same else rank) for rank in range(comm.size)]


def cut(comm: Communicator, whole: np.ndarray, dim: int, counts: Sequence[int] | None) -> list[np.ndarray]:
    return np.array_split(whole, comm.size if counts is None else np.cumsum(counts)[:-1], dim)


def odd_counts(comm: Communicator) -> list[int]:
    """Pieces that are not as equal as can be, one of them empty, where there is more than one: 7 in all."""
    return {1: [7], 2: [2, 5], 3: [4, 0, 3], 4: [1, 3, 0, 3]}[comm.size]


def uses(xs: Sequence[np.ndarray]) -> float:
    return float(sum(use(x, rank) for rank, x in enumerate(xs)))


SHAPE = (2, 7, 3)
CUTS = [(0, False), (1, False), (2, False), (1, True)]  # dim, whether by odd counts


@pytest.mark.ranks(1, 2, 3, 4, transports=("threads",))
def test_enter_and_all_reduce(comm: Communicator) -> None:
    check(
        comm,
        every(comm, SHAPE, same=True),
        lambda x: use(on_tape.enter(comm, x), comm.rank),
        uses,
        same=True,
    )
    check(
        comm,
        every(comm, SHAPE),
        lambda x: use(on_tape.all_reduce(comm, x), 0),
        lambda xs: use(sum(xs), 0),
        summed=False,
    )
    # Between the two every rank computes something else, and before and behind them all the same.
    check(
        comm,
        every(comm, SHAPE, same=True),
        lambda x: use(on_tape.all_reduce(comm, use(on_tape.enter(comm, x * x), comm.rank)), 0),
        lambda xs: use(np.asarray(uses([x * x for x in xs])), 0),
        same=True,
        summed=False,
    )


@pytest.mark.parametrize(("dim", "odd"), CUTS)
@pytest.mark.ranks(1, 2, 3, 4, transports=("threads",))
def test_pieces_are_joined_and_cut(comm: Communicator, dim: int, odd: bool) -> None:
    counts = odd_counts(comm) if odd else None
    parts = cut(comm, numbers(SHAPE), dim, counts)
    check(
        comm,
        parts,
        lambda x: use(on_tape.all_gather(comm, x, dim, counts), comm.rank),
        lambda xs: uses([np.concatenate(xs, dim)] * comm.size),
    )
    check(
        comm,
        parts,
        lambda x: use(on_tape.all_gather_alike(comm, x, dim, counts), 0),
        lambda xs: use(np.concatenate(xs, dim), 0),
        summed=False,
    )
    check(
        comm,
        every(comm, SHAPE, same=True),
        lambda x: use(on_tape.own_slice(comm, x, dim, counts), comm.rank),
        lambda xs: uses(cut(comm, xs[0], dim, counts)),
        same=True,
    )
    check(
        comm,
        every(comm, SHAPE),
        lambda x: use(on_tape.reduce_scatter(comm, x, dim, counts), comm.rank),
        lambda xs: uses(cut(comm, sum(xs), dim, counts)),
    )


@pytest.mark.parametrize(("i", "j", "odd"), [(0, 1, False), (1, 0, True), (1, 2, False), (2, 1, True)])
@pytest.mark.ranks(1, 2, 3, 4, transports=("threads",))
def test_pieces_along_one_dim_become_pieces_along_another(
    comm: Communicator, i: int, j: int, odd: bool
) -> None:
    shape = (5, 7, 6)
    counts = odd_counts(comm) if odd else None
    before, after = (counts, None) if i == 1 else (None, counts if j == 1 else None)
    parts = cut(comm, numbers(shape), i, before)
    held = [part.shape[i] for part in parts]
    check(
        comm,
        parts,
        lambda x: use(on_tape.all_to_all(comm, x, i, j, held, after), comm.rank),
        lambda xs: uses(cut(comm, np.concatenate(xs, i), j, after)),
    )


@pytest.mark.ranks(1, 2, 3, 4, transports=("threads",))
def test_broadcast_and_reduce(comm: Communicator) -> None:
    for root in {0, comm.size - 1}:
        inputs = every(comm, SHAPE)
        check(
            comm,
            inputs,
            lambda x, root=root: use(
                on_tape.broadcast(comm, x if comm.rank == root else None, root), comm.rank
            ),
            lambda xs, root=root: uses([xs[root]] * comm.size),
        )

        def reduced(x: Tensor, root: int = root) -> Tensor:
            y = on_tape.reduce(comm, x * x, root)
            return use(y, 0) if comm.rank == root else y

        check(comm, inputs, reduced, lambda xs: use(sum(x * x for x in xs), 0))


@pytest.mark.ranks(2, 3, 4, transports=("threads",))
def test_a_value_goes_to_another_rank_and_its_gradient_comes_back(comm: Communicator) -> None:
    last = comm.size - 1

    def chain(x: Tensor) -> Tensor:
        """Multiply all ranks' values on the way from rank 0 to the last."""
        if comm.rank:
            x = x * on_tape.receive(comm, SHAPE, x.dtype, comm.rank - 1)
        return on_tape.send(comm, x, comm.rank + 1) if comm.rank < last else use(x, 0)

    check(comm, every(comm, SHAPE), chain, lambda xs: use(np.prod(xs, axis=0), 0))

    def stub_and_share(x: Tensor) -> Tensor:
        """Rank 0 sends and goes on itself, too."""
        if comm.rank == 0:
            return on_tape.send(comm, x, 1, tag=5) + use(x, 0)
        return (
            use(on_tape.receive(comm, SHAPE, x.dtype, 0, tag=5) * x, 1) if comm.rank == 1 else (x * 0).sum()
        )

    check(comm, every(comm, SHAPE), stub_and_share, lambda xs: use(xs[0], 0) + use(xs[0] * xs[1], 1))


@pytest.mark.ranks(3, transports=("mpi",))
def test_the_same_on_mpi(comm: Communicator) -> None:
    test_enter_and_all_reduce(comm)
    for dim, odd in CUTS:
        test_pieces_are_joined_and_cut(comm, dim, odd)
    test_pieces_along_one_dim_become_pieces_along_another(comm, 2, 1, True)
    test_broadcast_and_reduce(comm)
    test_a_value_goes_to_another_rank_and_its_gradient_comes_back(comm)


@pytest.mark.ranks(2, 3, transports=("threads",))
def test_ranks_whose_input_needs_no_gradient_join_backward_all_the_same(comm: Communicator) -> None:
    constant = Tensor(numbers(SHAPE))
    on_tape.broadcast(comm, constant if comm.rank == 0 else None).sum().backward()
    if comm.rank == 0:
        on_tape.send(comm, constant, 1).backward()
    elif comm.rank == 1:
        on_tape.receive(comm, SHAPE, np.float64, 0).sum().backward()
    assert constant.grad is None
    with no_grad():
        assert not on_tape.broadcast(comm, constant if comm.rank == 0 else None).requires_grad


@pytest.mark.ranks(2, transports=("threads",))
def test_a_parameter_stays_writable_and_its_value_on_the_tape_stays_what_it_was(comm: Communicator) -> None:
    parameter = Parameter(np.ones(3))
    taken = [
        on_tape.enter(comm, parameter),
        on_tape.own_slice(comm, parameter, 0),
        on_tape.broadcast(comm, parameter if comm.rank == 0 else None),
    ]
    parameter.data = np.zeros(3)
    assert all((x.data == 1).all() for x in taken)


@pytest.mark.ranks(3, transports=("threads",))
def test_uneven_pieces_without_counts_are_refused(comm: Communicator) -> None:
    piece = Tensor(np.ones((2, [1, 1, 5][comm.rank])))
    gather = on_tape.all_gather if comm.rank else on_tape.all_gather_alike
    message = rf"rank {comm.rank} gave [15] of 7 indices of dim 1, expected [23]: .* counts"
    with pytest.raises(ValueError, match=message):
        gather(comm, piece, 1)


@pytest.mark.ranks(4, transports=("threads",))
def test_what_is_sent_is_counted_as_activation_and_dtype_is_kept(comm: Communicator) -> None:
    x = Tensor(np.ones((8, 4), np.float32), requires_grad=True)
    y = on_tape.reduce_scatter(comm, ops.relu(x), 1)
    assert (y.shape, y.dtype) == ((8, 1), np.float32)
    (y * y).sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == np.float32
    # A quarter goes around the ring in three steps, and so does its gradient.
    assert comm.counters["activation"] == (6, 6 * 8 * 4)
