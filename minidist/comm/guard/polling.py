"""Whether a loop that asks `request.test()` again and again can end in any other way than by its answer.

    while not request.test():            for _ in range(1000):            while not request.test() and time() < end:
        time.sleep(0.001)                    if request.test(): break         ...

The first waits as surely as `request.wait()` does. The other two give up some day and may then do what the others
wait for: they run. This is read from the loop's source. Where it is not plain, the rank runs: it calls anything else
than what is listed below, the loop stands in another function than the call of `test()`, there is no source.

Read `listener.py` next, which asks.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterable

# What a loop may call: anything else may raise, or communicate.
HARMLESS = {"test", "sleep", "print", "all", "any"}


@functools.lru_cache(64)
def only_test_ends(line: str) -> bool:
    """Say whether the innermost `while` around "file:line" ends by a test() that says yes, and not otherwise."""
    file, _, number = line.rpartition(":")
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return False
    at = int(number) if number.isdigit() else 0
    around = [
        node
        for node in ast.walk(tree)  # from the outside in
        if isinstance(node, ast.While) and node.lineno <= at <= (node.end_lineno or 0)
    ]
    if not around:
        return False
    loop = around[-1]
    calls = [node for node in ast.walk(loop) if isinstance(node, ast.Call)]
    return (
        all(_name(call) in HARMLESS for call in calls)
        and any(_name(call) == "test" for call in calls)
        and (ast.unparse(loop.test) == "True" or _is_answer(loop.test, loop))
        and _leaves_by_answer(loop.body, loop)
    )


def _name(call: ast.Call) -> str | None:
    return getattr(call.func, "attr", None) or getattr(call.func, "id", None)


def _is_answer(said: ast.AST, loop: ast.While, known: frozenset[str] = frozenset()) -> bool:
    """Say whether an expression's value depends on what test() answers and on nothing else."""
    if isinstance(said, ast.UnaryOp):
        return _is_answer(said.operand, loop, known)
    if isinstance(said, ast.BoolOp):
        return all(_is_answer(value, loop, known) for value in said.values)
    if isinstance(said, ast.NamedExpr):
        return _is_answer(said.value, loop, known)
    if isinstance(said, ast.Call):  # all(r.test() for r in requests)
        return _name(said) == "test" or all(_is_answer(value, loop, known) for value in said.args)
    if isinstance(said, (ast.GeneratorExp, ast.ListComp)):  # [r for r in requests if not r.test()]
        conditions = [condition for part in said.generators for condition in part.ifs] or [said.elt]
        return all(_is_answer(condition, loop, known) for condition in conditions)
    if isinstance(said, ast.Name) and said.id not in known:  # done = request.test()
        stores = [n for n in ast.walk(loop) if isinstance(n, ast.Name) and n.id == said.id]
        stores = [node for node in stores if isinstance(node.ctx, ast.Store)]
        values = [
            node.value
            for node in ast.walk(loop)
            if isinstance(node, ast.Assign) and any(store in node.targets for store in stores)
        ]
        known |= {said.id}
        return 0 < len(stores) == len(values) and all(_is_answer(value, loop, known) for value in values)
    return False


def _leaves_by_answer(statements: Iterable[ast.stmt], loop: ast.While, answered: bool = False) -> bool:
    """Say whether every break, return and raise among these statements stands below an `if request.test()`."""
    for statement in statements:
        if isinstance(statement, (ast.Break, ast.Return, ast.Raise, ast.Assert)) and not answered:
            return False
        asks = isinstance(statement, ast.If) and _is_answer(statement.test, loop)
        denied = asks and isinstance(statement.test, ast.UnaryOp)  # type: ignore[attr-defined]
        for part, yes in (("body", asks and not denied), ("orelse", denied)):
            if not _leaves_by_answer(getattr(statement, part, ()), loop, answered or yes):
                return False
        if isinstance(statement, (ast.Try, ast.Match, ast.With, ast.FunctionDef)):
            return False  # not plain
    return True
