"""Addresses in errors."""

import re


def without_user(address: str) -> str:
    """Return an address without its user and password, even if it is malformed."""
    return re.sub(r"^(\w+://)?.*@", r"\1...@", address, flags=re.DOTALL)
