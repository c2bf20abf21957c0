"""What happens on a rank when a test calls a student's function there.

    parent:  student.call("all_reduce", [(x,), ...])  -->  rank: load student.py, call all_reduce(Talk, x), pack

The student's file is compiled from text that the parent has read, under its own path (for tracebacks and debuggers)
and as a module that nobody else can name: no folder of the student's is on sys.path, so a `random.py` that lies there
stands in for nothing. Back go plain numbers and arrays only. What is right, the comparison and the points stay with
the parent, where no line of a student's runs.

Imports that an exercise forbids are refused in the module's own `__import__`. A finder on sys.meta_path would not do:
most of the engine is loaded on a rank already, and nobody asks a finder for that.

Read next: `student.py`, the parent's side.
"""

import builtins
import sys
import types
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minidist.testing.talk import Talk, in_words

MEMORY = 256 << 20  # bytes that a call may take on top of what its process has; the numbers here are small
WRITES = 64 << 20  # bytes of a file, what it prints included
# Ways to the engine's own communicator, and to imports of other people's.
ALWAYS_FORBIDDEN = ("importlib", "mpi4py", "minidist.testing", "minidist.launch", "minidist.comm.world")


class ForbiddenImport(ImportError):
    """Say that an exercise is to be solved without a module."""

    __module__ = "builtins"  # tracebacks then give its bare name


@dataclass(frozen=True)
class Task:
    """Say what a rank is to run."""

    source: str  # the text of the student's file
    path: str  # where it stands
    function: str
    offers: tuple[str, ...]
    forbids: tuple[str, ...]
    debug: str = ""  # the command that debugs this test, for who calls breakpoint() or input()


def run_limited(comm: Any, task: Task, arguments: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """Run a task in a process that is there for nothing else."""
    limit_resources()
    return run(comm, task, arguments)


def run(
    comm: Any,
    task: Task,
    arguments: Sequence[tuple[Any, ...]],
    more_builtins: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Call the student's function on this rank, and return its value with what was sent for it."""
    calls: Counter[str] = Counter()
    function = load(task, comm.rank, more_builtins or {})[task.function]
    mine = arguments[comm.rank]
    before, sent = pack(mine), comm.counters["user"]
    value = function(Talk(comm, task.offers, calls), *mine)
    refused, packed = "", None
    try:
        packed = pack(value)
    except TypeError as error:
        refused = f"it returned {error}"
    if not same_bytes(pack(mine), before):
        refused = "it has changed its arguments, which are not its own: let it make new arrays"
    after = comm.counters["user"]
    return {
        "value": packed,
        "refused": refused,
        "messages": after[0] - sent[0],
        "bytes": after[1] - sent[1],
        "calls": dict(calls),
        "line": function.__code__.co_firstlineno if isinstance(function, types.FunctionType) else 1,
    }


def load(task: Task, rank: int, more_builtins: Mapping[str, Any]) -> dict[str, Any]:
    """Run the student's file as a new module and return its names."""
    module = types.ModuleType(f"student_of_{Path(task.path).parent.name}")
    module.__file__ = task.path
    stop = must_debug(f"{task.debug} --debug-rank {rank}")
    own = {"__import__": importer(task), "breakpoint": stop, "input": stop, **more_builtins}
    module.__dict__["__builtins__"] = {**vars(builtins), **own}
    sys.modules[module.__name__] = (
        module  # where dataclasses look their module up; each load replaces the last
    )
    exec(compile(task.source, task.path, "exec"), module.__dict__)
    if not callable(module.__dict__.get(task.function)):
        raise NameError(f"there is no function {task.function} in {Path(task.path).name}: was it renamed?")
    return module.__dict__


def importer(task: Task) -> Callable[..., Any]:
    """Return an `__import__` that refuses what the exercise forbids."""
    forbidden = (*task.forbids, *ALWAYS_FORBIDDEN)

    def is_forbidden(name: str) -> bool:
        return any(name == module or name.startswith(module + ".") for module in forbidden)

    def import_(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        for full in (name, *(f"{name}.{part}" for part in fromlist or ())):
            if is_forbidden(full):
                means = in_words("comm.", task.offers)
                raise ForbiddenImport(f"no import of {full} here: this exercise is built from {means}")
        return builtins.__import__(name, globals, locals, fromlist, level)

    return import_


def must_debug(command: str) -> Callable[..., Any]:
    """Return what stands in for breakpoint() and input(): nobody could answer a rank."""

    def stop(*_: Any, **__: Any) -> None:
        raise RuntimeError(f"here nobody can answer. To stop on this rank, run: {command}")

    return stop


def limit_resources() -> None:
    """Let greed end with an error on this rank, not with a full memory or disk."""
    try:
        import resource

        own = Path("/proc/self/status").read_text()
        data = next(int(line.split()[1]) * 1024 for line in own.splitlines() if line.startswith("VmData"))
    except (ImportError, OSError):  # no Linux
        return
    for what, soft in ((resource.RLIMIT_DATA, data + MEMORY), (resource.RLIMIT_FSIZE, WRITES)):
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def pack(value: Any) -> Any:
    """Copy what a student returned, if it consists of plain arrays, numbers and text; else refuse it.

    Exact types only: a subclass of an array may say that it equals anything.
    """
    if type(value) is np.ndarray and value.dtype.kind in "biufc":
        return np.array(value, order="C")
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic) and type(value) in (
        np.float64,
        np.float32,
        np.int64,
        np.int32,
        np.bool_,
    ):
        return value.item()
    if type(value) in (tuple, list):
        return type(value)(pack(part) for part in value)
    if type(value) is dict:
        return {pack(key): pack(part) for key, part in value.items()}
    what = f"an array of {value.dtype}" if type(value) is np.ndarray else f"a {type(value).__name__}"
    raise TypeError(f"{what}, expected plain NumPy arrays and numbers, or tuples, lists and dicts of them")


def same_bytes(one: Any, other: Any) -> bool:
    """Tell whether two packed values are the same to the last bit."""
    if isinstance(one, np.ndarray):
        return one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return all(same_bytes(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(same_bytes(a, b) for a, b in zip(one, other, strict=True))
    return one == other
