"""Files that mostly wait for processes come first: while one of them waits, the other worker computes."""

import pytest

FIRST = (
    "train/test_command",
    "comm/test_leaving",
    "testing/test_plugin",
    "launch/",
    "modes/",
    "comm/",
    "train/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files by how long they take; within a file nothing changes."""

    def place(item: pytest.Item) -> int:
        path = item.path.as_posix()
        return next((n for n, part in enumerate(FIRST) if f"tests/{part}" in path), len(FIRST))

    items.sort(key=place)
