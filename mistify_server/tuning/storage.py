"""Storage for indexes with datasketch, in memory or in Redis."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from mistify.errors import ErrorCode, MistifyError
from mistify_server.addresses import without_user

MEMORY = "memory"

_REDIS_PORT = 6379

#: Timeout for connecting to Redis and for its responses; other calls wait in the meantime.
ANSWER_SECONDS: Final = 2.0


@dataclass(frozen=True)
class IndexStorage:
    """Factory for an index's key-value storages."""

    config: Mapping[str, object]
    address: str

    @classmethod
    def of(cls, address: str) -> "IndexStorage":
        """Parse the setting `index`: `memory`, or `redis://[USER:PASSWORD@]HOST[:PORT][/DB]`.

        Raises:
            MistifyError: INVALID_CONFIG, the setting is invalid, or the Redis client is not installed.
        """
        if address == MEMORY:
            return cls({"type": "dict"}, address)
        try:
            arguments = _redis_arguments(address)
        except ValueError:
            raise MistifyError(
                ErrorCode.INVALID_CONFIG,
                f'got the index "{without_user(address)}"; expected memory or redis://HOST:PORT; '
                "omit --index for memory",
            ) from None  # the cause may contain the password
        _check_client()
        return cls({"type": "redis", "redis": arguments}, address)

    def sets(self, name: bytes) -> Any:
        """Return a storage that maps keys to sets."""
        from datasketch.storage import unordered_storage  # noqa: PLC0415 (takes half a second: it imports SciPy)

        return unordered_storage(dict(self.config), name)

    def lists(self, name: bytes) -> Any:
        """Return a storage that maps keys to lists."""
        from datasketch.storage import ordered_storage  # noqa: PLC0415

        return ordered_storage(dict(self.config), name)

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Translate connection errors of Redis into advice for the operator."""
        try:
            yield
        except Exception as error:
            if not type(error).__module__.startswith("redis."):
                raise
            raise MistifyError(
                ErrorCode.UNAVAILABLE,
                f"the index cannot be reached ({error}); start Redis or wait until it is available",
            ) from error


def _check_client() -> None:
    try:
        import redis  # noqa: F401, PLC0415 (optional; datasketch's own error is less clear)
    except ModuleNotFoundError as error:
        raise MistifyError(
            ErrorCode.INVALID_CONFIG,
            "an index in Redis needs its client: run pip install 'mistify-porting[redis]', or omit --index "
            "for memory",
        ) from error


def _redis_arguments(address: str) -> dict[str, object]:
    parts = urlsplit(address)
    database = parts.path.removeprefix("/") or "0"
    if parts.scheme != "redis" or not parts.hostname or not database.isdecimal():
        raise ValueError("not an address of a Redis server")
    return {
        "host": parts.hostname,
        "port": parts.port or _REDIS_PORT,
        "db": int(database),
        "username": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password) if parts.password else None,
        "socket_timeout": ANSWER_SECONDS,
        "socket_connect_timeout": ANSWER_SECONDS,
        "retry": None,  # callers retry
    }
