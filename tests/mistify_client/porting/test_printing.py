import io

import pytest
from rich.console import Console

from mistify_client.porting.printing import print_line

SENTENCE = "half by morphnet: down to 1/2 of its parent's costs in 600 steps, on a convolutional network"


@pytest.mark.parametrize("terminal", [True, False])
def test_terminals_get_lines_wrapped_between_words(terminal):
    console = Console(file=io.StringIO(), width=40, force_terminal=terminal, color_system=None)
    print_line(console, SENTENCE)
    lines = console.file.getvalue().splitlines()
    assert " ".join(line.strip() for line in lines) == SENTENCE
    assert (max(map(len, lines)) <= 40) == terminal
