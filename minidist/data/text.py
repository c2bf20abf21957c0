"""A text for a language model: characters become numbers, and the text becomes windows of them.

By default it is the reference prose that every CPython carries for its `help()`: about 465,000 characters of
English and code, with nothing to ship and nothing to download. (It differs a little between Python versions,
which is why its hash is shown.) Any UTF-8 file will do as well.

The alphabet is fixed, so that a model fits every text: newline and the 95 printable ASCII characters make 96
tokens. Typographic quotes, dashes and dots become their ASCII relatives, a tab becomes a space, any other
character a question mark.

A window is `time` characters, and the label of each of them is the character that follows:

    text       T h e   c a t   s a t ...
    inputs     T h e   | c a t   | s a t         windows of time=4 do not overlap
    labels     h e   c | a t   s | a t ...       the same, one character later

Read next: `loader.py`, which shuffles windows and images alike.
"""

import hashlib
from pathlib import Path

import numpy as np

from minidist.data.dataset import Dataset
from minidist.errors import UserError

ALPHABET = "\n" + "".join(map(chr, range(32, 127)))  # token 0 is newline, 1 is space, ...
VOCABULARY = len(ALPHABET)  # 96
TEST_PART = 10  # the last tenth of the text is for testing

_RELATIVES = str.maketrans(
    {
        "\N{LEFT DOUBLE QUOTATION MARK}": '"',
        "\N{RIGHT DOUBLE QUOTATION MARK}": '"',
        "\N{LEFT SINGLE QUOTATION MARK}": "'",
        "\N{RIGHT SINGLE QUOTATION MARK}": "'",
        "\N{EN DASH}": "-",
        "\N{EM DASH}": "-",
        "\N{HORIZONTAL ELLIPSIS}": "...",
        "\t": " ",
    }
)
_UNKNOWN = ALPHABET.index("?")
_TOKEN_OF = np.full(128, _UNKNOWN, np.int64)  # from the code of an ASCII character to its token
_TOKEN_OF[[ord(character) for character in ALPHABET]] = np.arange(VOCABULARY)


def encode(text: str) -> np.ndarray:
    """Turn a text into tokens, int64 of shape (length,). Never fails; what the alphabet lacks becomes "?"."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").translate(_RELATIVES)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    return np.where(codes < 128, _TOKEN_OF[np.minimum(codes, 127)], _UNKNOWN)


def decode(tokens: np.ndarray) -> str:
    """Turn tokens back into a text."""
    return "".join(ALPHABET[token] for token in tokens)


def windows(tokens: np.ndarray, time: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut tokens into windows and their labels, both of shape ((length - 1) // time, time).

    They are views of the tokens. What is left at the end and fills no window is not used.
    """
    count = max(len(tokens) - 1, 0) // time  # the last character of a window needs one more as its label
    used = count * time
    return tokens[:used].reshape(count, time), tokens[1 : used + 1].reshape(count, time)


def load(data_dir: str | None = None, time: int = 64) -> Dataset:
    """Read a text as windows of `time` characters; the last tenth of it is the test part.

    `data_dir` is a UTF-8 file, or a directory with exactly one .txt file; None takes Python's own prose.
    """
    if time < 1:
        raise UserError(f"a window of {time} characters was asked for, but it needs at least 1")
    text, where = _python_prose() if data_dir is None else _read_file(Path(data_dir))
    tokens = encode(text)
    unknown = int(np.count_nonzero(tokens == _UNKNOWN))
    if 2 * unknown > len(tokens):
        raise UserError(
            f'{where}: {unknown} of its {len(tokens)} characters would become "?", because the alphabet is '
            "printable ASCII: give a text in English or another language that is written so"
        )
    cut = len(tokens) - len(tokens) // TEST_PART
    train_inputs, train_labels = windows(tokens[:cut], time)
    test_inputs, test_labels = windows(tokens[cut:], time)
    if not len(test_inputs):  # the training part is longer, so it has windows if this one has
        raise UserError(
            f"{where} has {len(tokens)} characters, but windows of {time} need at least "
            f"{TEST_PART * (time + 1)}: give a longer text"
        )
    count = f"{len(train_inputs)} and {len(test_inputs)} windows of {time} to train and to test on"
    return Dataset(
        name="text",
        train_inputs=train_inputs,
        train_labels=train_labels,
        test_inputs=test_inputs,
        test_labels=test_labels,
        classes=VOCABULARY,
        source=f"{len(tokens)} characters of {where}, {count}",
        sha256=hashlib.sha256(text.encode()).hexdigest(),
    )


def _python_prose() -> tuple[str, str]:
    """Give the texts of Python's `help()` one after another, in the order of their names."""
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some small builds of Python leave it out
        raise UserError(
            "this Python has no pydoc_data.topics: give a text of your own by --data-dir FILE"
        ) from None
    prose = "\n\n".join(topics[name] for name in sorted(topics))
    return prose, "Python's reference prose (pydoc_data.topics)"


def _read_file(path: Path) -> tuple[str, str]:
    if path.is_dir():
        found = sorted(path.glob("*.txt"))
        if len(found) != 1:
            raise UserError(
                f"--data-dir {path} should be a text file, or a directory with exactly one .txt file; "
                f"this directory has {len(found)}"
            )
        path = found[0]
    try:
        stored = path.read_bytes()
    except OSError as error:
        raise UserError(f"--data-dir {path} cannot be read: {error.strerror}") from None
    try:
        text = stored.decode("utf-8").removeprefix("\ufeff")  # some editors put that mark in front
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: at offset {error.start} there is the byte 0x{stored[error.start]:02x}, expected UTF-8: "
            "save the file in that encoding"
        ) from None
    return text, str(path)
