"""Draw what ranks did, with matplotlib: `from minidist.trace import plot; plot.timeline(run)`.

Read next: `style.py`, then `timeline.py`.
"""

from minidist.trace.plot.timeline import timeline

__all__ = ["timeline"]
