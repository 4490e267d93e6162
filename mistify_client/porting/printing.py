"""Lines of text on a console."""

from rich.console import Console


def print_line(console: Console, line: str) -> None:
    """Print a line as it is: a terminal gets it wrapped between words, a file or pipe in one piece."""
    console.print(line, markup=False, highlight=False, soft_wrap=not console.is_terminal)
