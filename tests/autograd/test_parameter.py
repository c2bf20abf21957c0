"""Parameters: versions, bound gradients, and who is told when weights are read."""

import copy
import inspect
import pickle
import re

import numpy as np
import pytest

from minidist.autograd import Parameter, Tensor, no_grad, ops


def bound(values, name="w"):
    p = Parameter(np.zeros(np.shape(values)), name=name)
    weights, gradient = np.array(values, float), np.full(np.shape(values), np.nan)
    p.bind(weights, gradient)
    return p, weights, gradient


def test_a_parameter_requires_a_gradient_unless_told_otherwise():
    assert Parameter([1.0]).requires_grad
    assert not Parameter([1.0], requires_grad=False).requires_grad


def test_the_first_contribution_is_written_and_later_ones_added():
    p, _, gradient = bound([1.0, 2.0])
    (p * p).sum().backward()
    np.testing.assert_array_equal(gradient, [2, 4])
    (p * 3.0).sum().backward()
    np.testing.assert_array_equal(gradient, [5, 7])
    p.zero_grad()
    np.testing.assert_array_equal(gradient, [5, 7])  # nothing was touched
    (p * 3.0).sum().backward()
    np.testing.assert_array_equal(gradient, [3, 3])


def test_a_bound_gradient_is_always_the_same_memory():
    p, weights, gradient = bound([[1.0, 2.0]])
    assert p.grad is gradient
    ops.linear(np.ones((3, 1)), p).sum().backward()
    p.zero_grad()
    ops.linear(np.ones((3, 1)), p).sum().backward()
    assert p.grad is gradient
    assert p.data is weights
    p.grad = np.array([[7.0, 8.0]])
    assert p.grad is gradient
    np.testing.assert_array_equal(gradient, [[7, 8]])
    p.grad = None
    np.testing.assert_array_equal(p.grad, [[0, 0]])


def test_an_untouched_gradient_is_zero_where_it_is_bound_and_none_before():
    p, _, gradient = bound([1.0, 2.0])
    p.finish()
    np.testing.assert_array_equal(gradient, [0, 0])
    lone = Parameter([1.0])
    lone.finish()
    assert lone.grad is None


def test_finish_leaves_a_written_gradient_alone():
    p, _, gradient = bound([1.0, 2.0])
    (p * 3.0).sum().backward()
    p.finish()
    np.testing.assert_array_equal(gradient, [3, 3])


def test_a_lone_parameter_gets_a_new_gradient_after_zero_grad():
    p = Parameter([1.0])
    (p * 2).sum().backward()
    before = p.grad
    p.zero_grad()
    assert p.grad is None
    (p * 3).sum().backward()
    assert before == 2
    assert p.grad == 3


def test_memory_of_the_wrong_shape_or_order_is_refused():
    p = Parameter(np.zeros((2, 3)), name="w")
    with pytest.raises(ValueError, match=r"weights of parameter 'w' need .* \(2, 3\), got \(3, 2\)"):
        p.bind(np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"gradient .* \(2, 3\), got \(6,\)"):
        p.bind(np.zeros((2, 3)), np.zeros(6))
    with pytest.raises(ValueError, match="contiguous"):
        p.bind(np.zeros((2, 3)), np.zeros((3, 2)).T)


def line_after(offset=1):
    frame = inspect.currentframe().f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno + offset}"


def test_backward_through_updated_weights_names_both_lines():
    w = Parameter(np.ones((2, 2)), name="hidden.weight")
    x = Tensor(np.ones((3, 2)), requires_grad=True)
    used = line_after()
    loss = ops.linear(x, w).sum()
    updated = line_after()
    w.data -= 0.1
    assert w.version == 1
    assert w.updated_at == updated
    with pytest.raises(RuntimeError) as error:
        loss.backward()
    message = str(error.value)
    assert re.search(
        f"'hidden.weight' was used at {re.escape(used)} in version 0.*version 1, updated at {re.escape(updated)}",
        message,
    )


@pytest.mark.parametrize(
    "operation",
    [
        lambda w: w * w,
        lambda w: Tensor([1.0]) / w,
        lambda w: w**2.0,
        ops.softplus,
        ops.log,
        ops.gelu,
        lambda w: ops.maximum(w, 1.0),
        lambda w: ops.layer_norm(Tensor([1.0, 2.0], requires_grad=True), w, w),
        lambda w: Tensor([[1.0, 2.0]], requires_grad=True) @ w.reshape(2, 1) * w,
    ],
)
def test_operations_save_the_version_of_weights_and_not_the_array(operation):
    w = Parameter([1.0, 2.0])
    y = operation(w).sum()
    w.updated()
    with pytest.raises(RuntimeError, match=r"version 0.*finds version 1"):
        y.backward()


def test_a_gradient_that_does_not_read_the_weights_survives_an_update():
    w, b = Parameter(np.ones((2, 2))), Parameter(np.ones(2))
    loss = ops.linear(np.ones((3, 2)), w, b).sum()
    w.updated()
    b.updated()
    loss.backward()
    np.testing.assert_array_equal(w.grad, np.full((2, 2), 3))


