"""Lines of text on a console."""

from rich.console import Console


def print_line(console: Console, line: str) -> None:
    """Print a line: wrapped at spaces on a terminal, unwrapped to a file or pipe."""
    console.print(line, markup=False, highlight=False, soft_wrap=not console.is_terminal)
