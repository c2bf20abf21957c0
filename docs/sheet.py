"""The course on one sheet of paper: `python docs/sheet.py`, with `pip install matplotlib`, writes docs/sheet.pdf.

The two questions, the collectives and their gradients (the table of `minidist/comm/on_tape.py`, as it stands there),
and what each collective and each mode costs. A cost is written as Python, `2 * (p - 1) / p * n`, so that a test can
compute it beside `minidist/plan/`, which is tested against what ranks really count; the sheet shows it as 2 (p-1)/p n.
"""

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minidist.comm import on_tape

# Collective, way, and of the rank that sends most: messages, bytes. Then seconds, with latency a and bandwidth B.
COLLECTIVES = [
    ("all-reduce", "naive", "p - 1", "(p - 1) * n", "2 * (a + (p - 1) * n/B)"),
    ("", "tree", "log2(p)", "n * log2(p)", "2 * log2(p) * (a + n/B)"),
    ("", "recursive doubling", "log2(p)", "n * log2(p)", "log2(p) * (a + n/B)"),
    ("", "ring", "2 * (p - 1)", "2 * (p - 1)/p * n", "2 * (p - 1) * (a + n/p/B)"),
    ("", "shared memory", "2 * (p - 1)", "2 * (p - 1)/p * n", "2 * a + 2 * (p - 1)/p * n/B"),
    ("reduce-scatter", "ring", "p - 1", "(p - 1)/p * n", "(p - 1) * (a + n/p/B)"),
    ("all-gather", "ring", "p - 1", "(p - 1)/p * n", "(p - 1) * (a + n/p/B)"),
    ("all-to-all", "pairwise", "p - 1", "(p - 1)/p * n", ""),
    ("broadcast", "tree", "log2(p)", "n * log2(p)", "log2(p) * (a + n/B)"),
    ("reduce", "tree", "1", "n", ""),
    ("barrier", "dissemination", "log2(p)", "0", "log2(p) * a"),
]
# Mode, its option, bytes that a rank sends in a step, and what it holds: weights, gradients, optimizer state.
MODES = [
    ("data parallel", "--mode data", "2 * (p - 1)/p * n", "n", "n", "K * n"),
    ("ZeRO, stage 1", "--zero 1", "2 * (p - 1)/p * n", "n", "n", "K * n/p"),
    ("ZeRO, stage 2", "--zero 2", "2 * (p - 1)/p * n", "n", "n/p", "K * n/p"),
    ("ZeRO, stage 3", "--zero 3", "3 * (p - 1)/p * n", "n/p", "n/p", "K * n/p"),
    ("averaging every k steps", "--mode averaging", "2 * (p - 1)/p * n/k", "n", "n", "K * n"),
    ("parameter server, a worker", "--mode parameter-server", "n", "n", "n", "0"),
    ("one of its S servers", "--servers S", "p * n/S", "n/S", "n/S", "K * n/S"),
    ("tensor parallel, L blocks", "--mode model", "8 * L * m * (p - 1)/p", "n/p", "n/p", "K * n/p"),
    ("pipeline, an inner stage", "--mode pipeline", "2 * m", "n/p", "n/p", "K * n/p"),
]
QUESTIONS = [
    ("whole, on one rank", "sum gradients in every step: data parallel"),
    ("every matrix in pieces: tensor parallel", "the same, and keep nothing twice: ZeRO"),
    ("some layers on each rank: pipeline parallel", "average weights every k steps: model averaging"),
    ("", "push gradients to a server, pull weights: parameter server"),
]
CODE = """\
loss = replica.forward_backward(batch)    # split: gradients of this replica's share of the batch
norm = sync.step()                        # sync: combine with the other replicas, update the weights"""
LAW = """Any answer goes with any other. Losses are divided by the size of the global batch; then all is a plain
sum."""
VALUES = (
    "Same: equal on all ranks. Partial: the true value is the sum of the ranks'. Piece: a part along a dim."
)
LETTERS = """p ranks, a power of 2; n bytes in the whole vector; latency a, bandwidth B. Messages and bytes: what the
rank sends that sends most. A short vector wants few steps (recursive doubling), a long one few bytes (ring)."""
MODE_LETTERS = """n: bytes of the weights; K: vectors of optimizer state (momentum: 1, Adam: 2); m: bytes of a border's
activations, for the whole batch. Each number is for one rank, by the ring, to the terms that matter."""
BUBBLE = """A pipeline of S stages and M microbatches is idle for (S-1)/(M+S-1) of its time, by GPipe and 1F1B alike,
and with V chunks on each rank for (S-1)/(VM+S-1). It keeps the activations of all M by GPipe, of at most S by 1F1B."""
MARGIN, PAGE = 0.055, (8.27, 11.69)  # of the width; inches: A4


