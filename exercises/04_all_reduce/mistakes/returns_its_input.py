# loses: test_naive_gives_every_rank_the_sum, test_naive_sends_each_vector_once, test_tree_gives_every_rank_the_sum, test_tree_lets_no_rank_send_much, test_reduce_scatter_leaves_one_chunk_of_the_sum, test_ring_gives_every_rank_the_sum, test_ring_works_with_fewer_numbers_than_ranks, test_ring_sends_two_vectors_at_most
# diagnosis: own part only
"""04 · All-reduce: every rank has a vector, and every rank gets the sum of all of them.

Read README.md first. `comm` has rank, size, send(x, dest), recv(out, source) and sendrecv(x, dest, out, source), and
nothing else. Give new arrays: x stays as it is.
"""

import numpy as np


def naive(comm, x):
    return x


def tree(comm, x):
    return x


def reduce_scatter(comm, x):
    return x


def ring(comm, x):
    return x
