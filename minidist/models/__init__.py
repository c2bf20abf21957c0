"""Models, built from `minidist.nn`: an MLP, a small convolutional net, a decoder-only transformer."""

from minidist.models.cnn import CNN
from minidist.models.gpt import GPT
from minidist.models.mlp import MLP

__all__ = ["CNN", "GPT", "MLP"]
