"""Find in what `build` returned all that can be listened to: modules, parameters, optimizers; and rows by contents.

Read next: `compare.py`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from minidist.autograd import Parameter
from minidist.nn import Module
from minidist.optim import Optimizer
from minidist.split.replica import Replica
from minidist.split.stages import Stage
from minidist.sync.zero import Zero


def row_keys(array: np.ndarray) -> list[bytes]:
    """Give each row's contents as bytes that do not depend on its shape, nor on float32 or float64."""
    flat = array.reshape(len(array), -1) if array.size else array.reshape(len(array), 0)
    exact = flat.astype(np.float32) if flat.dtype.kind == "f" else flat.astype(np.int64)
    return [row.tobytes() for row in exact]


def named_modules(module: Module) -> Iterator[tuple[str, Module]]:
    """Yield a module and all below it, with dotted names; the root's is ''. Of a stage, those of its model."""
    return (module.model if isinstance(module, Stage) else module).named_modules()


def walk(value: Any, depth: int = 0, seen: set[int] | None = None) -> Iterator[Any]:
    """Yield the modules, parameters, optimizers and syncs in whatever `build` returned."""
    seen = set() if seen is None else seen
    if id(value) in seen or depth > 4:
        return
    seen.add(id(value))
    if isinstance(value, Module | Parameter | Optimizer | Zero):
        yield value
    if isinstance(value, Module | Parameter):
        return
    if isinstance(value, list | tuple | set):
        inside: Any = value
    elif isinstance(value, dict):
        inside = value.values()
    elif isinstance(value, Replica):
        inside = [value.model, value.sync]
    else:
        inside = list(getattr(value, "__dict__", {}).values())
    for item in inside:
        yield from walk(item, depth + 1, seen)


def roots(found: list[Any]) -> list[Module]:
    """Keep the modules that are not a part of another one; a stage speaks for the model that it is cut from."""
    modules = [x for x in found if isinstance(x, Module)]
    for module in modules:
        if isinstance(module, Stage):
            return [module]
    below = {id(part) for m in modules for part in list(m.modules())[1:]}
    return [m for m in modules if id(m) not in below]
