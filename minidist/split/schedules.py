"""Pipeline schedules: in which order a rank computes, as plain data.

    one_f_one_b(stages=2, rank=0, microbatches=3)   F0 F1 B0 F2 B1 B2
    one_f_one_b(stages=2, rank=1, microbatches=3)   F0 B0 F1 B1 F2 B2

A model is cut into `stages * chunks` virtual stages, which go round the ranks: virtual stage v lives on rank
v % stages as its chunk v // stages. A schedule is a function (stages, rank, microbatches, chunks) -> what this rank
computes, in order. `with_messages` puts a receive before and a send behind each computation, the same for all
schedules. Nothing here computes or talks: the executor (`pipeline_parallel.py`), the simulator
(`schedule_times.py`) and the tests read the same lists.

With S ranks, M microbatches and chunks V, where the forward of a whole stage takes F and its backward B:

                  idle on each rank            microbatches alive on rank i at most
    naive         M (S-1) (F + B)              1
    gpipe         (S-1) (F + B)                M
    1f1b          (S-1) (F + B)                min(M, S - i)
      V chunks    (S-1) (F + B) / V            min(M V, 2 (S-i) - 1 + (V-1) L) chunks, each 1/V of a stage
    zero-bubble   (S-1) (F + BI - BW)          min(M, S), where B = BI + BW: for the input, and for the weights
    pipedream     as 1f1b                      min(M, S - i), and as many versions of the weights

(Idle with chunks and with zero-bubble: for M >= S, and BW not above F or BI. L = S if S divides M, else up to 2 S - 1:
see `one_f_one_b`.)
Messages: one activation and one gradient for each microbatch and border between virtual stages, whatever the schedule.

GPipe: Huang et al. 2019. 1F1B: Narayanan et al., "PipeDream", SOSP 2019, and Fan et al., "DAPPLE", PPoPP 2021.
Interleaved: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", SC'21, section 2.2.
Zero bubble (ZB-H1): Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 2.
Read next: `schedule_times.py`, which draws them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Forward:
    """Compute the output of a chunk for a microbatch."""

    microbatch: int
    chunk: int = 0


@dataclass(frozen=True)
class Backward:
    """Compute the gradients of a chunk's input and weights."""

    microbatch: int
    chunk: int = 0


@dataclass(frozen=True)
class BackwardInput:
    """Compute the gradient of the input alone: the rank before is waiting for it."""

    microbatch: int
    chunk: int = 0


@dataclass(frozen=True)
class BackwardWeight:
    """Compute the gradients of the weights, which nobody is waiting for."""

    microbatch: int
    chunk: int = 0


@dataclass(frozen=True)
class Update:
    """Apply this microbatch's gradient, before the others' are there."""

    microbatch: int


@dataclass(frozen=True)
class Send:
    """Send to rank `peer` what its virtual stage `stage` waits for: an input, or the gradient of its output."""

    microbatch: int
    stage: int
    gradient: bool
    peer: int


@dataclass(frozen=True)
class Receive:
    """Receive from rank `peer` what this rank's virtual stage `stage` waits for; equal to the Send but for `peer`."""

    microbatch: int
    stage: int
    gradient: bool
    peer: int


Compute = Forward | Backward | BackwardInput | BackwardWeight | Update
Instruction = Compute | Send | Receive
Schedule = Callable[[int, int, int, int], Iterator[Compute]]  # (stages, rank, microbatches, chunks)


def naive(stages: int, rank: int, microbatches: int, chunks: int = 1) -> Iterator[Compute]:
    """Take one microbatch all the way there and back before the next: one rank works at a time."""
    for m in range(microbatches):
        yield from (Forward(m, c) for c in range(chunks))
        yield from (Backward(m, c) for c in reversed(range(chunks)))


