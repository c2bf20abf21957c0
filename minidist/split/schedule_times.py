"""What a schedule costs, without running it: times, idle ranks, microbatches alive, and a picture.

    1F1B, 3 ranks, 3 microbatches (forward takes 1, backward 2)

    rank 0   F0 F1 F2 .. .. .. .. B0 B0 .. B1 B1 .. B2 B2
    rank 1   .. F0 F1 .. .. B0 B0 F2 B1 B1 .. B2 B2 .. ..
    rank 2   .. .. F0 B0 B0 F1 B1 B1 F2 B2 B2 .. .. .. ..

The simulator is the executor without arrays: each rank takes its instructions in order, a Receive waits until the
message is there, everything else goes on at once. If no rank can go on it says which waits for what. Messages take no
time, so what is left is the schedule's own idle time, the *bubble*, in the time of one chunk's forward.

`blocking=True` lets a Send wait until its receiver stands at the Receive. 1F1B then stands still: two neighbours send
to each other. That is why the executor only *starts* its sends.

    python -m minidist.split.schedule_times 1f1b 4 8 2       # schedule, ranks, microbatches, chunks

Read next: `pipeline_parallel.py`, the executor.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from minidist.split.schedules import (
    SCHEDULES,
    Backward,
    BackwardInput,
    BackwardWeight,
    Compute,
    Forward,
    Instruction,
    Receive,
    Send,
    Update,
    pipedream,
    with_messages,
)
from minidist.trace import timeline as trace

UNIT: dict[type, int] = {Forward: 1, Backward: 2, BackwardInput: 1, BackwardWeight: 1, Update: 0}
LETTER: dict[type, str] = {Forward: "F", Backward: "B", BackwardInput: "B", BackwardWeight: "W"}


@dataclass
class Timeline:
    """When each rank computes what: for each rank rows of (start, end, instruction)."""

    ranks: list[list[tuple[int, int, Compute]]] = field(default_factory=list)

    @property
    def end(self) -> int:
        """When the last rank is done."""
        return max((row[1] for rows in self.ranks for row in rows), default=0)

    def bubble(self, rank: int) -> int:
        """Count the time in which a rank is idle, from the start of the first rank to the end of the last."""
        return self.end - sum(end - start for start, end, _ in self.ranks[rank])

    def picture(self) -> str:
        """Draw a row for each rank and a column for each unit of time."""
        chunks = len({row[2].chunk for rows in self.ranks for row in rows if not isinstance(row[2], Update)})

        def name(compute: Compute) -> str:
            chunk = (
                ""
                if chunks < 2 or isinstance(compute, Update)
                else "abcdefghijklmnopqrstuvwxyz"[compute.chunk]
            )
            return f"{LETTER[type(compute)]}{compute.microbatch}{chunk}"

        named = [
            [(start, end, name(what)) for start, end, what in rows if end > start] for rows in self.ranks
        ]
        width = max((len(text) for rows in named for _, _, text in rows), default=2)
        lines = []
        for rank, rows in enumerate(named):
            cells = ["." * width] * self.end
            for start, end, text in rows:
                cells[start:end] = [text.ljust(width)] * (end - start)
            lines.append(f"rank {rank}   {' '.join(cells)}".rstrip())
        return "\n".join(lines)


def simulate(
    programs: Sequence[Sequence[Instruction]], unit: dict[type, int] = UNIT, blocking: bool = False
) -> Timeline:
    """Carry out all ranks' programs in thought; ValueError if they cannot come to their end.

    unit: how long each kind of computation takes, for one chunk.
    """
    timeline = Timeline([[] for _ in programs])
    at = [0] * len(programs)  # each rank's next instruction
    clock = [0] * len(programs)
    sent: dict[tuple[int, int, bool, int], int] = {}  # (microbatch, stage, gradient, receiver) -> when

    def step(rank: int) -> bool:
        """Let a rank go on by one instruction; say whether it could."""
        if at[rank] == len(programs[rank]):
            return False
        match programs[rank][at[rank]]:
            case Send(m, stage, gradient, peer):
                if blocking:
                    waiting = programs[peer][at[peer] : at[peer] + 1]
                    if waiting != [Receive(m, stage, gradient, rank)]:
                        return False
                    clock[rank] = max(clock[rank], clock[peer])
                sent[m, stage, gradient, peer] = clock[rank]
            case Receive(m, stage, gradient, _):
                if (m, stage, gradient, rank) not in sent:
                    return False
                clock[rank] = max(clock[rank], sent.pop((m, stage, gradient, rank)))
            case compute:
                start = clock[rank]
                clock[rank] += unit[type(compute)]
                timeline.ranks[rank].append((start, clock[rank], compute))
        at[rank] += 1
        return True

    moved = True
    while moved:
        moved = sum(step(rank) for rank in range(len(programs))) > 0
    stuck = [
        f"rank {rank} waits at {program[place]}"
        for rank, (program, place) in enumerate(zip(programs, at, strict=True))
        if place < len(program)
    ]
    if stuck or sent:
        left = [f"nobody receives microbatch {m} for stage {stage}" for m, stage, _, _ in sent]
        raise ValueError(f"this schedule cannot come to its end: {'; '.join(stuck or left)}")
    return timeline


def peak_live(program: Sequence[Instruction]) -> int:
    """Count the most microbatches (for each chunk) that a rank keeps the activations of at one time."""
    live = peak = 0
    for instruction in program:
        if isinstance(instruction, Forward):
            live += 1
            peak = max(peak, live)
        elif isinstance(instruction, Backward | BackwardWeight):
            live -= 1
    return peak


KNOWN = {**SCHEDULES, "pipedream": pipedream}


def draw(name: str, stages: int, microbatches: int, chunks: int = 1) -> str:
    """Draw a schedule, and say how long each rank is idle and how many microbatches are alive there."""
    programs = [with_messages(KNOWN[name], stages, rank, microbatches, chunks) for rank in range(stages)]
    timeline = simulate(programs)
    lines = [timeline.picture()]
    for rank, program in enumerate(programs):
        lines.append(f"rank {rank}: idle {timeline.bubble(rank)}, alive at most {peak_live(program)}")
    return "\n".join(lines)


KIND: dict[type, str] = {
    Forward: "forward",
    Backward: "backward",
    BackwardInput: "backward",
    BackwardWeight: "weights",
    Update: "update",
}


def as_run(name: str, stages: int, microbatches: int, chunks: int = 1) -> trace.Timeline:
    """Give the timeline of a schedule as pictures draw it; its times are those of a chunk's forward."""
    programs = [with_messages(KNOWN[name], stages, rank, microbatches, chunks) for rank in range(stages)]
    spans = [
        trace.Span(
            rank,
            KIND[type(what)],
            KIND[type(what)],
            start,
            end,
            None,
            what.microbatch,
            getattr(what, "chunk", None),
        )
        for rank, rows in enumerate(simulate(programs).ranks)
        for start, end, what in rows
        if end > start
    ]
    facts = {
        "simulated": True,
        "schedule": "interleaved" if chunks > 1 else name,
        "unit": "time, of which a forward takes 1",
    }
    return trace.Timeline(stages, spans, facts=facts)


def main(arguments: Sequence[str]) -> int:
    """Draw the schedule that the arguments name."""
    if (
        not 3 <= len(arguments) <= 4
        or arguments[0] not in KNOWN
        or not all(a.isdigit() for a in arguments[1:])
    ):
        print(
            f"give a schedule ({', '.join(KNOWN)}), the number of ranks, of microbatches, and maybe of chunks",
            file=sys.stderr,
        )
        return 2
    stages, microbatches, chunks = [int(a) for a in [*arguments[1:], "1"][:3]]
    print(draw(arguments[0], stages, microbatches, chunks))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
