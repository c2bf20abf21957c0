"""The source as pages with an address for each line, and links to the line that is meant.

    {line}`minidist.comm.all_reduce.ring`                           a function, a class, a method, a constant
    {line}`minidist.sync.zero.Zero.step : all_gather`               the first line in it that has this text

A line's number is looked up when the site is built, so that it is never out of date; a name or a text that is no longer
there ends the build, and fails a test. Read next: `api_pages.py`, whose "source" links lead here too.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def module_path(name: str) -> Path | None:
    """Give the file of a module, None if there is no such module."""
    path = ROOT / name.replace(".", "/")
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def find(target: str) -> tuple[str, int]:
    """Give the module and the line of a name, or of a text within it; LookupError if there is none."""
    name, _, text = target.partition(" : ")
    parts = name.split(".")
    modules = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    module = next((each for each in modules if module_path(each)), None)
    if module is None:
        raise LookupError(f"{name}: there is no such module")
    lines, node = read(module)
    last = len(lines)
    for part in parts[module.count(".") + 1 :]:
        found = [child for child in getattr(node, "body", []) if part in names(child)]
        if not found:
            raise LookupError(f"{name}: there is no {part} in {module}")
        node, last = found[0], found[0].end_lineno
    first = getattr(node, "lineno", 1)
    if not text:
        return module, first
    for number, line in enumerate(lines[first - 1 : last], first):
        if text in line:
            return module, number
    raise LookupError(f"{name}: no line of it has {text!r}")


@cache
def read(module: str) -> tuple[list[str], ast.Module]:
    """Give a module's lines and its syntax tree."""
    source = module_path(module).read_text(encoding="utf-8")
    return source.splitlines(), ast.parse(source)


def names(node: ast.stmt) -> list[str]:
    """Give the names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def address(module: str, line: int) -> str:
    """Give the page of a line, from the site's root."""
    return f"code/{module.replace('.', '/')}.html#line-{line}"


def line_role(name, rawtext, text, lineno, inliner, options=None, content=None):
    """Link to a line of the source."""
    from docutils import nodes

    try:
        module, line = find(text)
    except LookupError as error:
        return [], [inliner.reporter.warning(str(error), line=lineno)]
    up = "../" * inliner.document.settings.env.docname.count("/")
    words = f"{module_path(module).relative_to(ROOT).as_posix()}, line {line}"
    return [nodes.reference(rawtext, words, refuri=up + address(module, line))], []


def pages(app) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Make a page of each source file."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    form = HtmlFormatter(linenos="inline", linespans="line", wrapcode=True)
    for path in sorted((ROOT / "minidist").rglob("*.py")):
        where = path.relative_to(ROOT)
        module = ".".join(where.with_suffix("").parts).removesuffix(".__init__")
        body = (
            f"<h1>{where.as_posix()}</h1>{highlight(path.read_text(encoding='utf-8'), PythonLexer(), form)}"
        )
        yield f"code/{module.replace('.', '/')}", {"title": where.as_posix(), "body": body}, "page.html"


def setup(app):
    """Join the site's build."""
    app.add_role("line", line_role)
    app.connect("html-collect-pages", pages)
    return {"parallel_read_safe": True}
