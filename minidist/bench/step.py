"""Suite "step": whole training steps, forward, backward and update, on one batch.

Beside two opponents. The matrix products alone, by np.matmul into memory that is there: whatever a step takes beyond
them is what activations, loss, update and bookkeeping cost. And the step as one would write it by hand in NumPy for
this one model, without an engine.

Read next: `comm.py`.
"""

import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from minidist.autograd import Tensor, ops
from minidist.bench.kernels import random
from minidist.bench.measure import Case
from minidist.comm import Communicator, Mesh, world
from minidist.models import GPT, MLP
from minidist.nn import Module, flatten
from minidist.optim import SGD, AdamW
from minidist.split.replica import Batch
from minidist.split.whole import Whole
from minidist.sync.data_parallel import DataParallel

LR = {"sgd": 0.01, "adamw": 1e-3}
Product = tuple[tuple[int, ...], tuple[int, ...]]  # the shapes of two arrays to multiply


@dataclass(frozen=True)
class Mlp:
    """A multilayer perceptron, trained by plain SGD."""

    sizes: tuple[int, ...]
    batch: int

    @property
    def name(self) -> str:
        return f"MLP {'-'.join(map(str, self.sizes))}, batch {self.batch}"

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.batch, *self.sizes)

    def model(self) -> Module:
        return MLP(list(self.sizes))

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Return images (batch, in) and labels (batch,)."""
        return random(self.batch, self.sizes[0]), np.arange(self.batch) % self.sizes[-1]

    def products(self) -> list[Product]:
        """Return the shapes of all matrix products of a step: the first layer needs no input gradient."""
        found: list[Product] = []
        for layer, (fan_in, fan_out) in enumerate(pairwise(self.sizes)):
            found += three_products(self.batch, fan_in, fan_out)[: 3 if layer else 2]
        return found

    def activations(self) -> int:
        """Return how many numbers backward needs of forward, the batch aside: the outputs of all layers."""
        return self.batch * sum(self.sizes[1:])


@dataclass(frozen=True)
class Gpt:
    """A decoder-only transformer, trained by AdamW."""

    layers: int
    width: int
    heads: int
    time: int
    batch: int
    vocabulary: int

    @property
    def name(self) -> str:
        return f"GPT {self.layers}x{self.width}, {self.heads} heads, {self.time} tokens, batch {self.batch}, AdamW"

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.batch, self.time, self.width, self.layers, self.heads, self.vocabulary)

    def model(self) -> Module:
        return GPT(self.vocabulary, self.time, self.layers, self.width, self.heads)

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Return tokens and the tokens after them, both (batch, time)."""
        text = np.random.default_rng(0).integers(0, self.vocabulary, (self.batch, self.time + 1))
        return text[:, :-1], text[:, 1:]

    def products(self) -> list[Product]:
        """Return the shapes of all matrix products of a step, those of attention in full."""
        tokens, width, dim = self.batch * self.time, self.width, self.width // self.heads
        lead = (self.batch, self.heads)
        scores = ((*lead, self.time, dim), (*lead, dim, self.time))
        mix = ((*lead, self.time, self.time), (*lead, self.time, dim))
        block: list[Product] = [
            scores,
            scores,
            mix,
            mix,
            mix,
            mix,
        ]  # scores and their gradient; output, and gradients of q, k, v
        for fan_in, fan_out in ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)):
            block += three_products(tokens, fan_in, fan_out)
        return block * self.layers + three_products(tokens, width, self.vocabulary)

    def activations(self) -> int:
        """Return how many numbers backward needs of forward: 16 widths per token and block, and what is around."""
        # two inputs of norms, two outputs, q k v, output of attention, and 4 widths before and after gelu
        per_token = 16 * self.width * self.layers + 2 * self.width + self.vocabulary
        return self.batch * self.time * per_token


Work = Mlp | Gpt
WORKS: tuple[Work, ...] = (
    Mlp((64, 64, 10), 32),
    Mlp((784, 256, 128, 10), 64),
    Mlp((784, 128, 127, 126, 125, 124, 123, 10), 32),
    Mlp((784, 1024, 1024, 10), 128),
    Gpt(layers=4, width=128, heads=4, time=64, batch=16, vocabulary=96),
)


def three_products(n: int, fan_in: int, fan_out: int) -> list[Product]:
    """Return the shapes of a layer's products: forward, weight gradient, input gradient."""
    return [
        ((n, fan_in), (fan_in, fan_out)),
        ((fan_in, n), (n, fan_out)),
        ((n, fan_out), (fan_out, fan_in)),
    ]


