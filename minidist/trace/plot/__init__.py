"""Draw what ranks did, with matplotlib: `from minidist.trace import plot; plot.timeline(run)`.

Each takes a run (a `Timeline`, real or simulated), or several to compare, and gives the figure:

    timeline       who did what when, the microbatch in each box
    curves         the loss of each step
    bytes_matrix   how much each rank sent to each other one
    time_split     what each rank spent its time on
    memory         what each rank held over time
    roofline       how near its layers came to what the processor allows
    one_page       all of these on one page, of one run

The others draw ideas, from the objects themselves: `who_read`, `tape`, `cut_weight`, `buckets`, `memory_bars`,
`wait_graph`, `ring_or_tree`, `paths`; they begin with `boxes.py`. Read next: `style.py`, then `timeline.py`.
"""

from minidist.trace.plot.buckets import buckets
from minidist.trace.plot.bytes_matrix import bytes_matrix
from minidist.trace.plot.curves import curves
from minidist.trace.plot.cut_weight import cut_weight
from minidist.trace.plot.memory import memory
from minidist.trace.plot.memory_bars import memory_bars
from minidist.trace.plot.one_page import one_page
from minidist.trace.plot.paths import paths
from minidist.trace.plot.ring_or_tree import ring_or_tree
from minidist.trace.plot.roofline import roofline
from minidist.trace.plot.tape import tape
from minidist.trace.plot.time_split import time_split
from minidist.trace.plot.timeline import timeline
from minidist.trace.plot.wait_graph import wait_graph
from minidist.trace.plot.who_read import who_read

__all__ = [
    "buckets",
    "bytes_matrix",
    "curves",
    "cut_weight",
    "memory",
    "memory_bars",
    "one_page",
    "paths",
    "ring_or_tree",
    "roofline",
    "tape",
    "time_split",
    "timeline",
    "wait_graph",
    "who_read",
]
