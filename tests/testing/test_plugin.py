"""The plugin, as pytest's users see it: sessions of their own, in processes of their own."""

import textwrap

import pytest

from minidist.launch import mpiexec

pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester):
    """Run a test file in a pytest of its own; return its result."""

    def run(text, *options):
        pytester.makepyfile(textwrap.dedent(text))
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *options, timeout=120)

    return run


def items(result):
    """Return {test[id]: PASSED or FAILED}, of a run with -v."""
    lines = [line.split() for line in result.outlines if "::" in line and "%]" in line]
    return {words[0].partition("::")[2]: words[1] for words in lines}


def section(result, item):
    """Return the lines of the report about one failure."""
    start = next(i for i, line in enumerate(result.outlines) if line.startswith("_") and f" {item} " in line)
    lines = result.outlines[start + 1 :]
    end = next(i for i, line in enumerate(lines) if line.startswith(("___", "===")))
    return lines[:end]


def test_a_marked_test_is_one_item_for_each_transport_and_number_of_ranks(run):
    result = run(
        """
        import pytest

        FACTOR = 2

        def twice(x):
            return FACTOR * x

        @pytest.fixture
        def offset():
            return 10

        @pytest.mark.parametrize("extra", [1, 2])
        @pytest.mark.ranks(1, 3)
        def test_sums(comm, extra, offset):
            import numpy as np
            got = comm.all_reduce(np.array(twice(comm.rank) + extra + offset))
            assert got == sum(twice(rank) + extra + offset for rank in range(comm.size))

        class TestGroup:
            @pytest.mark.ranks(2, transports=["threads"])
            def test_in_a_class(self, comm):
                assert comm.size == 2
                assert comm.transport == "threads"

        def test_ordinary():
            pass
        """,
        "-v",
    )
    sums = [
        f"test_sums[{where}-{size}-{extra}]"
        for where in ("threads", "mpi")
        for size in (1, 3)
        for extra in (1, 2)
    ]
    others = ["TestGroup::test_in_a_class[threads-2]", "test_ordinary"]
    assert items(result) == dict.fromkeys([*sums, *others], "PASSED")


def test_each_way_to_fail_costs_one_item_and_says_rank_and_line(run, pytester):
    result = run(
        """
        import os, sys, time
        import pytest

        @pytest.mark.ranks(2, 3)
        def test_fails_on_rank_two(comm):
            print("rank", comm.rank, "was here")
            assert comm.rank < 2
            comm.barrier()

        @pytest.mark.ranks(2, timeout=1)
        def test_hangs(comm):
            with open(f"pid-{comm.transport}-{comm.rank}", "w") as file:
                file.write(str(os.getpid()))
            if comm.rank == 1:
                while True:
                    pass
            comm.barrier()

        @pytest.mark.ranks(2)
        def test_exits(comm):
            if comm.rank == 1:
                sys.exit(0)
            comm.barrier()

        @pytest.mark.ranks(2)
        def test_is_killed(comm):
            if comm.rank == 1:
                os.kill(os.getpid(), 9)
            comm.barrier()

        @pytest.mark.ranks(2)
        def test_warns(comm):
            import warnings
            warnings.warn("careful")

        @pytest.mark.ranks(2)
        def test_passes_afterwards(comm):
            comm.barrier()
        """,
        "-v",
        "-W",
        "error",
    )
    ends = items(result)
    assert {name for name, end in ends.items() if end == "PASSED"} == {
        "test_fails_on_rank_two[threads-2]",
        "test_fails_on_rank_two[mpi-2]",
        "test_passes_afterwards[threads-2]",
        "test_passes_afterwards[mpi-2]",
    }
    assert len(ends) == 14
    for where in ("threads", "mpi"):
        lines = section(result, f"test_fails_on_rank_two[{where}-3]")
        assert lines[0] == f"rank 2 of 3 on {where}: AssertionError: assert 2 < 2"
        assert "    assert comm.rank < 2" in lines
        assert sum("Traceback" in line for line in lines) == 1
        assert any(line.startswith("rank 0 was stopped at") and "comm.barrier()" in line for line in lines)
        assert lines[-2:] == ["last lines printed by rank 2:", "    rank 2 was here"]

        lines = section(result, f"test_hangs[{where}-2]")
        assert lines[0] == f"ranks 0, 1 of 2 on {where} did not come back within 1 s:"
        assert lines[1].endswith(":17 in test_hangs: comm.barrier()")
        assert lines[2].endswith((":15 in test_hangs: while True:", ":16 in test_hangs: pass"))

        lines = section(result, f"test_exits[{where}-2]")
        assert lines[0].startswith(f"rank 1 of 2 on {where}: called sys.exit(0) at")
        assert lines[0].endswith(":22 in test_exits: sys.exit(0)")

        assert "was killed (SIGKILL)" in section(result, f"test_is_killed[{where}-2]")[0]
        assert section(result, f"test_warns[{where}-2]")[0] == f"rank 0 of 2 on {where}: UserWarning: careful"
    assert section(result, "test_is_killed[mpi-2]")[0].startswith("rank 1 of 2")
    hung = {int(file.read_text()) for file in pytester.path.glob("pid-*")}
    assert len(hung) == 3  # one process for the threads
    assert not hung & {pid for pid, _, _ in mpiexec.processes()}