@pytest.mark.parametrize(
    "take",
    [
        lambda w: w.T,
        lambda w: w.reshape(-1),
        lambda w: w[0],
        lambda w: w[:, ::-1],
        lambda w: w.swapaxes(0, 1),
        lambda w: ops.broadcast_to(w, (3, 2, 2)),
        lambda w: w.detach(),
    ],
)
def test_what_is_taken_from_a_parameter_does_not_change_with_it(take):
    w = Parameter(np.ones((2, 2)))
    taken = take(w)
    before = taken.data.copy()
    w.data *= 7
    np.testing.assert_array_equal(taken.data, before)


def test_assigning_weights_keeps_memory_and_counts_a_version():
    p, weights, _ = bound([1.0, 2.0])
    p.data = [3, 4]
    np.testing.assert_array_equal(weights, [3, 4])
    assert p.version == 1
    with pytest.raises(ValueError, match=r"keep their shape, got \(1,\)"):
        p.data = [3.0]


class Log:
    """A watch that writes down what it is told."""

    def __init__(self, *parameters):
        self.events = []
        for p in parameters:
            p.watch = self

    def weights_needed(self, parameter):
        self.events.append(f"{parameter.name} needed")

    def weights_done(self, parameter):
        self.events.append(f"{parameter.name} done")

    def take(self):
        events = [event for i, event in enumerate(self.events) if i == 0 or event != self.events[i - 1]]
        self.events.clear()
        return events


def test_the_watch_hears_of_every_use_in_forward_and_backward():
    w, v, b = (Parameter(np.ones(s), name=n) for n, s in (("w", (2, 2)), ("v", (2, 2)), ("b", 2)))
    log = Log(w, v)
    h = ops.linear(Tensor(np.ones((3, 2))), w, b)
    assert log.take() == ["w needed", "w done"]
    loss = ops.linear(h, v).sum()
    assert log.take() == ["v needed", "v done"]
    loss.backward(ready=lambda p: log.events.append(f"{p.name} ready"))
    assert log.take() == ["v needed", "v done", "v ready", "w done", "w ready", "b ready"]


def test_the_watch_hears_of_frozen_weights_and_of_evaluation():
    w = Parameter(np.ones((2, 2)), requires_grad=False, name="w")
    log = Log(w)
    x = Tensor(np.ones((3, 2)), requires_grad=True)
    loss = ops.linear(x, w).sum()
    assert log.take() == ["w needed", "w done"]
    loss.backward()
    assert log.take() == ["w needed", "w done"]
    with no_grad():
        ops.linear(x, w)
    assert log.take() == ["w needed", "w done"]


def test_the_watch_hears_of_deferred_parts():
    w = Parameter(np.ones(2), name="w")
    log = Log(w)
    parts = (w * w).sum().backward(defer=[w])
    log.take()
    parts[0].run()
    assert log.take() == ["w needed", "w done"]


def test_asking_for_the_shape_does_not_need_the_weights():
    w = Parameter(np.ones((2, 3)), name="w")
    log = Log(w)
    assert (w.shape, w.ndim, w.size, w.dtype) == ((2, 3), 2, 6, np.float64)
    w.bind(np.ones((2, 3)), np.ones((2, 3)))
    w.zero_grad()
    w.finish()
    assert log.take() == []


class Special(Parameter):
    __slots__ = ("std",)

    def __init__(self, std):
        super().__init__(np.zeros(2))
        self.std = std


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_parameters_travel_with_their_weights_only(way):
    p = Special(0.5)
    p.name = "w"
    p.bind(np.array([1.0, 2.0]), np.zeros(2))
    p.updated()
    (p * p).sum().backward()
    q = way(p)
    assert type(q) is Special
    assert (q.name, q.std, q.version, q.grad) == ("w", 0.5, 1, None)
    q.data += 1
    np.testing.assert_array_equal(p.data, [1, 2])
    np.testing.assert_array_equal(q.data, [2, 3])


def test_a_lender_is_asked_once_a_step_before_the_first_contribution():
    p = Parameter(np.ones((2, 2)))
    asked = []

    def lend(parameter):
        asked.append(parameter)
        parameter.gradient, parameter.bound = np.full((2, 2), np.nan), True

    p.lender = lend
    for step in (1, 2):
        p.zero_grad()
        (p * 3.0 + p * p).sum().backward()
        assert len(asked) == step
        np.testing.assert_array_equal(p.grad, np.full((2, 2), 5.0))
        p.gradient = None
    assert copy.copy(p).lender is None


def test_a_stashed_version_serves_a_tape_that_was_recorded_with_it():
    w, x = Parameter([[2.0]], name="w"), Tensor([[3.0]], requires_grad=True)
    y = (x @ w).sum()
    w.keep_version()
    w.data = [[5.0]]
    z = (x @ w).sum()
    w.keep_version()
    w.keep_version()  # once more changes nothing
    w.data = [[7.0]]
    z.backward()
    y.backward()
    np.testing.assert_array_equal(x.grad, [[5 + 2]])
    w.forget_versions(before=1)
    assert list(w.stash) == [1]
    with pytest.raises(RuntimeError, match=r"'w' was used at .* in version 0, but backward finds version 2"):
        y.backward()
    w.forget_versions(before=3)
    assert not w.stash
    assert copy.copy(w).stash is None
