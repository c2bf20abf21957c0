"""Testing on real ranks: a pytest plugin that starts them itself, on both transports, with one report.

    @pytest.mark.ranks(1, 2, 3, 4)
    def test_a_sum_is_the_same_everywhere(comm):
        assert comm.all_reduce(comm.rank) == sum(range(comm.size))

Plain `pytest` runs it; there is no mpiexec to type. Exercises are tests, too, whose code a student writes:

    @pytest.mark.exercise(points=2, ranks=[1, 2, 3, 4], offers=["send", "recv"])
    def test_every_rank_gets_the_sum(student): ...

Read next: `plugin.py` for the first kind, `exercise.py` for the second. Models to try a mode with are in `small.py`.
"""
