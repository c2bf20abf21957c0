"""Put a page together: the template, and in it the script and the data.

The data come from users (a command, the names of files and layers), so nothing of them is ever read as HTML: they stand
in the page as JSON without any "<", and the script writes them as text. The page itself forbids its browser to load
anything (Content-Security-Policy). Read next: `contents.py`.
"""

from __future__ import annotations

import html
import json
import math
import re
from importlib import resources
from pathlib import Path
from typing import Any


def render(contents: dict[str, Any]) -> str:
    """Give the page as HTML; contents: what `contents.contents` gives."""
    parts = {
        "title": html.escape(contents["title"]),
        "script": _file("page.js") + _file("timeline.js"),
        "data": _json(contents),
    }
    # In one go: what was put in is not searched for places once more.
    return re.sub("<!--(title|script|data)-->", lambda place: parts[place[1]], _file("template.html"))


def write(contents: dict[str, Any], path: str | Path) -> None:
    """Write the page to a file. Raises OSError where that cannot be done."""
    Path(path).write_text(render(contents), encoding="utf-8")


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _json(plain: Any) -> str:
    """Write JSON that may stand in a <script>: "</script>" or "<!--" in a text would end it, or hide what follows."""
    return json.dumps(_finite(plain), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _finite(plain: Any) -> Any:
    """Put null in the place of each nan and inf, which JSON does not know."""
    if isinstance(plain, float):
        return plain if math.isfinite(plain) else None
    if isinstance(plain, dict):
        return {key: _finite(value) for key, value in plain.items()}
    if isinstance(plain, list | tuple):
        return [_finite(value) for value in plain]
    return plain
