"""Backward: what it adds where, in which order, how deep it can go, and what it refuses."""

import gc
import threading
import weakref

import numpy as np
import pytest

from minidist.autograd import Parameter, Tensor, direct, joint, ops, record


def test_a_second_backward_doubles_the_leaves():
    a, b = Tensor(3.0, requires_grad=True), Tensor(2.0, requires_grad=True)
    c = a + b
    e = c * 1
    e.backward()
    e.backward()
    assert (a.grad, b.grad) == (2, 2)
    assert c.grad is None


def test_only_leaves_that_want_one_keep_a_gradient():
    x, constant = Tensor([1.0], requires_grad=True), Tensor([2.0])
    y = x * constant
    y.sum().backward()
    assert constant.grad is None
    assert y.grad is None
    np.testing.assert_array_equal(x.grad, [2])


def test_leaves_do_not_share_the_memory_of_their_gradients():
    a, b = Tensor([1.0, 2.0], requires_grad=True), Tensor([1.0, 2.0], requires_grad=True)
    given = np.ones(2)
    (a + b).backward(given)
    a.grad[0] = 7
    np.testing.assert_array_equal(b.grad, [1, 1])
    np.testing.assert_array_equal(given, [1, 1])


def test_gradients_that_others_hold_are_not_added_to():
    x, given = Tensor([1.0, 2.0, 3.0], requires_grad=True), np.ones(3)
    h = x * 1.0
    parts = ops.concatenate([h[:1], h[1:]]) + h[[0, 0, 2]]
    (h + parts + h).backward(given)
    np.testing.assert_array_equal(x.grad, [5, 3, 4])
    np.testing.assert_array_equal(given, [1, 1, 1])


def test_slices_of_a_parameter_write_into_its_gradient():
    p, memory = Parameter(np.arange(6.0).reshape(2, 3)), np.full((2, 3), np.nan)
    p.bind(p.data, memory)
    (p[0] * p[1]).sum().backward()
    np.testing.assert_array_equal(memory, [[3, 4, 5], [0, 1, 2]])


def test_a_leaf_can_be_the_root():
    x, p = Tensor(3.0, requires_grad=True), Parameter(3.0)
    told = []
    x.backward()
    p.backward(ready=told.append)
    assert x.grad == 1
    assert p.grad == 1
    assert told == [p]


def test_numbers_stay_zero_dimensional():
    x = Tensor(3.0, requires_grad=True)
    y = (x * 2 + 1).exp().sum().max() / 2
    y.backward()
    assert isinstance(y.data, np.ndarray)
    assert isinstance(x.grad, np.ndarray)
    assert x.grad.shape == y.shape == ()


def test_a_loss_of_one_element_in_any_shape_needs_no_gradient():
    x = Tensor([[2.0]], requires_grad=True)
    (x * 3).backward()
    np.testing.assert_array_equal(x.grad, [[3]])


def test_backward_of_many_elements_needs_a_gradient():
    x = Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(ValueError, match=r"one element, got shape \(2,\).*\.sum\(\)"):
        (x * 2).backward()
    (x * 2).backward([1.0, 10.0])
    np.testing.assert_array_equal(x.grad, [2, 20])


@pytest.mark.parametrize("grad", [np.ones(3), np.ones((2, 1)), np.ones(2, np.float32), 1.0, [1, 2]])
def test_a_gradient_of_another_shape_or_dtype_is_refused(grad):
    x = Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(ValueError, match=r"float64 of shape \(2,\), got"):
        (x * 2).backward(grad)


def test_backward_without_anything_to_differentiate_is_refused():
    with pytest.raises(ValueError, match="requires_grad=True"):
        (Tensor([1.0]) * 2).sum().backward()


def test_an_operation_whose_gradient_has_the_wrong_shape_is_named():
    x = Tensor(np.ones(1), requires_grad=True)
    y = record(x.data * np.ones(2), (x, lambda g: g))
    with pytest.raises(ValueError, match=r"shape \(1,\).*got \(2,\)"):
        y.backward(np.ones(2))
    p = Parameter(np.ones(1), name="bias")
    with pytest.raises(ValueError, match=r"'bias' must have shape \(1,\), got \(2,\)"):
        record(p.data * np.ones(2), (p, lambda g: g)).backward(np.ones(2))


DEEP = 100_000


def chain() -> tuple[Tensor, Tensor]:
    x = Tensor(1.0, requires_grad=True)
    y = x
    for _ in range(DEEP):
        y = y + 1.0
    return x, y


