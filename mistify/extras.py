"""The extras of the distribution, and the libraries that a part of it cannot do without."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final

from mistify.wording import listed

#: Extra of the distribution -> the modules of its libraries that are needed at once.
_LIBRARIES: Final[dict[str, Sequence[str]]] = {
    "client": ("ai_edge_litert", "grpc", "grpc_health", "psutil", "rich", "tenacity", "typer"),
    "server": ("fastapi", "jinja2", "pydantic_settings", "sqlalchemy", "structlog", "typer", "uvicorn"),
}


def require_extra(extra: str, user: str) -> None:
    """Check that the libraries of an extra are installed.

    Args:
        extra: "client" or "server".
        user: The module or command that needs them, for the error.

    Raises:
        ModuleNotFoundError: One is missing; with the command that installs it.
    """
    missing = [name for name in _LIBRARIES[extra] if find_spec(name) is None]
    if missing:
        message = f"{user} needs {listed(missing)}; run pip install 'mistify-porting[{extra}]'"
        raise ModuleNotFoundError(message, name=missing[0])
