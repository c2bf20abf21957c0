"""Text as tokens and windows."""

import hashlib
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist import data
from minidist.data import text
from minidist.errors import UserError


def test_the_alphabet_is_newline_and_printable_ascii():
    assert text.VOCABULARY == 96
    assert text.ALPHABET[:2] == "\n "
    assert text.ALPHABET[-1] == "~"


@given(st.text(alphabet=text.ALPHABET))
def test_decode_undoes_encode_on_the_alphabet(written):
    assert text.decode(text.encode(written)) == written


@given(st.text())
def test_any_text_becomes_tokens_of_the_vocabulary(written):
    tokens = text.encode(written)
    assert tokens.dtype == np.int64
    assert np.all((tokens >= 0) & (tokens < text.VOCABULARY))


def test_what_the_alphabet_lacks_becomes_a_relative_or_a_question_mark():
    written = "\u201cn\u00e9\u201d \u2014 it\u2019s\u2026\ta\r\nb\rc \U0001f600\x00\x7f\ud800"
    assert text.decode(text.encode(written)) == '"n?" - it\'s... a\nb\nc ????'


@given(st.integers(1, 200), st.integers(1, 20))
def test_windows_cover_the_text_once_and_labels_are_one_later(length, time):
    tokens = np.arange(length)
    inputs, labels = text.windows(tokens, time)
    count = (length - 1) // time
    assert inputs.shape == labels.shape == (count, time)
    np.testing.assert_array_equal(inputs.ravel(), tokens[: count * time])
    np.testing.assert_array_equal(labels, inputs + 1)


def test_the_default_is_the_prose_that_python_carries():
    dataset = data.load("text", time=32)
    assert dataset.is_text
    assert dataset.classes == 96
    assert dataset.input_shape == (32,)
    assert "pydoc_data.topics" in dataset.source
    assert f"{len(dataset.train_inputs)} and {len(dataset.test_inputs)} windows of 32" in dataset.source
    assert 8.5 < len(dataset.train_inputs) / len(dataset.test_inputs) < 9.5
    assert len(dataset.sha256) == 64
    assert " the " in text.decode(dataset.train_inputs.ravel())


def test_a_file_is_read_and_its_last_tenth_is_for_testing(tmp_path):
    written = "0123456789" * 10
    path = tmp_path / "numbers.txt"
    path.write_text(written)
    dataset = data.load("text", str(path), time=3)
    assert text.decode(dataset.train_inputs.ravel()) == written[:87]  # 29 windows fit into 90 characters
    assert text.decode(dataset.test_inputs.ravel()) == "012345678"
    assert text.decode(dataset.test_labels.ravel()) == "123456789"
    assert dataset.sha256 == hashlib.sha256(written.encode()).hexdigest()


def test_a_directory_with_one_text_is_as_good_as_the_file(tmp_path):
    (tmp_path / "a.txt").write_text("abcdefghij" * 10)
    (tmp_path / "notes.md").write_text("other")
    assert data.load("text", str(tmp_path), time=4).train_inputs[0].tolist() == text.encode("abcd").tolist()


def test_the_mark_that_some_editors_put_in_front_is_not_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + b"abcdefghij" * 10)
    assert text.decode(data.load("text", str(tmp_path), time=4).train_inputs[0]) == "abcd"


@pytest.mark.parametrize("names", [(), ("b.txt", "a.txt")])
def test_a_directory_without_exactly_one_text_is_refused(tmp_path, names):
    for name in names:
        (tmp_path / name).write_text("text")
    with pytest.raises(UserError, match=f"exactly one .txt file; this directory has {len(names)}$"):
        data.load("text", str(tmp_path))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"--data-dir .*none\.txt cannot be read: No such file"):
        data.load("text", str(tmp_path / "none.txt"))


def test_invalid_utf8_is_named_with_its_offset(tmp_path):
    path = tmp_path / "latin1.txt"
    path.write_bytes("Gr\u00fc\u00dfe".encode("latin-1") * 50)
    with pytest.raises(UserError, match=r"latin1\.txt: at offset 2 there is the byte 0xfc, expected UTF-8"):
        data.load("text", str(path))


def test_a_text_in_another_script_is_refused_with_the_count(tmp_path):
    path = tmp_path / "russian.txt"
    path.write_text("\u0434\u0438\u0441\u0442 " * 100, encoding="utf-8")
    with pytest.raises(UserError, match=r"400 of its 500 characters would become .*printable ASCII"):
        data.load("text", str(path))


@pytest.mark.parametrize("length", [0, 1, 649])
def test_a_text_too_short_for_a_test_window_is_refused(tmp_path, length):
    path = tmp_path / "short.txt"
    path.write_text("x" * length)
    with pytest.raises(UserError, match=f"has {length} characters, but windows of 64 need at least 650"):
        data.load("text", str(path))


def test_the_shortest_text_that_is_not_refused_has_one_window_for_testing(tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("x" * 650)
    assert len(data.load("text", str(path)).test_inputs) == 1


def test_an_empty_window_is_refused():
    with pytest.raises(UserError, match="a window of 0 characters"):
        data.load("text", time=0)


def test_a_python_without_the_prose_asks_for_a_text(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(UserError, match=r"no pydoc_data\.topics: give a text of your own"):
        data.load("text")