def test_a_chain_of_100_000_nodes_goes_backward_and_is_freed():
    x, y = chain()
    y.backward()
    assert x.grad == 1
    node = weakref.ref(y)
    del y
    assert node() is None


def test_a_chain_of_100_000_nodes_is_freed_on_a_small_stack_without_backward():
    def build_and_drop():
        _, y = chain()
        del y
        done.append(True)

    done = []
    # Threads have at least 1 MB (Windows, musl). Python 3.13 frees up to 10,000 objects inside each other before it
    # puts the rest aside, and needs 0.6 MB for that.
    before = threading.stack_size(1024 * 1024)
    try:
        thread = threading.Thread(target=build_and_drop)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert done


def test_the_tape_is_freed_with_its_last_tensor_and_needs_no_garbage_collector():
    saved = np.ones(1000)
    x = Tensor(saved, requires_grad=True)
    array = weakref.ref(x.data)
    gc.disable()
    try:
        y = ops.relu(x * 3).sum()
        y.backward()
        del x, y
        assert array() is None
    finally:
        gc.enable()


def test_a_released_tape_frees_what_it_saved_while_backward_runs_and_is_not_walked_again():
    x = Tensor(np.ones(3), requires_grad=True)
    early = x * 1
    late = early * early  # saves the array of early, and the next line that of late
    early_array, late_array = weakref.ref(early.data), weakref.ref(late.data)
    y = (late * late).sum()
    del early, late
    freed = []
    y.backward(tick=lambda: freed.append((late_array() is None, early_array() is None)), release=True)
    assert freed == [(False, False), (True, False), (True, True), (True, True)]
    np.testing.assert_array_equal(x.grad, [4, 4, 4])
    with pytest.raises(RuntimeError, match="released by a backward before"):
        y.backward()


def test_what_no_gradient_function_saved_is_freed_during_forward():
    x = Tensor(np.ones(3), requires_grad=True)
    h = x + 1
    array = weakref.ref(h.data)
    y = h + 1  # needs no values
    del h
    assert array() is None
    y.sum().backward()


def log_operation(name, log, *tensors, result=None):
    """Record an operation whose gradient functions write down that they were called."""

    def gradient(i):
        def function(g):
            log.append((name, i))
            return np.ones(tensors[i].shape) * g.sum()

        return function

    return record(
        np.ones(2) if result is None else result, *((t, gradient(i)) for i, t in enumerate(tensors))
    )


def test_nodes_run_in_reverse_order_of_creation_and_inputs_before_weights():
    log = []
    w, v = Parameter(np.ones(2)), Parameter(np.ones(2))
    x = Tensor(np.ones(2), requires_grad=True)
    a = log_operation("a", log, w, x)
    b = log_operation("b", log, x)
    c = log_operation("c", log, w, a, v, b)
    log_operation("unused", log, c)
    c.backward(np.ones(2))
    assert log == [("c", 1), ("c", 3), ("c", 0), ("c", 2), ("b", 0), ("a", 0), ("a", 1)]


def test_a_joint_gradient_function_is_called_once():
    calls = []
    x, y, z = Tensor([1.0], requires_grad=True) * 1, Tensor([2.0]), Parameter([3.0])

    def gradient(g):
        calls.append(g)
        return g, 2 * g, 3 * g

    to_x, to_y, to_z = joint(gradient, 3)
    out = record(x.data + y.data + z.data, (x, to_x), (y, to_y), (z, to_z))
    out.backward()
    assert len(calls) == 1
    assert z.grad == 3
    parts = out.backward(defer={z})
    assert len(calls) == 2
    assert z.grad == 3
    parts[0].run()
    assert z.grad == 6


def test_what_comes_before_all_gradient_functions_is_called_once():
    calls = []
    x, p = Tensor([1.0], requires_grad=True), Parameter([3.0])

    def before(g):
        calls.append(g)
        return 2 * g

    out = record(x.data * p.data, (x, lambda g: 3 * g), (p, lambda g: 1 * g), before=before)
    out.backward()
    assert calls == [1]
    assert (x.grad, p.grad) == (6, 2)
    (part,) = out.backward(defer=[p])
    assert (len(calls), x.grad, p.grad) == (2, 12, 2)
    part.run()
    assert p.grad == 4
    out.backward(release=True)
    with pytest.raises(RuntimeError, match="released"):
        out.backward()


