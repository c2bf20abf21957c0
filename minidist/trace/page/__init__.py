"""One page about a run: a single HTML file that needs no network.

    template.html            its sections and their style  \
    page.js, timeline.js     draw them, in the browser      >  render.py  >  run.html
    contents.py              what is drawn: plain data     /

Read next: `render.py`.
"""

from minidist.trace.page.render import render, write

__all__ = ["render", "write"]