def shown(cost: str) -> str:
    """Write a cost as one does on paper: 2 * (p - 1)/p * n -> 2 (p-1)/p n."""
    text = re.sub(r"log2\(p\)", "log\N{SUBSCRIPT TWO} p", cost).replace("p - 1", "p-1").replace(" * ", " ")
    return text.replace("n/p/B", "n/(pB)")


def gradients() -> list[list[str]]:
    """Read the table of collectives and their gradients where it stands."""
    lines = (on_tape.__doc__ or "").splitlines()
    first = next(number for number, line in enumerate(lines) if line.split()[:2] == ["forward", "from"])
    rows = []
    for line in lines[first + 1 :]:
        if not line.strip():
            return rows
        rows.append(re.split(r" {2,}", line.strip().replace("->", "\N{RIGHTWARDS ARROW}")))
    return rows


class Sheet:
    """A page that is written from the top down."""

    def __init__(self) -> None:
        from matplotlib.figure import Figure

        self.figure = Figure(figsize=PAGE)
        self.y = 0.965

    def write(self, x: float, text: str, size: float = 8.5, **style: Any) -> None:
        """Write a text at x (0 to 1 between the margins), where the page has got to."""
        self.figure.text(MARGIN + x * (1 - 2 * MARGIN), self.y, text, fontsize=size, va="baseline", **style)

    def heading(self, text: str) -> None:
        """Begin a part."""
        self.y -= 0.012
        self.write(0, text, 11, weight="bold", color="#1f4e8c")
        self.y -= 0.021

    def line(self, text: str, **style: Any) -> None:
        """Write a line of prose."""
        self.write(0, text, **style)
        self.y -= 0.0150

    def prose(self, text: str) -> None:
        """Write a paragraph, as many lines as it takes."""
        for line in textwrap.wrap(text, 122):
            self.line(line)

    def table(self, columns: Sequence[tuple[float, str]], rows: Sequence[Sequence[str]]) -> None:
        """Write a table; columns: where each begins, and its name."""
        from matplotlib.lines import Line2D

        for x, name in columns:
            self.write(x, name, weight="bold")
        self.y -= 0.005
        self.figure.add_artist(Line2D([MARGIN, 1 - MARGIN], [self.y, self.y], color="0.6", linewidth=0.7))
        self.y -= 0.0135
        for row in rows:
            for (x, _), text in zip(columns, row, strict=True):
                self.write(x, text)
            self.y -= 0.0150
        self.y -= 0.004


def page() -> Any:
    """Write the sheet; the matplotlib figure."""
    sheet = Sheet()
    sheet.write(0, "Distributed training on one sheet", 15, weight="bold")
    sheet.write(0.91, "minidist", 11, color="0.4")
    sheet.y -= 0.018
    sheet.heading("Two questions")
    for line in CODE.splitlines():
        sheet.line(line, family="monospace")
    sheet.y -= 0.006
    columns = [(0, "Split: where does one copy live?"), (0.46, "Sync: how do copies stay in agreement?")]
    sheet.table(columns, QUESTIONS)
    sheet.prose(LAW)
    sheet.heading("Collectives, and their gradients")
    sheet.table([(0, "forward"), (0.3, "from \N{RIGHTWARDS ARROW} to"), (0.7, "backward")], gradients())
    sheet.prose(VALUES)
    sheet.heading("What a collective costs")
    columns = [(0, "collective"), (0.15, "way"), (0.34, "messages"), (0.47, "bytes"), (0.66, "seconds")]
    sheet.table(columns, [[*row[:2], *map(shown, row[2:])] for row in COLLECTIVES])
    sheet.prose(LETTERS)
    sheet.heading("What a mode costs")
    columns = [(0, "mode"), (0.25, "option"), (0.48, "sent in a step")]
    columns += [(0.66, "weights"), (0.76, "gradients"), (0.88, "state")]
    sheet.table(columns, [[*row[:2], *map(shown, row[2:])] for row in MODES])
    sheet.prose(MODE_LETTERS)
    sheet.prose(BUBBLE)
    return sheet.figure


def draw(path: Path) -> None:
    """Write the sheet to a file, the same bytes each time."""
    page().savefig(path, metadata={"CreationDate": None} if path.suffix == ".pdf" else None, dpi=110)


if __name__ == "__main__":
    draw(Path(__file__).parent / "sheet.pdf")
