"""Errors that every room may raise."""


class UserError(Exception):
    """Say, in one sentence, what was wrong with what the user typed or gave.

    The sentence holds what was got, what was expected and what to do about it. Commands print it once, without
    a traceback, and exit with code 2; a library caller sees an ordinary exception.
    """
