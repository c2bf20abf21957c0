"""IDX files, sound and broken: what is wrong with one is said with its name, the offset, got and expected."""

import contextlib
import functools
import gzip
import hashlib
import http.server
import re
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist import data
from minidist.data import mnist
from minidist.data.idx import read_idx
from minidist.errors import UserError

IMAGES = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
LABELS = np.array([9, 0, 4], np.uint8)


def idx(array):
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


@pytest.fixture
def directory(tmp_path):
    """A directory with four small sound files, two of them gzipped."""
    (tmp_path / mnist.TRAIN_IMAGES).write_bytes(idx(IMAGES))
    (tmp_path / f"{mnist.TRAIN_LABELS}.gz").write_bytes(gzip.compress(idx(LABELS)))
    (tmp_path / f"{mnist.TEST_IMAGES}.gz").write_bytes(gzip.compress(idx(IMAGES[:2] + 195)))
    (tmp_path / mnist.TEST_LABELS).write_bytes(idx(LABELS[:2]))
    return tmp_path


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_plain_and_gzipped_files_are_read_from_a_directory(directory, name):
    dataset = data.load(name, str(directory))
    assert dataset.name == name
    assert dataset.train_inputs.dtype == np.float32
    assert dataset.input_shape == (1, 4, 5)
    np.testing.assert_array_equal(dataset.train_inputs[:, 0], IMAGES.astype(np.float32) / 255)
    np.testing.assert_array_equal(dataset.train_labels, LABELS)
    assert dataset.test_inputs[1, 0, 3, 4] == np.float32(39 + 195) / np.float32(255)
    assert dataset.train_labels.dtype == np.int64
    assert str(directory) in dataset.source


