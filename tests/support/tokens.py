"""Access tokens for test servers."""

from pathlib import Path


def write_token(path: Path, token: str) -> Path:
    """Write a token to a file that only its owner can read, and return the path."""
    path.touch(0o600)
    path.write_text(token)
    return path
