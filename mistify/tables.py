"""Tables printed by commands."""

from rich.box import SIMPLE_HEAD
from rich.table import Table


def plain_table(*columns: str) -> Table:
    """Return an empty table; its cells wrap on narrow consoles and are never truncated."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