def gpipe(stages: int, rank: int, microbatches: int, chunks: int = 1) -> Iterator[Compute]:
    """First all forward, then all backward."""
    yield from (Forward(m, c) for c in range(chunks) for m in range(microbatches))
    yield from (Backward(m, c) for c in reversed(range(chunks)) for m in range(microbatches))


def one_f_one_b(stages: int, rank: int, microbatches: int, chunks: int = 1) -> Iterator[Compute]:
    """Begin backward as soon as there is one to do, and then take turns: so few microbatches are alive.

    A rank goes forward alone until its first gradient can be back: `warm_up` forwards. With several chunks, a round of
    `stages` microbatches goes through chunk 0, then through chunk 1, and so on: each is there for the next chunk just
    when the rank has come to it. Where `stages` does not divide `microbatches` the rounds are a little longer, because
    after a shorter one the ranks would wait.
    """
    count = max(1, microbatches // stages)
    rounds = [range(microbatches * r // count, microbatches * (r + 1) // count) for r in range(count)]
    warm_up = stages - 1 - rank
    if chunks > 1:
        warm_up = 2 * warm_up + (chunks - 1) * max(map(len, rounds))
    forward = [Forward(m, c) for some in rounds for c in range(chunks) for m in some]
    backward = [Backward(m, c) for some in rounds for c in reversed(range(chunks)) for m in some]
    yield from forward[:warm_up]
    for step, back in enumerate(backward):
        yield from forward[warm_up + step : warm_up + step + 1]
        yield back


def zero_bubble(stages: int, rank: int, microbatches: int, chunks: int = 1) -> Iterator[Compute]:
    """Go as 1F1B, but give back the gradient of the input first, and do the weights' when there is time (ZB-H1).

    The later a rank stands in the pipe, the longer it puts the weights off (`rank` microbatches): it gets its first
    gradient earlier than the ranks before, and what it has saved up fills the time when they have the last ones.
    """
    put_off: list[BackwardWeight] = []
    for instruction in one_f_one_b(stages, rank, microbatches, chunks):
        if not isinstance(instruction, Backward):
            yield instruction
            continue
        yield BackwardInput(instruction.microbatch, instruction.chunk)
        put_off.append(BackwardWeight(instruction.microbatch, instruction.chunk))
        if len(put_off) > rank:
            yield put_off.pop(0)
    yield from put_off


def pipedream(stages: int, rank: int, microbatches: int, chunks: int = 1) -> Iterator[Compute]:
    """Go as 1F1B and update after every backward: nobody waits for a batch to end (see `pipedream.py`)."""
    for instruction in one_f_one_b(stages, rank, microbatches):
        yield instruction
        if isinstance(instruction, Backward):
            yield Update(instruction.microbatch)


def forward_only(stages: int, rank: int, microbatches: int, chunks: int = 1) -> Iterator[Compute]:
    """Only go forward, to predict."""
    yield from (Forward(m, c) for c in range(chunks) for m in range(microbatches))


SCHEDULES: dict[str, Schedule] = {  # those that train as one process does
    "naive": naive,
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "zero-bubble": zero_bubble,
}


def with_messages(
    schedule: Schedule, stages: int, rank: int, microbatches: int, chunks: int = 1
) -> list[Instruction]:
    """Give a rank's whole program: before a computation a receive of what it needs, behind it a send of its result."""
    last = stages * chunks - 1
    program: list[Instruction] = []
    for compute in schedule(stages, rank, microbatches, chunks):
        if isinstance(compute, Update | BackwardWeight):  # they need nothing and give nothing to others
            program.append(compute)
            continue
        m, here = compute.microbatch, compute.chunk * stages + rank  # virtual stage
        back = not isinstance(compute, Forward)
        before, after = (here + 1, here - 1) if back else (here - 1, here + 1)
        if 0 <= before <= last:
            program.append(Receive(m, here, back, before % stages))
        program.append(compute)
        if 0 <= after <= last:
            program.append(Send(m, after, back, after % stages))
    return program
