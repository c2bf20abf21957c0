"""Draw a flat vector: which parameters are where, in which buckets they are sent, and which rank owns what.

    parameters   |head.w         |h.b|block.1.w      |block.0.w  |
    buckets      |0                  |1                          |
    owners       |0    |1     |2     |0       |1       |2        |      ZeRO: the r-th rank owns the r-th part of each

Read next: `minidist/nn/flat.py`, the vector, and `minidist/sync/shard.py`, the owners.
"""

from __future__ import annotations

from typing import Any

from minidist.comm.arrays import cut
from minidist.nn import Group
from minidist.trace.plot import style
from minidist.trace.plot.boxes import EDGE, box, canvas, legend, rows_of, write

HIGH = 0.32  # inches of a row of boxes


def buckets(sync: Any) -> Any:
    """Draw the vectors of a sync that cuts gradients into buckets (DataParallel, Zero; on any of its ranks).

    Lengths are in proportion to numbers. A name stands where there is room for it.
    """
    shared_out = hasattr(sync, "shards")  # as ZeRO does
    groups = [group for group in sync.groups if group.trainable]
    sizes = {id(bucket.group): sync.mesh.comm(*bucket.group.axes).size for bucket in sync.buckets}
    ranks = max(sizes.values(), default=1) if shared_out else 1
    names = [f"rank {rank}" for rank in range(ranks)] if shared_out else []
    owners = f"ZeRO stage {sync.stage} on {ranks} ranks" if shared_out else "every rank updates everything"
    each = 0.3 + 3 * HIGH + 0.2
    figure, ax = canvas(
        0.45 + each * len(groups) + (0.25 * rows_of(names) if names else 0.05),
        f"{len(sync.buckets)} bucket{'s' * (len(sync.buckets) != 1)} on the flat vector; {owners}",
    )
    y = 0.45
    for group in groups:
        mine = [bucket for bucket in sync.buckets if bucket.group is group]
        _one_group(ax, y, group, mine, sizes[id(group)] if shared_out else 0)
        y += each
    if names:
        legend(ax, y, names)
    return figure


def _one_group(ax: Any, y: float, group: Group, mine: list[Any], ranks: int) -> None:
    """Draw the rows of one group; ranks: among which each bucket is shared out, 0: it is not."""
    left = 1.05
    scale = (style.WIDTH - left - EDGE) / max(1, group.weights.size)
    size = f"{group.weights.size:,} numbers, {group.dtype}"
    write(ax, EDGE, y + 0.1, f"{size}; the gradient is summed over {', '.join(group.axes)}")
    rows = [y + 0.3 + HIGH * place for place in range(3)]
    for text, at in zip(("parameters", "buckets", "owners"), rows, strict=True):
        write(ax, EDGE, at + HIGH / 2, text)
    for entry in group.layout:
        box(ax, left + entry.offset * scale, rows[0], entry.size * scale, HIGH, entry.name, linewidth=0.5)
    for bucket in mine:
        start, width = left + bucket.region.start * scale, bucket.size * scale
        box(ax, start, rows[1], width, HIGH, str(bucket.index), facecolor=style.PALE)
        if not ranks:
            box(ax, start, rows[2], width, HIGH, "all", linewidth=0.5)
        for rank, piece in enumerate(cut(bucket.size, ranks) if ranks else []):
            at, wide = start + piece.start * scale, (piece.stop - piece.start) * scale
            box(ax, at, rows[2], wide, HIGH, str(rank), rank, linewidth=0.5)
