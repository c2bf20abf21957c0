"""Draw what ranks did, with matplotlib: `from minidist.trace import plot; plot.timeline(run)`.

Read next: `style.py`, then `timeline.py`.
"""

from minidist.trace.plot.buckets import buckets
from minidist.trace.plot.cut_weight import cut_weight
from minidist.trace.plot.memory_bars import memory_bars
from minidist.trace.plot.timeline import timeline
from minidist.trace.plot.who_read import who_read

__all__ = ["buckets", "cut_weight", "memory_bars", "timeline", "who_read"]