def test_a_test_of_a_detector_passes_with_it_and_fails_at_its_limit_without(run):
    result = run(
        """
        import numpy as np, pytest
        from minidist.comm import DeadlockError, hub

        @pytest.mark.parametrize("detector", ["on", "off"])
        @pytest.mark.ranks(2, transports=["threads"], timeout=2)
        def test_both_receive_first(comm, detector):
            if detector == "off":
                hub.Hub._look_around = lambda self, long=False: None
            with pytest.raises(DeadlockError):
                comm.recv(np.empty(1), 1 - comm.rank)
        """,
        "-v",
    )
    ends = {
        "test_both_receive_first[threads-2-on]": "PASSED",
        "test_both_receive_first[threads-2-off]": "FAILED",
    }
    assert items(result) == ends
    lines = section(result, "test_both_receive_first[threads-2-off]")
    assert lines[0] == "ranks 0, 1 of 2 on threads did not come back within 2 s:"
    assert ":10 in test_both_receive_first: comm.recv(" in lines[1]


def test_skip_and_fail_of_pytest_work_on_ranks(run):
    result = run(
        """
        import pytest

        @pytest.mark.ranks(2)
        def test_skipped(comm):
            if comm.rank == 1:
                pytest.skip("not today")
            comm.barrier()

        @pytest.mark.ranks(2)
        def test_failed(comm):
            pytest.fail("because I say so")
        """,
        "-rs",
    )
    result.assert_outcomes(skipped=2, failed=2)
    result.stdout.fnmatch_lines(["SKIPPED * not today"])
    result.stdout.fnmatch_lines(['*pytest.fail("because I say so")', "Failed: because I say so"])
    result.stdout.no_fnmatch_line("*raise Failed*")


def test_a_mark_that_makes_no_sense_is_refused(run, pytester):
    pytester.makepyfile(
        test_other="""
        import pytest

        @pytest.mark.ranks(2)
        def test_without_comm(): ...
        """
    )
    result = run(
        """
        import pytest

        @pytest.mark.ranks(0)
        def test_no_ranks(comm): ...
        """
    )
    result.stdout.fnmatch_lines_random(
        [
            "*needs numbers of ranks of at least 1, not (0,)",
            "*test_without_comm is marked with ranks: it needs*",
        ]
    )


def test_without_mpi_its_items_are_skipped_with_the_reason_and_threads_run(run, pytester):
    pytester.makeconftest(
        """
        import minidist.testing.plugin as plugin
        from minidist.errors import UserError

        def no_mpi():
            raise UserError("there is no mpiexec")

        plugin.find_mpiexec = no_mpi
        """
    )
    result = run(
        """
        import pytest

        @pytest.mark.ranks(1, 2)
        def test_barrier(comm):
            comm.barrier()
        """,
        "-rs",
    )
    result.assert_outcomes(passed=2, skipped=2)
    result.stdout.fnmatch_lines(["*there is no mpiexec*"])


def test_what_a_test_leaves_open_is_a_warning_of_it(run):
    text = """
        import numpy as np
        import pytest

        @pytest.mark.ranks(2, transports=["threads"])
        def test_sends_one_too_many(comm):
            x = np.zeros(3)
            comm.isend(np.zeros(3), 1 - comm.rank, tag=4).wait()
            comm.isend(np.zeros(3), 1 - comm.rank, tag=5)
            comm.recv(x, 1 - comm.rank, tag=4)

        @pytest.mark.ranks(2, transports=["threads"])
        def test_leaves_nothing(comm):
            print("not the guard's")
        """
    result = run(text)
    result.assert_outcomes(passed=2, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "*test_what*.py:4: GuardWarning: minidist guard: 2 messages were sent and never received:",
            "*rank 0 sent float64 (3,) to rank 1 with tag 5   test_what*.py:8   comm.isend(*",
        ]
    )
    run(text, "-W", "error").assert_outcomes(passed=1, failed=1)
