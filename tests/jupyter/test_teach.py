"""What the tutorials use besides ranks."""

import pytest

from minidist.jupyter import guess


@pytest.mark.parametrize(
    ("mine", "right", "said"),
    [
        (None, 12, "It is 12 messages."),
        (12, 12, "Right: it is 12 messages."),
        (11.9, 12, "Right"),
        (6, 12, "too low by a factor of 2."),
        (24, 12, "too high by a factor of 2."),
        (0, 12, "You said 0; it is 12 messages."),
        ("six", 12, "should be a number, not 'six'"),
    ],
)
def test_a_guess_is_told_how_far_off_it_was(capsys, mine, right, said):
    guess(mine, right, "messages")
    assert said in capsys.readouterr().out
