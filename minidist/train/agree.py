"""Ranks that would train differently are found before the first step, not by their results."""

import argparse
import hashlib

import numpy as np

from minidist import _kernels as kernels
from minidist.comm import Communicator
from minidist.data import Dataset
from minidist.errors import UserError

KERNEL_PATHS = ("avx512", "avx2", "neon", "baseline", "numpy")  # best first; every machine has the last


def agree(comm: Communicator, options: argparse.Namespace, dataset: Dataset) -> str:
    """Refuse to start with ranks that would train differently; settle on the best kernels that all have.

    Kernels with and without fused multiply-add round differently, so ranks that mix them would drift apart.
    """
    for what, text in (("options", repr(sorted(vars(options).items()))), ("data", dataset.sha256)):
        digest = np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8)
        digests = comm.all_gather(digest[None], purpose="control")  # (ranks, 32)
        differing = [rank for rank in range(comm.size) if (digests[rank] != digests[0]).any()]
        if differing:
            raise UserError(
                f"the {what} of rank {differing[0]} differ from those of rank 0; "
                "give every rank the same command and the same files"
            )
    # The best path that every rank has and that is no better than any rank was told to use.
    own = KERNEL_PATHS.index(kernels.path)
    allowed = [place >= own and path in kernels.available for place, path in enumerate(KERNEL_PATHS)]
    common = comm.all_reduce(np.array(allowed, np.int64), op="min", purpose="control")
    path = KERNEL_PATHS[int(np.argmax(common))]
    if path != kernels.path:
        kernels.use(path)
    return path
