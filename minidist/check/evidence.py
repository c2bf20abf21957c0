"""What guesses about a cause may ask: how often did each example count in a gradient?

The gradient is a weighted sum of the examples' own gradients, and with fewer examples than parameters its weights can
be solved for:

    gradient = sum of  w_i g_i / N      one process: every w_i is 1
                                        summed over 4 ranks: 4, 4, 4 ...           never summed: 4, 4, 4, 0, 0, 0 ...
                                        mean of means over 3, 3, 3 and 2 rows: 0.92 0.92 0.92 ... 1.38 1.38

So it can be read off which examples counted, and how often. Read next: `causes.py`.
"""

from dataclasses import dataclass

import numpy as np

from minidist.check.case import Case, Difference, gradient_of
from minidist.check.observe import Program
from minidist.check.record import Arrays

Guess = tuple[str, str]  # a short name, and the sentence
CLOSE = 1e-4


@dataclass(frozen=True)
class Evidence:
    """A case, the gradient of each example of the first step (None: not to be had), and the program itself."""

    case: Case
    by_row: list[Arrays] | None
    program: Program

    def weights_of_rows(self, target: Arrays) -> np.ndarray | None:
        """Solve for how much each example counts in a gradient, 1 being right; None where it is no such sum."""
        if self.by_row is None or not target:
            return None
        names = [name for name in target if all(name in row for row in self.by_row)]
        if not names or any(target[n].shape != self.by_row[0][n].shape for n in names):
            return None
        basis = np.stack([np.concatenate([row[n].ravel() for n in names]) for row in self.by_row], axis=1)
        wanted = np.concatenate([target[n].ravel() for n in names]).astype(np.float64)
        solution, _, rank, _ = np.linalg.lstsq(basis.astype(np.float64), wanted, rcond=1e-9)
        off = np.abs(basis @ solution - wanted).max()
        if rank < basis.shape[1] or off > max(1e-6, 10 * self.case.floor) * np.abs(wanted).max():
            return None
        return solution * len(self.by_row)

    def applied(self, step: int, rank: int) -> Arrays:
        """Give the gradients that a rank applied, of parameters that it holds whole."""
        record = self.case.many[step][rank]
        found = {name: gradient_of(record, name) for name in record.end}
        return {name: g for name, g in found.items() if g is not None}

    def applied_one(self, step: int) -> Arrays:
        """Give the gradients that one process applied."""
        record = self.case.one[step]
        return {name: g for name in record.end if (g := gradient_of(record, name)) is not None}

    def microbatches(self, step: int = 0) -> list[int]:
        """Count the times that each rank sent rows through the model."""
        return [len(record.reads) for record in self.case.many[step]]

    def wrong_on_one_rank(self) -> tuple[Difference, str] | None:
        """See whether one process, too, weighs its examples wrongly: by how it cuts a batch into microbatches."""
        record = self.case.one[0]
        pieces = [piece for piece in record.reads if len(piece)]
        if len(pieces) < 2 or sum(map(len, pieces)) != len(self.case.batches[0][0]):
            return None
        weights = self.weights_of_rows(self.applied(0, 0))
        if weights is None or np.allclose(weights, 1, atol=CLOSE):
            return None
        n, m = len(weights), len(pieces)
        means = np.ones(n)
        for piece in pieces:
            means[piece] = n / (m * len(piece))
        last = np.zeros(n)
        last[pieces[-1]] = 1
        text = ""
        if np.allclose(weights, m * means, atol=CLOSE):
            text = f"gradients are {m:.3f} times those of the whole batch: the losses of {m} microbatches are added up "
            text += f"and not divided by {m}"
        elif np.allclose(weights, 1 / m, atol=CLOSE):
            text = f"gradients are {1 / m:.3f} times those of the whole batch: divided twice by {m} microbatches?"
        elif np.allclose(weights, means, atol=CLOSE):
            sizes = ", ".join(str(len(piece)) for piece in pieces)
            text = f"a mean of the means of {m} microbatches with {sizes} examples: divide by the count of the batch"
        elif (np.abs(weights) < CLOSE).any():
            text = f"the examples {listed(np.flatnonzero(np.abs(weights) < CLOSE))} do not count: a later microbatch "
            text += "overwrites the gradient of an earlier one, or it is cleared in between"
        elif np.ptp(weights[pieces[0]]) < CLOSE and np.ptp([weights[p[0]] for p in pieces]) > CLOSE:
            shown = ", ".join(f"{weights[p[0]]:.3f}" for p in pieces)
            text = f"microbatches count {shown} times: divided again with each one?"
        if not text:
            return None
        name = next(reversed(record.start))
        got = gradient_of(record, name)
        assert self.by_row is not None
        expected = np.mean([row[name] for row in self.by_row], axis=0) if name in self.by_row[0] else None
        return Difference("gradient", 0, 0, name, True, got, expected), text


def listed(rows: np.ndarray) -> str:
    """Write row numbers as runs: 0-2, 5."""
    runs: list[list[int]] = []
    for row in sorted(map(int, rows)):
        if runs and runs[-1][1] == row - 1:
            runs[-1][1] = row
        else:
            runs.append([row, row])
    return ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in runs)


def ratio(got: Arrays, one: Arrays, tolerance: float = CLOSE) -> float | None:
    """Give the one factor between two sets of tensors; None if there is none."""
    names = [name for name in one if name in got and got[name].shape == one[name].shape and one[name].size]
    if not names:
        return None
    a, b = (np.concatenate([x[n].ravel().astype(np.float64) for n in names]) for x in (got, one))
    square = float(b @ b)
    if square == 0:
        return None
    factor = float(a @ b) / square
    return (
        factor
        if np.abs(a - factor * b).max() <= tolerance * max(abs(factor), 1e-9) * np.abs(b).max()
        else None
    )


def near(a: float, b: float) -> bool:
    return abs(a - b) <= CLOSE * abs(b)
