"""Random numbers that do not depend on how many ranks draw them.

An ordinary generator is a sequence: the hundredth number depends on who drew the ninety-nine before it. Here a
value is a *function* of (seed, purpose, step, element index), so a rank that holds elements 300 to 400 of a
weight or of a dropout mask draws just those, and gets what one process would have got there.

The generator underneath is Philox, a keyed bijection of a counter (Salmon et al., "Parallel random numbers: as
easy as 1, 2, 3", SC'11); NumPy carries it. Read next: `minidist/nn/module.py`, which draws weights by name.
"""

import hashlib

import numpy as np

_WORDS = 4  # a Philox counter value yields four 64-bit words


def _bits(seed: int, purpose: str, step: int, start: int, stop: int) -> np.ndarray:
    """Draw the 64-bit words number `start` to `stop` of one stream."""
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=16).digest()
    generator = np.random.Philox(
        key=np.frombuffer(digest, np.uint64),
        counter=np.array([start // _WORDS, step, 0, 0], np.uint64),
    )
    skipped = start % _WORDS
    return generator.random_raw(skipped + stop - start)[skipped:]


def uniform(seed: int, purpose: str, step: int, start: int, stop: int) -> np.ndarray:
    """Draw elements `start` to `stop` of a stream, uniform on [0, 1), as float64 of shape (stop - start,)."""
    return (_bits(seed, purpose, step, start, stop) >> np.uint64(11)) * 2.0**-53


def normal(seed: int, purpose: str, step: int, start: int, stop: int) -> np.ndarray:
    """Draw elements `start` to `stop` of a stream, standard normal, as float64 of shape (stop - start,).

    Element i is made of the uniforms 2i and 2i + 1 by the method of Box and Muller (1958), because it needs no
    rejection: how many words an element uses must not depend on their values.
    """
    pairs = uniform(seed, purpose, step, 2 * start, 2 * stop).reshape(-1, 2)
    radius = np.sqrt(-2.0 * np.log1p(-pairs[:, 0]))  # 1 - u is in (0, 1], so the logarithm is finite
    return radius * np.cos(2.0 * np.pi * pairs[:, 1])


def permutation(seed: int, purpose: str, step: int, n: int) -> np.ndarray:
    """Shuffle 0 to n - 1, as int64 of shape (n,)."""
    return np.argsort(_bits(seed, purpose, step, 0, n), kind="stable")
