"""A page for each module, from its docstrings.

Our docstrings are prose with indented pictures and tables, made to be read in the source. So their prose is shown as
prose, `code` as code, and what is indented as it stands, letter by letter.
"""

import re
from pathlib import Path

from code_pages import ROOT, address, find

STILL = ("__main__", "_kernels")  # commands, and what is compiled


def modules() -> list[str]:
    """List the modules that have a page."""
    found = []
    for path in sorted((ROOT / "minidist").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if not any(part in STILL for part in parts):
            found.append(".".join(parts).removesuffix(".__init__"))
    return found


def write(folder: Path) -> None:
    """Write a page for each module, that of a package with a list of those inside it; remove pages of old ones."""
    folder.mkdir(exist_ok=True)
    every = modules()
    pages = {}
    for name in every:
        parent, inside = name.rpartition(".")[0], [each for each in every if each.rpartition(".")[0] == name]
        # Only the first page is in the site's list of pages, which is on each of them, and would be ten times as long.
        lines = [":orphan:", "", f"In :doc:`{parent}`", ""] if parent else []
        lines += [
            name,
            "=" * len(name),
            "",
            f".. automodule:: {name}",
            "   :members:",
            "   :ignore-module-all:",
            "",
        ]
        lines += [f"- :doc:`{each}`" for each in inside]
        pages[f"{name}.rst"] = "\n".join([*lines, ""])
    for old in folder.glob("*.rst"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        file = folder / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:  # else it would be built again
            file.write_text(text, encoding="utf-8")


def plain(lines: list[str]) -> list[str]:
    """Turn a docstring into what Sphinx shows as it was meant: prose, lists, and whatever is indented as it stands."""
    made: list[str] = []
    literal = in_list = False
    for line in lines:
        if not line.strip():
            made.append("")
            continue
        item = re.match(r"(- |\d+\. )", line)
        indented = line.startswith("    ") or (line.startswith("  ") and not in_list)
        if indented and not literal:
            made += ["", "::", ""]
        elif (literal and not indented) or (item and not in_list):
            made.append("")
        literal = indented
        in_list = bool(item) or (in_list and line.startswith("  "))
        made.append(
            "    " + line if indented else item[0] + prose(line[len(item[0]) :]) if item else prose(line)
        )
    return made


def prose(line: str) -> str:
    """Mask what would mean something to Sphinx; keep `code`, *stress* and **strong**."""
    parts = re.split(r"(`[^`]+`|\*\*[^*\s][^*]*\*\*|\*[^*\s][^*]*\*)", line)
    for place, part in enumerate(parts):
        if place % 2 and part.startswith("`"):
            parts[place] = f"\\ `{part}`\\ "
        elif place % 2:
            parts[place] = f"\\ {part}\\ "
        else:
            parts[place] = re.sub(r"([\\*`_|])", r"\\\1", part)
    return re.sub(r"^(\\ )|(\\ )$", "", "".join(parts))


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """Say where the source of a documented object is, from its page in docs/api/."""
    try:
        return "../../" + address(*find(f"{info['module']}.{info['fullname']}"))
    except LookupError:  # inherited, or made while the module was imported
        return None


def setup(app):
    """Join the site's build."""

    def turn(app, what, name, thing, options, lines):
        lines[:] = plain(lines)

    app.connect("autodoc-process-docstring", turn)
    return {"parallel_read_safe": True}
