"""What an option's value may be: functions that turn its text into a number, or say what was expected."""

import argparse
import math
from collections.abc import Callable


def whole_number(what: str, least: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(
                f"got {text!r}, but {what} must be a whole number, {least} or more"
            )
        return value

    return convert


def number(what: str, above_zero: bool) -> Callable[[str], float]:
    def convert(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < 0 or (above_zero and value == 0):
            least = "above 0" if above_zero else "0 or more"
            raise argparse.ArgumentTypeError(f"got {text!r}, but {what} must be a finite number, {least}")
        return value

    return convert


def whole_numbers(what: str) -> Callable[[str], list[int]]:
    """Read "256,128": whole numbers from 1 up with commas between them."""

    def convert(text: str) -> list[int]:
        parts = text.split(",")
        if not all(part.strip().isdigit() and int(part) > 0 for part in parts):
            raise argparse.ArgumentTypeError(
                f"got {text!r}, but {what} must be whole numbers with commas between them, like 256,128"
            )
        return [int(part) for part in parts]

    return convert
