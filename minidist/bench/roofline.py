"""The roofline picture: how near each row comes to what the processor allows.

    log rate |          ____________  peak rate: arithmetic is the limit
             |        /
             |      /   x   a row: its operations per second, at its operations per byte
             |    /
             |  /  bandwidth: memory is the limit
             +--------------------------- log operations per byte

Williams, Waterman & Patterson, "Roofline: An Insightful Visual Performance Model", CACM 2009. There are two slopes
here, because data that fits into a cache comes faster than from memory.
"""

from importlib import util
from pathlib import Path

import numpy as np

from minidist.bench.measure import Row
from minidist.errors import UserError
from minidist.trace.processor import LARGEST_COPY, SMALLEST_COPY, Processor

# Okabe & Ito's colours, which the colour-blind tell apart; the shapes differ too.
KINDS = {
    "matmul": ("matrix products", "#0072B2", "o"),
    "linear": ("product, bias and ReLU", "#56B4E9", "h"),
    "causal_attention": ("attention", "#CC79A7", "*"),
    "gelu": ("GELU", "#D55E00", "s"),
    "layer_norm": ("layer norm", "#009E73", "D"),
    "cross_entropy": ("cross entropy", "#E69F00", "^"),
    "softmax": ("softmax", "#F0E442", "v"),
    "adamw": ("AdamW", "#000000", "P"),
    "sgd": ("SGD", "#000000", "X"),
    "sum": ("sum", "#999999", "<"),
    "max": ("max", "#999999", ">"),
}


def require_matplotlib() -> None:
    """Refuse to begin (UserError) where the picture could not be drawn in the end."""
    if util.find_spec("matplotlib") is None:
        raise UserError("--plot needs matplotlib: pip install matplotlib")


def draw(rows: list[Row], processor: Processor, path: str | Path) -> None:
    """Draw the float32 rows that know their operations and bytes, ours alone, and write the picture to `path`."""
    require_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.add_subplot()
    peak = processor.peak("float32") / 1e9
    intensity = np.geomspace(0.1, 500, 200)  # operations per byte
    for nbytes, what, dashes in ((SMALLEST_COPY, "cache", "-"), (LARGEST_COPY, "memory", "--")):
        bandwidth = processor.bandwidth(nbytes) / 1e9
        roof = np.minimum(peak, intensity * bandwidth)
        axes.plot(intensity, roof, dashes, color="black", label=f"copying in {what}: {bandwidth:.0f} GB/s")
    axes.annotate(f"peak {peak:.0f} GFLOP/s", (480, peak), (0, 5), textcoords="offset points", ha="right")
    for kind, (label, colour, marker) in KINDS.items():
        drawn = [
            r
            for r in rows
            if r.name.split(",")[0].split(" ")[0] == kind and r.nbytes and r.dtype == "float32"
        ]
        if drawn:
            x = [row.flops / row.nbytes for row in drawn]
            y = [row.flops / row.ours_seconds / 1e9 for row in drawn]
            axes.scatter(x, y, s=36, marker=marker, color=colour, alpha=0.75, label=label, zorder=3)
    axes.set(xscale="log", yscale="log", xlabel="operations per byte read or written", ylabel="GFLOP/s")
    axes.set_title("minidist's kernels beneath the roof of this processor (one point per shape)")
    axes.grid(alpha=0.3, which="both", linewidth=0.5)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    figure.savefig(path, dpi=150)
