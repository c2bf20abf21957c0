"""Data sets, and which rank reads which rows.

    dataset.py   what a data set is: four arrays and a description
    digits.py    1797 handwritten digits, shipped with minidist
    mnist.py     MNIST and Fashion-MNIST, from files or by download
    idx.py       the file format of those two
    text.py      characters of a text, in windows
    loader.py    shuffles, global batches, each rank's share

    dataset = load("digits")
    for rows, count in loader.read(len(dataset.train_inputs), batch=32, seed=0, epoch=0, rank=0, size=1):
        inputs, labels = dataset.train_inputs[rows], dataset.train_labels[rows]

This room does not know that there are other processes: a rank's number is just an argument.
Read next: `dataset.py`.
"""

from minidist.data.dataset import Dataset

__all__ = ["NAMES", "Dataset", "load"]

NAMES = ("digits",)


def load(name: str, data_dir: str | None = None, time: int = 64) -> Dataset:
    """Read a data set by its name."""
    from minidist.data import digits

    return digits.load()
