"""The manifest: what a checkpoint consists of, in JSON. Where there is none, there is no checkpoint.

    {"format": "minidist checkpoint", "version": 1, "step": 40, "mesh": {"data": 2, "pipe": 2}, ...
     "files": {"shard-0000.safetensors": {"bytes": 266240, "header_sha256": "..."}, ...},
     "tensors": [{"slot": "momentum", "name": "layers.0.weight", "shape": [64, 256], "range": [0, 8192],
                  "file": "shard-0001.safetensors", "sha256": "...", ...}, ...],
     "sha256": of everything above}

It is written last, when all files that it speaks of are on the disk. Read next: `loading.py`.
"""

import hashlib
import json
from typing import Any

from minidist.checkpoint.safetensors import Damaged

NAME = "manifest.json"
FORMAT, VERSION = "minidist checkpoint", 1


def render(content: dict[str, Any]) -> str:
    """Write it down, with its own sha256 at the end."""
    content = {"format": FORMAT, "version": VERSION, **content}
    content.pop("sha256", None)
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    return json.dumps({**content, "sha256": digest}, indent=1) + "\n"


def parse(text: str) -> dict[str, Any]:
    """Read it, to the last bit as it was written. Raises Damaged, or says that a newer minidist is needed."""
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise Damaged(f"its {NAME} is damaged, or no manifest of minidist's")
    version = content.get("version")
    if isinstance(version, int) and version > VERSION:
        raise Damaged(
            f"it is of format {version}, and this minidist knows formats up to {VERSION}: install a newer minidist"
        )
    if render(content) != text:
        raise Damaged(f"its {NAME} is damaged: its sha256 is another one")
    return content