def test_a_direct_gradient_function_writes_first_and_adds_then():
    calls = []

    def double(x):
        def gradient(g, out, accumulate):
            calls.append((out is None, accumulate))
            result = 2 * g
            if out is None:
                return result
            out[...] = out + result if accumulate else result
            return out

        return record(2 * x.data, (x, direct(gradient)))

    p, memory = Parameter([1.0]), np.full(1, 77.0)
    p.bind(np.ones(1), memory)
    (double(p) + double(p)).backward()
    assert calls == [(False, False), (False, True)]
    assert memory == 4
    double(double(p)).backward()
    assert calls[2:] == [(True, False), (False, True)]
    assert memory == 8


def test_tick_is_called_once_for_each_node():
    x = Tensor(2.0, requires_grad=True)
    ticks = []
    (x * x + x).backward(tick=lambda: ticks.append(1))
    assert len(ticks) == 2


def small_model():
    rng = np.random.default_rng(0)
    parameters = [
        Parameter(rng.normal(size=shape), name=name)
        for name, shape in [("w1", (3, 4)), ("b1", (4,)), ("gain", (4,)), ("bias", (4,)), ("tied", (4, 4))]
    ]
    w1, b1, gain, bias, tied = parameters

    def loss():
        x = Tensor(np.random.default_rng(1).normal(size=(5, 3)))
        h = ops.layer_norm(ops.linear(x, w1, b1), gain, bias)
        h = ops.embedding(tied, [0, 1, 2, 2, 0]) * ops.tanh(h @ tied)
        return ops.cross_entropy(ops.linear(h, tied.T), [0, 1, 2, 3, 0], 5)

    return parameters, loss


def test_deferred_weight_gradients_are_the_same_bytes():
    parameters, loss = small_model()
    loss().backward()
    expected = [p.grad.copy() for p in parameters]
    for deferred in [parameters, parameters[:2], parameters[4:]]:
        for p in parameters:
            p.zero_grad()
        parts = loss().backward(defer=deferred)
        assert {part.parameter for part in parts} == set(deferred)
        assert all(p.grad is None for p in deferred if p.name != "tied")
        for part in parts:
            part.run()
        for p, want in zip(parameters, expected, strict=True):
            np.testing.assert_array_equal(p.grad, want)


def test_input_gradients_do_not_wait_for_deferred_weights():
    x, w = Tensor(np.ones((2, 3)), requires_grad=True), Parameter(np.full((3, 4), 2.0))
    parts = ops.linear(x, w).sum().backward(defer=[w])
    np.testing.assert_array_equal(x.grad, np.full((2, 3), 8))
    assert w.grad is None
    parts[0].run()
    np.testing.assert_array_equal(w.grad, np.full((3, 4), 2))


def test_ready_comes_once_after_the_last_contribution_and_use():
    parameters, loss = small_model()
    order = []

    def ready(parameter):
        order.append((parameter.name, parameter.grad.copy()))

    loss().backward(ready=ready)
    assert [name for name, _ in order] == ["tied", "gain", "bias", "w1", "b1"]
    for p, (_, seen) in zip([parameters[i] for i in (4, 2, 3, 0, 1)], order, strict=True):
        np.testing.assert_array_equal(p.grad, seen)


def test_ready_waits_until_no_gradient_function_reads_the_weights():
    w = Parameter(np.full(2, 3.0))
    v = Parameter(np.full(2, 5.0))

    def update_at_once(parameter):
        parameter.data = parameter.data - parameter.grad

    ((w * v) * w).sum().backward(ready=update_at_once)  # an early update would be refused as a wrong version
    np.testing.assert_array_equal(w.data, 3 - 30.0)
    np.testing.assert_array_equal(v.data, 5 - 9.0)


def test_ready_of_a_deferred_parameter_comes_with_its_last_part():
    parameters, loss = small_model()
    order = []
    parts = loss().backward(defer=parameters, ready=lambda p: order.append(p.name))
    assert order == []
    for part in parts:
        part.run()
    assert sorted(order) == ["b1", "bias", "gain", "tied", "w1"]
    assert order.index("tied") == 0


def test_ready_is_not_called_for_frozen_or_unused_parameters():
    used, frozen, unused = Parameter(1.0), Parameter(2.0, requires_grad=False), Parameter(3.0)
    order = []
    (used * frozen).backward(ready=order.append)
    assert order == [used]
    assert frozen.grad is None
    assert unused.grad is None


def test_weights_that_change_in_accumulated_passes_add_up():
    w = Parameter([1.0, 2.0])
    for scale in (1.0, 10.0):
        (w * scale).sum().backward()
    np.testing.assert_array_equal(w.grad, [11, 11])
