"""How processes of one machine come to see the same memory, in such a way that nothing can be left behind.

    rank 0    memfd_create    an anonymous file in memory: it has no name anywhere
    others    open            /proc/<pid of rank 0>/fd/<number>, the door that Linux keeps for its own user
    all       fallocate       each rank reserves its own stretch: no room is an error here, not a SIGBUS later
    all       mmap, close     now only the mappings keep the memory alive

A file without a name cannot be forgotten: when the last rank ends, however it ends, the memory is gone. MPI's own
windows are named files in /dev/shm, which stay behind when a rank is killed; and /dev/shm may be small (64 MB in a
container by default), where a window is granted and its first write ends the rank. Nor does freeing a mapping need
the other ranks: an array that nobody uses any more is simply unmapped.

Whether the ranks are on one machine is asked, not guessed from names: they are if they see the same start of the
kernel (boot id) and the same process numbers. Read next: `shared_memory.py`, which uses the memory.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import platform
from typing import TYPE_CHECKING

import numpy as np

from minidist import _kernels as kernels
from minidist.comm.errors import NotShared

if TYPE_CHECKING:
    from minidist.comm.communicator import Communicator

ORDERED = ("x86_64", "AMD64")  # processors on which also the plain stores of the NumPy kernels stay in order


def place() -> np.ndarray:
    """Say where this process runs, in 32 bytes (zeros: where memory cannot be shared)."""
    able = hasattr(os, "memfd_create") and (kernels.path != "numpy" or platform.machine() in ORDERED)
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            text = file.read() + os.readlink("/proc/self/ns/pid")
    except OSError:
        able = False
    digest = hashlib.sha256(text.encode()).digest() if able else bytes(32)
    return np.frombuffer(digest, np.uint8)


def map_together(comm: Communicator, stretch: int) -> np.ndarray:
    """Give all ranks the same memory, zeros at first: uint8 of shape (ranks, stretch), row r for rank r.

    stretch: a multiple of the page size. Raises NotShared on every rank if one of them cannot have it.
    """
    places = comm.all_gather(place()[None], purpose="control")  # (ranks, 32)
    if not places.any(axis=1).all():
        raise NotShared(
            "sharing memory between processes needs Linux and, except on x86, the compiled kernels"
        )
    for rank in range(comm.size):
        if (places[rank] != places[0]).any():
            raise NotShared(
                f"rank {rank} of {comm.name!r} is on another machine than rank 0, or in a container"
            )
    fd, problem, memory = -1, 0, None
    told = np.zeros(5, np.int64)
    try:
        try:
            if comm.rank == 0:
                fd = os.memfd_create("minidist")
                os.ftruncate(fd, comm.size * stretch)
                told[:] = os.getpid(), fd, os.fstat(fd).st_dev, os.fstat(fd).st_ino, 0
        except OSError as error:
            told[4] = error.errno or -1
        told = comm.broadcast(told, purpose="control")
        try:
            if told[4]:
                raise OSError(int(told[4]), "")
            if comm.rank:
                fd = os.open(f"/proc/{told[0]}/fd/{told[1]}", os.O_RDWR)
                if [os.fstat(fd).st_dev, os.fstat(fd).st_ino] != told[2:4].tolist():
                    raise FileNotFoundError(2, "")
            os.posix_fallocate(fd, comm.rank * stretch, stretch)
            memory = mmap.mmap(fd, comm.size * stretch)
        except OSError as error:
            problem = error.errno or -1
        problems = comm.all_gather(np.array([problem]), purpose="control")  # when it ends, all have mapped
    finally:
        if fd >= 0:
            os.close(fd)
    if problems.any():
        rank = int(np.flatnonzero(problems)[0])
        needed = f"{comm.size * stretch / 2**20:.1f} MB of shared memory"
        raise NotShared(
            f"rank {rank} of {comm.name!r} cannot have {needed}: {os.strerror(int(problems[rank]))}"
        )
    assert memory is not None
    return np.frombuffer(memory, np.uint8).reshape(comm.size, stretch)
