"""A decoder-only transformer on characters: GPT-2 in small (Radford et al. 2019, section 2.3).

    tokens --> token embedding + position embedding --> block --> block --> ... --> norm --> logits
                     |                                                                          |
                     +-------------------- the same matrix (tied weights) ----------------------+

A block is x + attention(norm(x)), then x + mlp(norm(x)): the norm stands *before* each part (Xiong et al. 2020), so
that the way straight through stays free. The head has no weights of its own (Press & Wolf 2017).
Read next: `minidist/split/whole.py`, which trains one copy of any of these.
"""

import math
from typing import Any

import numpy as np

from minidist.autograd import Tensor, no_grad, ops
from minidist.nn import CausalSelfAttention, Embedding, LayerNorm, Linear, Module, Piece
from minidist.random import uniform


class Block(Module):
    """One layer of the transformer: (batch, time, width) -> the same."""

    def __init__(self, width: int, heads: int, std: float, std_out: float) -> None:
        self.norm1 = LayerNorm(width)
        self.attention = CausalSelfAttention(width, heads, std, std_out)
        self.norm2 = LayerNorm(width)
        self.widen = Linear(width, 4 * width, std)
        self.narrow = Linear(4 * width, width, std_out)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.narrow(ops.gelu(self.widen(self.norm2(x))))


class GPT(Module):
    """Predict the next character at every position: (batch, time) tokens -> (batch, time, vocabulary) logits."""

    def __init__(
        self,
        vocabulary: int,
        time: int = 64,
        layers: int = 4,
        width: int = 128,
        heads: int = 4,
        seed: int | None = 0,
        dtype: Any = np.float32,
    ) -> None:
        self.time = time
        std = 0.02
        # Two layers of each block add into the stream that runs straight through: so it does not grow with depth.
        std_out = std / math.sqrt(2 * layers)
        self.tokens = Embedding(vocabulary, width, std)
        self.positions = Embedding(time, width, std)
        self.blocks = [Block(width, heads, std, std_out) for _ in range(layers)]
        self.norm = LayerNorm(width)
        self.initialize(seed, dtype)

    def forward(self, tokens: np.ndarray) -> Tensor:
        x: Any = tokens
        for piece in self.pieces():
            x = piece.run(x)
        return x  # (batch, time, vocabulary)

    def pieces(self) -> list[Piece]:
        blocks = [Piece(block, (block,)) for block in self.blocks]
        return [
            Piece(self.embed, (self.tokens, self.positions)),
            *blocks,
            Piece(self.head, (self.norm, self.tokens)),
        ]

    def embed(self, tokens: np.ndarray) -> Tensor:
        """Look up what stands for each token and for its place: (batch, time) -> (batch, time, width)."""
        return self.tokens(tokens) + self.positions(np.arange(tokens.shape[1]))

    def head(self, x: Tensor) -> Tensor:
        """Compare with every token's embedding: (batch, time, width) -> (batch, time, vocabulary)."""
        return self.norm(x) @ self.tokens.weight.T

    def sample(self, prompt: np.ndarray, length: int, seed: int = 0, temperature: float = 0.8) -> np.ndarray:
        """Continue `prompt` (at least one token, 1-d) by `length` tokens, each drawn from the model's distribution."""
        tokens = list(prompt)
        chances = uniform(seed, "sample", 0, 0, length)
        with no_grad():
            for chance in chances:
                window = np.array([tokens[-self.time :]])  # (1, at most time)
                logits = self(window).data[0, -1].astype(np.float64) / temperature  # (vocabulary,)
                odds = np.exp(logits - logits.max()).cumsum()
                tokens.append(int(np.searchsorted(odds, chance * odds[-1], side="right")))
        return np.array(tokens[len(prompt) :])
