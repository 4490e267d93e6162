import io

import pytest
from rich.console import Console

from mistify.tables import plain_table


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_narrow_console_wraps_cells_and_truncates_none(width):
    table = plain_table("name", "artifact")
    table.add_row("model", "0123456789abcdef" * 4)
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    digest = "".join(line.replace("model", "").strip() for line in lines[2:])
    assert digest == "0123456789abcdef" * 4


def test_brackets_in_names_are_no_markup():
    table = plain_table("[red]name")
    table.add_row("[/] [bold]x")
    console = Console(file=io.StringIO(), width=40)
    console.print(table)
    assert "[red]name" in console.file.getvalue()
    assert "[/] [bold]x" in console.file.getvalue()
