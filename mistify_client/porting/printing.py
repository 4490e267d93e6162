"""Lines of text on a console."""

from rich.console import Console


def print_line(console: Console, line: str) -> None:
    """Print a line: wrapped between words on a terminal, in one piece into a file or pipe."""
    console.print(line, markup=False, highlight=False, soft_wrap=not console.is_terminal)
