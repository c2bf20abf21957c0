"""A cluster is a name or a TOML file, and a mistake in the file is one sentence."""

import re

import pytest

from minidist.errors import UserError
from minidist.plan.cluster import CLUSTERS, Link, find_cluster

FILE = """
nodes = 2
devices = 3
background = true
[between]
latency = 0
bandwidth = 1e8
"""


def test_a_file_says_what_is_different_from_the_laptop(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    cluster = find_cluster(str(path))
    assert (cluster.name, cluster.nodes, cluster.devices, cluster.background) == ("mine", 2, 3, True)
    assert cluster.between == Link(0, 1e8)
    assert cluster.within == CLUSTERS["laptop"].within


def test_ranks_fill_one_machine_after_another_and_crowd_on_the_last(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    cluster = find_cluster(str(path))
    assert cluster.places(7) == (
        0,
        0,
        0,
        3,
        3,
        3,
        3,
    )  # numbered by their first rank, as a communicator's nodes
    assert cluster.crowding(6) == 1
    assert cluster.crowding(7) == pytest.approx(4 / 3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("devices = ", "cannot be read as TOML"),
        ("device = 3", "there is no 'device', did you mean devices?"),
        ("devices = 1.5", "devices is 1.5, expected a whole number from 1"),
        ("flops = 0", "flops is 0, expected a number above 0"),
        ("background = 1", "background is 1, expected true or false"),
        ("within = 3", "within is 3, expected a table with latency and bandwidth"),
        ("[within]\nlatency = -1", "latency is -1, expected a number above 0"),
        ("[within]\nbandwith = 1", "did you mean bandwidth?"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path, text, said):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=re.escape(said)):
        find_cluster(str(path))


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(UserError, match=r"there is no cluster 'nowhere': give one of laptop, .*gpus"):
        find_cluster("nowhere")
