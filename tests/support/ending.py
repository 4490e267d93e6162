"""A function that ends its process, as native code does where it fails."""

import os
from typing import NoReturn


def end(*_: object) -> NoReturn:
    """End this process by SIGABRT."""
    os.abort()
