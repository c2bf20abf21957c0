"""The three models as wholes: what may depend on what, where they start, and their gradients."""

import numpy as np
import pytest

from minidist.autograd import ops
from minidist.models import CNN, GPT, MLP
from minidist.random import normal

VOCABULARY = 11


def small_gpt(**how):
    return GPT(VOCABULARY, time=6, layers=2, width=8, heads=2, **{"dtype": np.float64, **how})


TOKENS = np.array([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]])
IMAGES = normal(0, "images", 0, 0, 2 * 64).reshape(2, 1, 8, 8)
MODELS = {
    "mlp": (lambda: MLP([64, 6, 5, 10], dtype=np.float64), IMAGES, (2, 10)),
    "cnn": (lambda: CNN((1, 8, 8), 10, channels=(2, 3), dtype=np.float64), IMAGES, (2, 10)),
    "gpt": (small_gpt, TOKENS, (2, 6, VOCABULARY)),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_gradient_of_the_loss_agrees_with_central_differences_along_a_random_direction(name):
    make, inputs, shape = MODELS[name]
    model = make()
    labels = np.arange(np.prod(shape[:-1])) % shape[-1]

    def loss():
        outputs = model(inputs)
        assert outputs.shape == shape
        return ops.cross_entropy(outputs.reshape(-1, shape[-1]), labels, len(labels))

    loss().backward()
    parameters = list(model.parameters())
    steps = [normal(1, f"direction {i}", 0, 0, p.size).reshape(p.shape) for i, p in enumerate(parameters)]
    slope = sum(float((p.grad * step).sum()) for p, step in zip(parameters, steps, strict=True))
    start, losses = [p.data.copy() for p in parameters], []
    for side in (1e-6, -1e-6):
        for p, data, step in zip(parameters, start, steps, strict=True):
            p.data = data + side * step
        losses.append(loss().item())
    assert slope == pytest.approx((losses[0] - losses[1]) / 2e-6, rel=1e-6, abs=1e-8)


def test_no_position_of_the_gpt_sees_a_later_one():
    model = small_gpt()
    before = model(TOKENS).data
    changed = TOKENS.copy()
    changed[:, 3] = (changed[:, 3] + 1) % VOCABULARY
    after = model(changed).data
    np.testing.assert_array_equal(after[:, :3], before[:, :3])
    assert (after[:, 3:] != before[:, 3:]).any(axis=-1).all(), "and every later one does"


def test_the_gpts_head_is_its_embedding_and_is_counted_once():
    model = small_gpt()
    names = [name for name, _ in model.named_parameters()]
    assert len(names) == len(set(names))
    assert [name for name in names if "head" in name] == []
    ops.cross_entropy(model(TOKENS).reshape(-1, VOCABULARY), TOKENS.reshape(-1), TOKENS.size).backward()
    absent = [token for token in range(VOCABULARY) if token not in TOKENS]
    assert absent
    assert (model.tokens.weight.grad[absent] != 0).all(), "rows that no input uses learn through the head"


def test_an_untrained_gpt_finds_all_characters_equally_likely():
    loss = ops.cross_entropy(small_gpt()(TOKENS).reshape(-1, VOCABULARY), TOKENS.reshape(-1), TOKENS.size)
    assert loss.item() == pytest.approx(np.log(VOCABULARY), rel=0.05)


def test_the_gpt_writes_beyond_its_window_and_the_same_for_the_same_seed():
    model = small_gpt(dtype=np.float32)
    first, again, other = (model.sample(np.array([1]), 20, seed) for seed in (0, 0, 1))
    assert len(first) == 20
    assert (first < VOCABULARY).all()
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize("name", MODELS)
def test_weights_depend_on_the_seed_alone(name):
    make = MODELS[name][0]
    for one, same in zip(make().parameters(), make().parameters(), strict=True):
        np.testing.assert_array_equal(one.data, same.data)
