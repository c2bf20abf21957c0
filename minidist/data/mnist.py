"""MNIST and Fashion-MNIST: 60,000 images of 28x28 pixels to train on, 10,000 to test on, in four IDX files.

The files are read from a directory of yours, or downloaded once into a cache. The checksums of the downloads
stand below, so a mirror cannot change what a course trains on. Where several ranks share a machine, one of
them should call `prepare` before all call `load`: then the download happens once.
Read next: `text.py`, where an example is not an image.
"""

import hashlib
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from minidist.data.dataset import Dataset
from minidist.data.idx import read_idx
from minidist.errors import UserError

TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
FILES = (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS)

CLASSES = 10

MIRRORS = {
    "mnist": (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    "fashion-mnist": (
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
}

SHA256 = {  # of the gzipped files, in the order of FILES
    "mnist": (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
    "fashion-mnist": (
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
}

SOURCES = {
    "mnist": "handwritten digits of 28x28 pixels (LeCun, Cortes and Burges, 1998)",
    "fashion-mnist": "pictures of clothes of 28x28 pixels (Xiao, Rasul and Vollgraf, arXiv:1708.07747, 2017)",
}

SECONDS_TO_ANSWER = 10  # a mirror that is silent for longer is given up


def load(name: str, data_dir: str | None = None) -> Dataset:
    """Read "mnist" or "fashion-mnist": images of shape (1, height, width), ten classes.

    The files come from `data_dir`, where any IDX files of those names will do; without it from the cache, and
    what is missing there is downloaded.
    """
    train_images, train_labels, test_images, test_labels = prepare(name, data_dir)
    train = _read_part(train_images, train_labels)
    test = _read_part(test_images, test_labels)
    if train[0].shape[1:] != test[0].shape[1:]:
        raise UserError(
            f"{test_images}: at offset 8 the images are of {_by(test[0])} pixels, "
            f"expected {_by(train[0])} as in {train_images}"
        )
    digest = hashlib.sha256()
    for array in (*train, *test):
        digest.update(array.data)
    return Dataset(
        name=name,
        train_inputs=_to_inputs(train[0]),
        train_labels=train[1].astype(np.int64),
        test_inputs=_to_inputs(test[0]),
        test_labels=test[1].astype(np.int64),
        classes=CLASSES,
        source=f"{len(train[1]) + len(test[1])} {SOURCES[name]}, from {train_images.parent}",
        sha256=digest.hexdigest(),
    )


def prepare(name: str, data_dir: str | None = None) -> list[Path]:
    """Make sure that the four files are there, and return their paths in the order of `FILES`."""
    if data_dir is None:
        return [_download(name, file, sha256) for file, sha256 in zip(FILES, SHA256[name], strict=True)]
    directory = Path(data_dir)
    if not directory.is_dir():
        state = "is not a directory" if directory.exists() else "does not exist"
        raise UserError(f"--data-dir {data_dir} {state}; it should hold {_four_files()}")
    found = [directory / file if (directory / file).exists() else directory / f"{file}.gz" for file in FILES]
    missing = [file for file, path in zip(FILES, found, strict=True) if not path.exists()]
    if missing:
        raise UserError(
            f"--data-dir {data_dir} has no {' and no '.join(missing)}; it should hold {_four_files()}"
        )
    return found


def _download(name: str, file: str, sha256: str) -> Path:
    """Fetch one file into the cache, from the first mirror that has it right, unless it is there already."""
    try:
        import pooch  # only here: it takes a while to import, and most runs need no download
    except ImportError:
        raise UserError(f"downloading {name} needs pooch: pip install pooch; or {_by_hand(name)}") from None
    cache = pooch.os_cache("minidist") / name
    reasons = []
    for mirror in MIRRORS[name]:
        try:
            downloader = pooch.HTTPDownloader(timeout=SECONDS_TO_ANSWER)
            url = f"{mirror}{file}.gz"
            return Path(pooch.retrieve(url, f"sha256:{sha256}", f"{file}.gz", cache, downloader=downloader))
        except (OSError, ValueError) as error:  # unreachable or refused; another checksum
            reasons.append(f"{urlsplit(mirror).hostname}: {type(error).__name__}")
    raise UserError(f"{name} could not be downloaded ({', '.join(reasons)}): {_by_hand(name)}")


def _by_hand(name: str) -> str:
    return f"fetch {_four_files()} from {MIRRORS[name][0]} into a directory DIR, and say --data-dir DIR"


def _four_files() -> str:
    return f"{', '.join(FILES[:-1])} and {FILES[-1]} (each as it is or as .gz)"


def _read_part(images_path: Path, labels_path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read images (n, height, width) and labels (n,), both uint8, and check that they belong together."""
    images, labels = read_idx(images_path, ndim=3), read_idx(labels_path, ndim=1)
    if len(images) != len(labels):
        raise UserError(
            f"{labels_path}: at offset 4 there is a count of {len(labels)} labels, "
            f"expected {len(images)}, the count of images in {images_path}"
        )
    if images.size == 0:
        raise UserError(
            f"{images_path}: at offset 4 there is a size of {images.shape}, expected at least one pixel"
        )
    wrong = np.flatnonzero(labels >= CLASSES)
    if wrong.size:
        first = int(wrong[0])
        raise UserError(
            f"{labels_path}: at offset {8 + first} there is the label {labels[first]}, expected 0 to 9"
        )
    return images, labels


def _to_inputs(images: np.ndarray) -> np.ndarray:
    """Turn bytes (n, height, width) into float32 (n, 1, height, width) from 0 to 1."""
    return images[:, None].astype(np.float32) / np.float32(255)


def _by(images: np.ndarray) -> str:
    return f"{images.shape[1]}x{images.shape[2]}"
