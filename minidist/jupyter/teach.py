"""What the tutorials use besides the ranks: a guess to make before an experiment, and the engine's own source.

    my_guess = None              # put a number here, and then run the experiment
    guess(my_guess, 12, "messages")

Read next: the tutorials themselves.
"""

import inspect
import math
from typing import Any


def guess(mine: float | None, right: float, unit: str = "") -> None:
    """Say how far off a reader's guess was; without one, only what is right.

    A guess within 5 % counts as right.
    """
    answer = f"{right:,.0f} {unit}".strip() if abs(right) >= 1000 else f"{right:.4g} {unit}".strip()
    if mine is None:
        print(
            f"It is {answer}. (Next time guess first: it is how one finds out what one has not understood.)"
        )
    elif not isinstance(mine, int | float) or isinstance(mine, bool):
        print(f"Your guess should be a number, not {mine!r}. It is {answer}.")
    elif math.isclose(mine, right, rel_tol=0.05):
        print(f"Right: it is {answer}.")
    elif mine == 0 or right == 0 or mine * right < 0:
        print(f"You said {mine:g}; it is {answer}.")
    else:
        factor = max(mine / right, right / mine)
        off = "too high" if mine > right else "too low"
        print(f"You said {mine:g}, it is {answer}: {off} by a factor of {factor:.3g}.")


def show_source(thing: Any) -> Any:
    """Show the source of a function, a class or a module of the engine, as it is installed, in colour."""
    from IPython.display import Code

    lines, first = inspect.getsourcelines(thing)
    module = inspect.getmodule(thing)
    place = f"{module.__name__.replace('.', '/')}.py" if module else ""
    print(f"{place}, line {max(first, 1)}")
    return Code("".join(lines).rstrip(), language="python")
