"""Modules and layers, and the flat vectors that their parameters live in. Read `module.py` first."""

from minidist.nn.flat import Bucket, Group, cut_into_buckets, flatten, nowhere
from minidist.nn.layers import CausalSelfAttention, Conv2d, Embedding, LayerNorm, Linear
from minidist.nn.module import Module, Piece, Weight
from minidist.nn.placement import Placement, shares

__all__ = [
    "Bucket",
    "CausalSelfAttention",
    "Conv2d",
    "Embedding",
    "Group",
    "LayerNorm",
    "Linear",
    "Module",
    "Piece",
    "Placement",
    "Weight",
    "cut_into_buckets",
    "flatten",
    "nowhere",
    "shares",
]
