"""Access tokens of servers that tests start."""

from pathlib import Path


def write_token(path: Path, token: str) -> Path:
    """Write a token into a file for its owner alone, and return its path."""
    path.touch(0o600)
    path.write_text(token)
    return path
