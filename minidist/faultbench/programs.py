'''What a program of the bench says about itself: its fault, and which rank stands where.

    """Exchange with a partner: both receive before they send."""
    # fault: cycle                                       the report's kind; "a | b" where it truly is either
    # ranks: 2 4 8                                       how many ranks to try; this is the default
    # left: 1                                            ranks that have finished and are waited for
    # prints: n * 2                                      what the student wants to see on rank 0
    # detector: deadlock                                 what finds it, where that does not follow from the kind
    comm.recv(theirs, partner)  # <- rank 0, (others)    who stands at this line when it is found

A program without `# fault:` is correct: it must print what it promises, and nobody may say a word about it. Ranks are
`rank 0`, `ranks 0 1`, `rank n - 1`, `last`, `all`, `even`, `odd`, `lower` and `upper` (half): each must be named in the
report. `others` are those that nothing else on any line names: at least one of them must be. Who stands in parentheses
may be named and need not. Nobody else may be, and every line must be right; a rank on two lines may be at either.

Read next: `judge.py`.
'''

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from minidist.errors import UserError

RANKS = (2, 4, 8)
HEADER = re.compile(r"^# (fault|ranks|left|prints|repeat|detector): (.+)$", re.MULTILINE)
MARK = re.compile(r"# <- (.+)$")


@dataclass
class Expected:
    """What a report must say of a program on a certain number of ranks."""

    must: set[int] = field(default_factory=set)  # ranks that it names
    others: set[int] = field(default_factory=set)  # of these at least one, if there are any
    may: set[int] = field(default_factory=set)
    lines: dict[int, set[int]] = field(default_factory=dict)  # by rank: where it may stand

    @property
    def known(self) -> set[int]:
        """Everybody who may be named."""
        return self.must | self.others | self.may


@dataclass(frozen=True)
class Program:
    """One program of the bench."""

    path: Path
    text: str = field(repr=False)

    @property
    def name(self) -> str:
        """The file's name without its end."""
        return self.path.stem

    @cached_property
    def facts(self) -> dict[str, str]:
        """The header's lines."""
        return dict(HEADER.findall(self.text))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of report that are right; none for a correct program."""
        return tuple(kind.strip() for kind in self.facts.get("fault", "").split("|") if kind.strip())

    @property
    def ranks(self) -> tuple[int, ...]:
        """On how many ranks it is to be tried."""
        return tuple(int(n) for n in self.facts["ranks"].split()) if "ranks" in self.facts else RANKS

    @property
    def repeats(self) -> bool:
        """Whether it can run several times in one process: it does not end it."""
        return self.facts.get("repeat") != "no"

    def prints(self, n: int) -> str | None:
        """What rank 0 prints if all is right; None: it does not say."""
        return str(eval(self.facts["prints"], {"n": n})) if "prints" in self.facts else None

    def expected(self, n: int) -> Expected:
        """Work out who must be named, and where."""
        lines = enumerate(self.text.splitlines(), 1)
        marks = [(number, found[1]) for number, line in lines if (found := MARK.search(line))]
        if "left" in self.facts:
            marks.append((0, self.facts["left"]))  # who has left is at no line
        named = {
            rank
            for _, mark in marks
            for part in mark.split(",")
            if "others" not in part
            for rank in _ranks(part, n)
        }
        expected = Expected()
        for line, mark in marks:
            for part in mark.split(","):
                others = "others" in part
                ranks = set(range(n)) - named if others else _ranks(part, n)
                group = expected.may if "(" in part else expected.others if others else expected.must
                group |= ranks
                if line:
                    for rank in ranks:
                        expected.lines.setdefault(rank, set()).add(line)
        return expected


def _ranks(part: str, n: int) -> set[int]:
    """Read one part of a mark: "rank 0", "(odd)", "n - 1"."""
    words = part.strip().strip("()")
    groups = {
        "all": range(n),
        "last": [n - 1],
        "even": range(0, n, 2),
        "odd": range(1, n, 2),
        "lower": range(n // 2),
        "upper": range(n // 2, n),
    }
    if words in groups:
        return set(groups[words])
    if words.startswith("ranks "):
        return {int(rank) for rank in words.split()[1:]}
    return {int(eval(words.removeprefix("rank "), {"n": n}))}


def read(directory: Path) -> list[Program]:
    """Read all programs, in order of their names: correct ones and those with a fault."""
    paths = sorted(directory.glob("correct/*.py")) + sorted(directory.glob("faulty/*.py"))
    if not paths:
        raise UserError(
            f"there are no programs in {directory}: they come with the repository, in tests/faults; "
            "say where they are with --programs DIRECTORY"
        )
    programs = [Program(path, path.read_text()) for path in paths]
    for program in programs:
        if bool(program.kinds) != (program.path.parent.name == "faulty"):
            raise UserError(
                f"{program.path}: a program has a line '# fault: ...' if it is in faulty/, else none"
            )
    return programs
