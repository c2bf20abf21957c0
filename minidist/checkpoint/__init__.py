"""Checkpoints: save what a training consists of, and go on from there, on any mesh.

    with checkpoint.Directory(comm, "runs/a") as directory:   # every rank; nobody else may write there meanwhile
        directory.save(step, sync.snapshot())                 # weights, optimizer state, counts: whole or not at all
        ...
        found = directory.find()                              # the newest one that was committed
        sync.restore(found)                                   # all of it, or one sentence and nothing

    disk.py          writing so that a kill or a power cut leaves the old or the new, never neither
    safetensors.py   the files' format
    state.py         what is saved: pieces of parameters, by name
    manifest.py      the list of all of them, with sha256
    directory.py     saving: temporary name, fsync, rename
    loading.py       loading, for other ranks than those that saved

Random numbers need not be saved: they are functions of the seed and the step (`minidist/random.py`), and so are the
rows that a step reads. What `python -m minidist.train` keeps is in `train/keeping.py`. Read next: `disk.py`.
"""

from minidist.checkpoint.directory import Directory
from minidist.checkpoint.loading import Found
from minidist.checkpoint.state import Piece, State, pieces_of, placement_of

__all__ = ["Directory", "Found", "Piece", "State", "pieces_of", "placement_of"]
