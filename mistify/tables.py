"""Tables printed by commands."""

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.style import StyleType
from rich.table import Table
from rich.text import Text


class _PlainTable(Table):
    """A table that shows names as they are: brackets in them are no markup."""

    def add_row(
        self,
        *renderables: RenderableType | None,
        style: StyleType | None = None,
        end_section: bool = False,
    ) -> None:
        """Add a row of cells."""
        cells = (Text(cell) if isinstance(cell, str) else cell for cell in renderables)
        super().add_row(*cells, style=style, end_section=end_section)


def plain_table(*columns: str) -> Table:
    """Return an empty table; its cells wrap on narrow consoles and are never truncated."""
    table = _PlainTable(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for column in columns:
        table.add_column(Text(column), overflow="fold")
    return table