def test_the_hash_is_that_of_the_data_and_not_of_the_packing(directory):
    before = data.load("mnist", str(directory)).sha256
    file = directory / mnist.TRAIN_IMAGES
    (directory / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    file.unlink()
    assert data.load("mnist", str(directory)).sha256 == before
    (directory / mnist.TEST_LABELS).write_bytes(idx(LABELS[1:]))
    assert data.load("mnist", str(directory)).sha256 != before


@given(st.lists(st.integers(0, 4), min_size=1, max_size=3))
def test_what_was_written_is_read_back(tmp_path_factory, shape):
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    path = tmp_path_factory.mktemp("idx") / "file"
    path.write_bytes(idx(array))
    np.testing.assert_array_equal(read_idx(path, len(shape)), array)


@pytest.mark.parametrize(
    ("length", "complaint"),
    [
        (0, "at offset 0 there is the end of the file, expected the four bytes of the magic number 2051"),
        (3, "at offset 3 there is the end of the file, expected the four bytes of the magic number 2051"),
        (4, "at offset 4 there is the end of the file, expected a header of 16 bytes"),
        (15, "at offset 15 there is the end of the file, expected a header of 16 bytes"),
        (16, "at offset 16 there is the end of the file, expected 76 bytes in all for 3 x 4 x 5 values"),
        (75, "at offset 75 there is the end of the file, expected 76 bytes in all for 3 x 4 x 5 values"),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_truncated_file_is_refused_with_offset_got_and_expected(tmp_path, length, complaint, pack):
    path = tmp_path / "some-images"
    path.write_bytes(pack(idx(IMAGES)[:length]))
    with pytest.raises(UserError, match=f"^{re.escape(f'{path}: {complaint}')}$"):
        read_idx(path, 3)


def test_a_gzipped_file_cut_at_any_byte_is_refused_by_name(tmp_path):
    whole = gzip.compress(idx(IMAGES))
    path = tmp_path / "images.gz"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match=re.escape(str(path))):
            read_idx(path, 3)


def test_a_gzipped_file_with_a_flipped_byte_is_refused_by_name(tmp_path):
    whole = bytearray(gzip.compress(idx(IMAGES)))
    whole[len(whole) // 2] ^= 0xFF
    path = tmp_path / "images.gz"
    path.write_bytes(whole)
    with pytest.raises(UserError, match="is not a sound gzip file"):
        read_idx(path, 3)


def test_a_file_with_bytes_left_over_is_refused(tmp_path):
    path = tmp_path / "images"
    path.write_bytes(idx(IMAGES) + b"xy")
    with pytest.raises(UserError, match="at offset 76 there is 2 bytes too many, expected 76 bytes in all"):
        read_idx(path, 3)


def test_a_wrong_magic_number_is_named_with_the_right_one(directory):
    (directory / mnist.TRAIN_IMAGES).write_bytes(idx(LABELS))
    with pytest.raises(
        UserError, match=r"train-images.*: at offset 0 there is the magic number 2049, expected 2051"
    ):
        data.load("mnist", str(directory))


def test_sizes_beyond_the_file_do_not_overflow(tmp_path):
    path = tmp_path / "images"
    path.write_bytes(bytes([0, 0, 8, 3]) + b"\xff" * 12 + bytes(60))
    with pytest.raises(UserError, match=f"expected {16 + (2**32 - 1) ** 3} bytes in all"):
        read_idx(path, 3)


def test_a_label_out_of_range_is_named_with_its_offset(directory):
    (directory / mnist.TEST_LABELS).write_bytes(idx(np.array([3, 10], np.uint8)))
    with pytest.raises(UserError, match=r"t10k-labels.*: at offset 9 there is the label 10, expected 0 to 9"):
        data.load("mnist", str(directory))


def test_more_labels_than_images_are_refused_with_both_counts(directory):
    (directory / mnist.TEST_LABELS).write_bytes(idx(LABELS))
    with pytest.raises(
        UserError, match=r"at offset 4 there is a count of 3 labels, expected 2, .* in .*t10k-images"
    ):
        data.load("mnist", str(directory))


def test_test_images_of_another_size_are_refused(directory):
    (directory / f"{mnist.TEST_IMAGES}.gz").write_bytes(idx(IMAGES[:2, :, :3]))
    with pytest.raises(UserError, match="the images are of 4x3 pixels, expected 4x5 as in"):
        data.load("mnist", str(directory))


@pytest.mark.parametrize("shape", [(0, 4, 5), (3, 0, 5)])
def test_images_without_a_pixel_are_refused(directory, shape):
    (directory / mnist.TRAIN_IMAGES).write_bytes(idx(np.zeros(shape, np.uint8)))
    (directory / f"{mnist.TRAIN_LABELS}.gz").write_bytes(idx(LABELS[: shape[0]]))
    with pytest.raises(UserError, match="expected at least one pixel"):
        data.load("mnist", str(directory))


def test_a_missing_file_is_named_with_all_four(directory):
    (directory / mnist.TEST_LABELS).unlink()
    with pytest.raises(
        UserError, match="has no t10k-labels-idx1-ubyte; it should hold train-images"
    ) as caught:
        data.load("mnist", str(directory))
    assert all(file in str(caught.value) for file in mnist.FILES)


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(UserError, match=r"--data-dir .*nowhere does not exist; it should hold train-images"):
        data.load("mnist", str(tmp_path / "nowhere"))


def test_a_directory_in_place_of_a_file_is_one_sentence(directory):
    (directory / mnist.TRAIN_IMAGES).unlink()
    (directory / mnist.TRAIN_IMAGES).mkdir()
    with pytest.raises(UserError, match="cannot be read"):
        data.load("mnist", str(directory))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty download cache, and every mirror on a port of this machine where nobody listens."""
    pooch = pytest.importorskip("pooch")
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)
    monkeypatch.setattr(mnist, "MIRRORS", dict.fromkeys(mnist.MIRRORS, ("http://127.0.0.1:9/",)))
    return tmp_path / "cache" / "minidist"


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_without_a_network_one_sentence_says_which_files_to_put_where(cache, name):
    with pytest.raises(
        UserError, match=f"{name} could not be downloaded .*into a directory DIR.*--data-dir DIR"
    ) as caught:
        data.load(name)
    assert all(file in str(caught.value) for file in mnist.FILES)


def test_the_second_mirror_is_asked_when_the_first_is_silent_or_has_another_file(
    cache, tmp_path, monkeypatch
):
    contents = [idx(IMAGES), idx(LABELS), idx(IMAGES), idx(LABELS)]
    (tmp_path / "right").mkdir()
    (tmp_path / "wrong").mkdir()
    for file, content in zip(mnist.FILES, contents, strict=True):
        (tmp_path / "right" / f"{file}.gz").write_bytes(content)
        (tmp_path / "wrong" / f"{file}.gz").write_bytes(b"please log in to the wireless network")
    with serve(tmp_path) as address:
        mirrors = ("http://127.0.0.1:9/", f"{address}/wrong/", f"{address}/right/")
        monkeypatch.setattr(mnist, "MIRRORS", {"mnist": mirrors})
        monkeypatch.setattr(mnist, "SHA256", {"mnist": [hashlib.sha256(c).hexdigest() for c in contents]})
        data.prepare("mnist")
    assert len(list((cache / "mnist").iterdir())) == 4  # nothing of the wrong files is left
    from_the_cache = data.load("mnist")  # nobody serves now
    np.testing.assert_array_equal(from_the_cache.train_labels, LABELS)


@contextlib.contextmanager
def serve(directory):
    """Serve a directory on a free port of this machine."""

    class Silent(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    handler = functools.partial(Silent, directory=str(directory))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
