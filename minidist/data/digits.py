"""The handwritten digits that come with minidist: 1797 real scans of 8x8 pixels, ready without a download.

They are the test set of the UCI "Optical Recognition of Handwritten Digits" (source and licence stand in
`digits.LICENSE.txt`), small enough that a network learns them in a second or two.
Read next: `mnist.py`, where larger images come from files.
"""

import hashlib
from importlib import resources

import numpy as np

from minidist.data.dataset import Dataset
from minidist.random import permutation

TEST_EVERY = 5  # one scan in five is for testing


def load() -> Dataset:
    """Read the digits: images of shape (1, 8, 8), ten classes, 1437 to train on and 360 to test on.

    The cut is the same on every machine and for every seed: of each class, a random fifth is for testing. A
    writer's digits are in both parts, so this is an easier test than one on writers never seen.
    """
    with (resources.files("minidist.data") / "digits.npz").open("rb") as file, np.load(file) as stored:
        images, labels = stored["images"], stored["labels"]  # uint8: (1797, 8, 8), (1797,)
    inputs = images[:, None].astype(np.float32) / 16  # (1797, 1, 8, 8); a pixel counts 0 to 16 black dots
    targets = labels.astype(np.int64)
    order = permutation(0, "digits: training and test part", 0, len(images))
    by_class = order[np.argsort(targets[order], kind="stable")]  # all 0s, all 1s, ..., each in random order
    test = np.sort(by_class[::TEST_EVERY])  # (360,); sorted: rows stay in the order of the file
    train = np.setdiff1d(order, test)  # (1437,)
    return Dataset(
        name="digits",
        train_inputs=inputs[train],
        train_labels=targets[train],
        test_inputs=inputs[test],
        test_labels=targets[test],
        classes=10,
        source="1797 handwritten digits of 8x8 pixels (Alpaydin and Kaynak, UCI, 1998), inside minidist",
        sha256=hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest(),
    )
