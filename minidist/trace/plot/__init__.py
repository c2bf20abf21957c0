"""Draw what ranks did, with matplotlib: `from minidist.trace import plot; plot.timeline(run)`.

Read next: `style.py`, then `timeline.py`.
"""

from minidist.trace.plot.buckets import buckets
from minidist.trace.plot.cut_weight import cut_weight
from minidist.trace.plot.memory_bars import memory_bars
from minidist.trace.plot.paths import paths
from minidist.trace.plot.ring_or_tree import ring_or_tree
from minidist.trace.plot.tape import tape
from minidist.trace.plot.timeline import timeline
from minidist.trace.plot.wait_graph import wait_graph
from minidist.trace.plot.who_read import who_read

__all__ = [
    "buckets",
    "cut_weight",
    "memory_bars",
    "paths",
    "ring_or_tree",
    "tape",
    "timeline",
    "wait_graph",
    "who_read",
]