def cases(quick: bool) -> Iterator[Case]:
    """Give all comparisons; without the two longest steps where it must be quick."""
    for work in WORKS[:3] if quick else WORKS:
        peers: dict[str, Callable[[], object]] = {"products alone": products_alone(work)}
        if isinstance(work, Mlp):
            peers["NumPy by hand"] = by_hand(work)
        flops = sum(2.0 * np.prod(a) * b[-1] for a, b in work.products())
        yield Case(work.name, work.shape, "float32", our_step(work, world()), peers, flops)


def our_step(work: Work, comm: Communicator) -> Callable[[], float]:
    """Build a model and what trains it; return the function that makes one step on this rank's share of the batch."""
    model = work.model()
    groups = flatten(model)
    optimizer = SGD(groups, LR["sgd"]) if isinstance(work, Mlp) else AdamW(groups, LR["adamw"])
    sync = DataParallel(Mesh(comm, data=comm.size), groups, optimizer)
    replica = Whole(model, mean_loss, sync)
    inputs, labels = work.data()
    share = slice(comm.rank, None, comm.size)
    batch = Batch(inputs[share], labels[share], labels.size)

    def step() -> float:
        loss = replica.forward_backward(batch)
        sync.step()
        return loss

    return step


def mean_loss(outputs: Tensor, labels: np.ndarray, count: int) -> Tensor:
    """Sum the cross entropies of all targets and divide by the global batch's count."""
    return ops.cross_entropy(outputs, labels, count)


def products_alone(work: Work) -> Callable[[], None]:
    """Return the function that multiplies what a step multiplies, and does nothing else."""
    pairs = [(np.ones(left, np.float32), np.ones(right, np.float32)) for left, right in work.products()]
    arrays = [(a, b, a @ b) for a, b in pairs]

    def step() -> None:
        for a, b, out in arrays:
            np.matmul(a, b, out=out)

    return step


def by_hand(work: Mlp) -> Callable[[], float]:
    """Return the step of an MLP written in NumPy, from the same start as ours."""
    parameters = {name: p.data.copy() for name, p in work.model().named_parameters()}
    weights = [w for name, w in parameters.items() if name.endswith("weight")]
    biases = [b for name, b in parameters.items() if name.endswith("bias")]
    inputs, labels = work.data()
    rows, last = np.arange(work.batch), len(weights) - 1

    def step() -> float:
        activations = [inputs]
        for layer, (w, b) in enumerate(zip(weights, biases, strict=True)):
            z = activations[-1] @ w
            z += b
            if layer < last:
                np.maximum(z, 0, out=z)
            activations.append(z)
        p = activations.pop()  # logits, then probabilities, then their gradient: (batch, classes)
        p -= p.max(axis=1, keepdims=True)
        picked = p[rows, labels]
        np.exp(p, out=p)
        total = p.sum(axis=1, keepdims=True)
        loss = float((np.log(total[:, 0]) - picked).sum()) / work.batch
        p /= total
        p[rows, labels] -= 1
        p /= work.batch
        grad = p
        for layer in range(last, -1, -1):
            x, w, b = activations[layer], weights[layer], biases[layer]
            grad_w, grad_b = x.T @ grad, grad.sum(axis=0)
            if layer:
                grad = grad @ w.T
                grad *= x > 0
            grad_w *= LR["sgd"]
            grad_b *= LR["sgd"]
            w -= grad_w
            b -= grad_b
        return loss

    return step


def peak_memory(work: Work) -> tuple[int, int]:
    """Return the most bytes that arrays take in a step, and what the mathematics needs.

    Needed are weights, gradients, the optimizer's state (AdamW: two more vectors), and the activations that backward
    reads. Counted is what NumPy allocates, the model included.
    """
    tracemalloc.start()
    step = our_step(work, world())
    step()
    tracemalloc.reset_peak()  # forget what drawing the weights took
    step()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    weights = sum(p.size for p in work.model().parameters())
    vectors = 2 if isinstance(work, Mlp) else 4
    inputs, labels = work.data()
    return peak, 4 * (vectors * weights + work.activations()) + inputs.nbytes + labels.nbytes


def import_seconds() -> float:
    """Return how long `import minidist` takes in a new Python, the least of five."""
    program = "import time; t = time.perf_counter(); import minidist; print(time.perf_counter() - t)"
    command = [sys.executable, "-c", program]
    return min(float(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(5))
