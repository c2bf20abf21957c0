"""Data sets, and which rank reads which rows.

    dataset.py   what a data set is: four arrays and a description
    digits.py    1797 handwritten digits, shipped with minidist
    mnist.py     MNIST and Fashion-MNIST, from files or by download
    idx.py       the file format of those two
    text.py      a text, character by character
    loader.py    shuffles, global batches, each rank's share

    dataset = load("digits")
    for rows, count in loader.read(len(dataset.train_inputs), batch=32, seed=0, epoch=0, rank=0, size=1):
        inputs, labels = dataset.train_inputs[rows], dataset.train_labels[rows]

This room does not know that there are other processes: a rank's number is just an argument.
Read next: `dataset.py`.
"""

from minidist.data import digits, loader, mnist, text
from minidist.data.dataset import Dataset, Outline
from minidist.errors import UserError

__all__ = ["NAMES", "Dataset", "Outline", "digits", "load", "loader", "mnist", "outline", "prepare", "text"]

NAMES = ("digits", "mnist", "fashion-mnist", "text")


def load(name: str, data_dir: str | None = None, time: int = 64) -> Dataset:
    """Read a data set by its name; `time` is the length of a text's windows.

    Raises UserError, in one sentence, for whatever is wrong with a file or a name.
    """
    if name == "digits":
        return digits.load()
    if name == "text":
        return text.load(data_dir, time)
    if name in mnist.MIRRORS:
        return mnist.load(name, data_dir)
    raise UserError(f"there is no data set {name!r}, only {', '.join(NAMES)}")


def outline(name: str, time: int = 64) -> Outline:
    """Say, without reading anything, what the examples of a data set look like."""
    if name == "text":
        return Outline((time,), text.VOCABULARY)
    return Outline((1, 8, 8), 10) if name == "digits" else Outline((1, 28, 28), mnist.CLASSES)


def prepare(name: str, data_dir: str | None = None) -> None:
    """Download what `load` will need.

    Let one rank of each machine call this, and the others load after it: then only one downloads.
    """
    if name in mnist.MIRRORS:
        mnist.prepare(name, data_dir)
