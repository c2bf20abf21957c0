"""The digits that come with minidist."""

import numpy as np
import pytest

from minidist import data


@pytest.fixture(scope="module")
def digits():
    return data.load("digits")


def test_the_parts_have_the_promised_shapes_and_dtypes(digits):
    assert digits.train_inputs.shape == (1437, 1, 8, 8)
    assert digits.test_inputs.shape == (360, 1, 8, 8)
    assert digits.train_labels.shape == (1437,)
    assert digits.test_labels.shape == (360,)
    assert digits.train_inputs.dtype == digits.test_inputs.dtype == np.float32
    assert digits.train_labels.dtype == digits.test_labels.dtype == np.int64
    assert digits.input_shape == (1, 8, 8)
    assert not digits.is_text


def test_pixels_go_from_0_to_1(digits):
    assert digits.train_inputs.min() == digits.test_inputs.min() == 0
    assert digits.train_inputs.max() == digits.test_inputs.max() == 1


def test_every_class_has_its_fifth_in_the_test_part(digits):
    train, test = np.bincount(digits.train_labels), np.bincount(digits.test_labels)
    assert len(train) == len(test) == digits.classes == 10
    assert np.all(np.abs(test - (train + test) / 5) <= 1)


def test_the_data_are_those_of_the_published_checksum(digits):
    assert digits.sha256 == "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"


def test_the_cut_is_fixed(digits):
    assert digits.test_labels[:12].tolist() == [7, 9, 2, 4, 0, 8, 9, 9, 8, 8, 5, 0]


def test_the_parts_together_are_the_scans_that_scikit_learn_carries(digits):
    theirs = pytest.importorskip("sklearn.datasets").load_digits()
    ours = np.concatenate(
        [
            np.column_stack([digits.train_inputs.reshape(-1, 64) * 16, digits.train_labels]),
            np.column_stack([digits.test_inputs.reshape(-1, 64) * 16, digits.test_labels]),
        ]
    )
    expected = np.column_stack([theirs.data, theirs.target])
    assert sorted(map(tuple, ours)) == sorted(map(tuple, expected))


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(data.UserError, match=r"no data set 'cifar', only digits, mnist, fashion-mnist, text"):
        data.load("cifar")
