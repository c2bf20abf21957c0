"""Ranks in a notebook: `%load_ext minidist.jupyter`, and then cells that begin with `%%mpi -n 4`.

    %%mpi -n 4                      four fresh Pythons start, and each runs the cell, as a rank of its own
    print(comm.rank)                `comm` is the communicator between them

    [rank 1] 1
    [rank 0] 0
    ...

The kernel stays what it was, whatever the ranks do: they are other processes, and are gone when the cell ends.

Read next: `magic.py` (what the first line may say), `cell.py` (the ranks' side), `teach.py` (what the tutorials use
besides).
"""

from typing import Any

from minidist.jupyter.teach import guess, show_source

__all__ = ["guess", "show_source"]


def load_ipython_extension(shell: Any) -> None:
    """Give a notebook the magics; IPython calls this for `%load_ext minidist.jupyter`."""
    from minidist.jupyter.magic import Magics

    shell.register_magics(Magics)
