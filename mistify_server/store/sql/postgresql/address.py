"""Addresses of PostgreSQL databases."""

import re
from dataclasses import dataclass
from typing import Final

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from mistify.parsing.validation import InvalidValue
from mistify_server.addresses import without_user

_DRIVERS: Final = ("postgresql", "postgres")

#: Parameters of an address that contain a secret.
_SECRETS: Final = ("password", "sslpassword")

_EXPECTED: Final = "an address such as postgresql://mistify@db.example.org/mistify"


@dataclass(frozen=True)
class DatabaseAddress:
    """The address of a PostgreSQL database, without a password: `postgresql://[USER@][HOST[:PORT]]/NAME`.

    libpq reads the password from `~/.pgpass` or the environment. Its other settings are parameters of the
    address (`?sslmode=verify-full`).
    """

    url: URL

    @classmethod
    def of(cls, text: str) -> "DatabaseAddress":
        """Parse an address.

        Raises:
            InvalidValue: It is no address, or it contains a password.
        """
        try:
            url = make_url(text)
        except (ArgumentError, ValueError):
            url = None
        if url is None or url.drivername not in _DRIVERS or "@" in (url.database or ""):
            raise InvalidValue(
                _masked(text), _EXPECTED, "write the scheme, the user, the host and the database"
            )
        if url.password is not None or not url.query.keys().isdisjoint(_SECRETS):
            raise InvalidValue(
                _masked(text),
                "an address without a password, which others could read",
                "put the password into ~/.pgpass, or into a file that PGPASSFILE names, as "
                "HOST:PORT:NAME:USER:PASSWORD",
            )
        return cls(url.set(drivername=_DRIVERS[0]))

    def __str__(self) -> str:
        place, mark, parameters = self.url.render_as_string().partition("?")
        # libpq does not read a plus sign as a space, and needs no escapes in paths.
        return place + mark + parameters.replace("+", "%20").replace("%2F", "/")


def checked_address(text: str) -> str:
    """Return an address unchanged if it is valid.

    Raises:
        InvalidValue: It is not an address of PostgreSQL, or it contains a password.
    """
    DatabaseAddress.of(text)
    return text


def _masked(text: str) -> str:
    """Return a text without any passwords, even if it is no address."""
    return re.sub(r"(password=)[^&]*", r"\1...", without_user(text))
