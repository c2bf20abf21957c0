"""The models of the benchmark in JAX, written plainly: pure functions on dictionaries, compiled as one step."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from minidist.bench.step import LR, Gpt, Mlp, Work

Weights = dict[str, jax.Array]  # by the names that ours have


def mlp(weights: Weights, x: jax.Array, work: Mlp) -> jax.Array:
    """Return logits (batch, classes)."""
    last = len(work.sizes) - 2
    for layer in range(last + 1):
        x = x @ weights[f"layers.{layer}.weight"] + weights[f"layers.{layer}.bias"]
        x = jax.nn.relu(x) if layer < last else x
    return x


def layer_norm(weights: Weights, name: str, x: jax.Array) -> jax.Array:
    """Normalise the last dim."""
    return jax.nn.standardize(x, epsilon=1e-5) * weights[f"{name}.gain"] + weights[f"{name}.bias"]


def linear(weights: Weights, name: str, x: jax.Array) -> jax.Array:
    """Multiply by a matrix and add a bias."""
    return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]


def gpt(weights: Weights, tokens: jax.Array, work: Gpt) -> jax.Array:
    """Return logits (batch, time, vocabulary)."""
    batch, time = tokens.shape
    x = weights["tokens.weight"][tokens] + weights["positions.weight"][:time]
    for layer in range(work.layers):
        name = f"blocks.{layer}"
        qkv = linear(
            weights, f"{name}.attention.queries_keys_values", layer_norm(weights, f"{name}.norm1", x)
        )
        q, k, v = jnp.moveaxis(qkv.reshape(batch, time, 3, work.heads, -1), 2, 0)  # (batch, time, heads, dim)
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(batch, time, -1)
        x = x + linear(weights, f"{name}.attention.out", mixed)
        wide = jax.nn.gelu(linear(weights, f"{name}.widen", layer_norm(weights, f"{name}.norm2", x)))
        x = x + linear(weights, f"{name}.narrow", wide)
    return layer_norm(weights, "norm", x) @ weights["tokens.weight"].T


def loss_of(weights: Weights, inputs: jax.Array, labels: jax.Array, work: Work) -> jax.Array:
    """Mean cross entropy over all targets."""
    logits = mlp(weights, inputs, work) if isinstance(work, Mlp) else gpt(weights, inputs, work)
    log_p = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(log_p, labels[..., None], axis=-1).mean()


def sgd(weights: Weights, grads: Weights, state: Any) -> tuple[Weights, Any]:
    """Step along the gradient."""
    return jax.tree.map(lambda w, g: w - LR["sgd"] * g, weights, grads), state


def adamw(weights: Weights, grads: Weights, state: Any) -> tuple[Weights, Any]:
    """Apply AdamW; the state is (steps, means, squares)."""
    steps, means, squares = state
    steps = steps + 1
    means = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, means, grads)
    squares = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, squares, grads)

    def update(w: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
        direction = m / (1 - 0.9**steps) / (jnp.sqrt(v / (1 - 0.999**steps)) + 1e-8)
        return w - LR["adamw"] * (direction + 0.01 * w)

    return jax.tree.map(update, weights, means, squares), (steps, means, squares)


def step_of(work: Work) -> Callable[[], float]:
    """Return the function that makes one training step, from the weights that ours starts from."""
    weights = {name: jnp.array(p.data) for name, p in work.model().named_parameters()}
    zeros = jax.tree.map(jnp.zeros_like, weights)
    state: Any = None if isinstance(work, Mlp) else (jnp.zeros(()), zeros, jax.tree.map(jnp.copy, zeros))
    inputs, labels = (jnp.array(array) for array in work.data())
    rule = sgd if isinstance(work, Mlp) else adamw

    @partial(jax.jit, donate_argnums=(0, 1))
    def update(weights: Weights, state: Any, inputs: jax.Array, labels: jax.Array) -> tuple:
        loss, grads = jax.value_and_grad(loss_of)(weights, inputs, labels, work)
        return *rule(weights, grads, state), loss

    def step() -> float:
        nonlocal weights, state
        weights, state, loss = update(weights, state, inputs, labels)
        return float(loss)

    return step
