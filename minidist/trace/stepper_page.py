"""Draw the steps of `stepper.py` as HTML: for each step a table of ranks and chunks, and a slider to choose the step.

All tables are in the page. A few lines of script hide all but one: where no script may run (a notebook that is not
trusted), the steps stand one below another. Nothing is loaded, no id is used, so several may stand in one page.
"""

from __future__ import annotations

from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from minidist.trace.stepper import Steps

SHOWN = 4  # numbers of a chunk; of more than these, the first and the last

STYLE = """
.minidist-steps {font: 14px/1.4 system-ui, sans-serif; color: #000; background: #fff; padding: 8px; max-width: 60em}
.minidist-steps .choose {display: none; align-items: center; gap: 8px}
.minidist-steps.moves .choose {display: flex}
.minidist-steps input {flex: 1; min-width: 0; accent-color: #0072B2}
.minidist-steps .wide {overflow-x: auto}
.minidist-steps table {border-collapse: separate; border-spacing: 3px; margin: 0 0 8px; color: #000; font-size: 14px}
.minidist-steps caption {text-align: left; font-weight: bold}
.minidist-steps th {text-align: left; font-weight: normal; padding: 2px 4px; background: none; color: #000}
.minidist-steps td {text-align: center; padding: 4px 6px; border: 2px solid #8C8C8C; background: #fff; color: #000;
  font-variant-numeric: tabular-nums; white-space: nowrap}
.minidist-steps td.alike {background: #BFE6DA}
.minidist-steps td.new {border: 2px dashed #D55E00; font-weight: bold}
.minidist-steps td.none {border-style: dotted; color: #595959}
.minidist-steps p {margin: 4px 0}
.minidist-steps.moves .number {display: none}
.minidist-steps p span {padding: 0 6px; border: 2px solid #8C8C8C}
.minidist-steps p span.new {border: 2px dashed #D55E00; font-weight: bold}
.minidist-steps p span.alike {background: #BFE6DA}
"""

SCRIPT = """
(function () {
  document.querySelectorAll(".minidist-steps:not(.moves)").forEach(function (root) {
    var slider = root.querySelector("input"), steps = root.querySelectorAll(".step");
    function show() {
      steps.forEach(function (step, n) { step.hidden = n !== Number(slider.value); });
      slider.setAttribute("aria-valuetext", "step " + slider.value + " of " + slider.max);
      root.querySelector("output").textContent = slider.value + " of " + slider.max;
    }
    slider.addEventListener("input", show);
    root.classList.add("moves");
    show();
  });
})();
"""


def whole(steps: Steps) -> str:
    """Give a page that stands by itself."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Step by step</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,"><style>body {margin: 8px; background: #fff}</style></head><body>\n'
        f"{part(steps)}\n</body></html>\n"
    )


def part(steps: Steps) -> str:
    """Give the part of a page, as a notebook shows it."""
    last = len(steps.held) - 1
    tables = "\n".join(_step(steps, number) for number in range(last + 1))
    return (
        f'<style>{STYLE}</style><div class="minidist-steps">'
        '<label class="choose">step <input type="range" min="0" '
        f'max="{last}" value="0" step="1" aria-label="step"> <output></output></label>\n{tables}\n'
        '<p><span class="new">changed</span> in this step &nbsp; <span class="alike">the same</span> on all ranks</p>'
        f"</div><script>{SCRIPT}</script>"
    )


def _step(steps: Steps, number: int) -> str:
    """Give the tables of one step: one for each array."""
    said = f"step {number}" if number else "the start"
    tables = "".join(_table(steps, number, name) for name in steps.names)
    return f'<div class="step"><p class="number">{said}</p><div class="wide">{tables}</div></div>'


def _table(steps: Steps, number: int, name: str) -> str:
    now = [steps.chunks(number, rank, name) for rank in range(steps.ranks)]
    before = [steps.chunks(max(0, number - 1), rank, name) for rank in range(steps.ranks)]
    alike = [
        steps.ranks > 1
        and all(now)
        and all(np.array_equal(a[c], b[c], equal_nan=True) for a, b in pairwise(now))
        for c in range(steps.ranks)
    ]
    rows = []
    for rank, chunks in enumerate(now):
        cells = '<td class="none">not yet</td>' if not chunks else ""
        for place, chunk in enumerate(chunks):
            old = before[rank][place] if before[rank] else None
            marks = ["new"] * (old is None or not np.array_equal(old, chunk, equal_nan=True))
            marks += ["alike"] * alike[place]
            cells += f'<td class="{" ".join(marks)}">{_numbers(chunk)}</td>'
        did = escape(steps.did[number][rank])
        rows.append(f'<tr><th scope="row">rank {rank}</th>{cells}<th>{did}</th></tr>')
    heads = "".join(f'<th scope="col">chunk {chunk}</th>' for chunk in range(steps.ranks))
    return (
        f"<table><caption>{escape(name)}</caption><thead><tr><th></th>{heads}<th></th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def _numbers(chunk: np.ndarray) -> str:
    """Write the numbers of a chunk, or where there are many the first and the last."""
    if not chunk.size:
        return "empty"
    texts = [_number(value) for value in chunk.tolist()]
    return " ".join(texts) if len(texts) <= SHOWN else f"{texts[0]} … {texts[-1]} ({len(texts)})"


def _number(value: float) -> str:
    """Write a whole number as one, and of others four digits."""
    whole = isinstance(value, int) or (value.is_integer() and abs(value) < 1e10)
    return str(int(value)) if whole else f"{value:.4g}"
