"""Carrying functions, arguments and results between processes.

cloudpickle takes along functions that cannot be imported elsewhere: those of a notebook, a script or a test. It drops
the name of the file they come from; we keep it, so that tracebacks and stacks show the reader's own lines.

cloudpickle is imported only when something is carried: `import minidist` is to be quick.
"""

import collections
import functools
import io
import types
from typing import Any, ClassVar


def dumps(thing: Any) -> bytes:
    """Return `thing` as bytes that `pickle.loads` reads in any Python that can import minidist."""
    file = io.BytesIO()
    _pickler()(file).dump(thing)
    return file.getvalue()


@functools.cache
def _pickler() -> type:
    import cloudpickle

    def reduce_code(code: types.CodeType) -> tuple[Any, ...]:
        _, arguments = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
        return make_code, (arguments, code.co_filename)

    class Pickler(cloudpickle.Pickler):
        dispatch_table: ClassVar = collections.ChainMap(
            {types.CodeType: reduce_code}, cloudpickle.Pickler.dispatch_table
        )

    return Pickler


def make_code(arguments: tuple[Any, ...], file_name: str) -> types.CodeType:
    """Rebuild a code object on the other side."""
    return types.CodeType(*arguments).replace(co_filename=file_name)
