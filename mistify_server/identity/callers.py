"""Callers of the server and the scopes that limit what they may do."""

from collections.abc import Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from typing_extensions import override

from mistify.errors import ErrorCode, MistifyError


class Scope(StrEnum):
    """A part of the service that a token gives access to; see `MEANINGS`."""

    READ = "read"
    SUBMIT = "submit"
    TUNE = "tune"
    REPORT = "report"
    ADMIN = "admin"


#: What callers with a scope may do.
MEANINGS: Final[Mapping[Scope, str]] = {
    Scope.READ: "see jobs, packages, devices and metrics",
    Scope.SUBMIT: "plan, submit, extend, pause, cancel and remove jobs; upload files; add measured devices",
    Scope.TUNE: "tune with other members of a group",
    Scope.REPORT: "report a device's state and the latency of its packages",
    Scope.ADMIN: "everything in its tenant, including tokens and roll-outs",
}


#: The tenant of whoever has the server's own token, and of everyone on a server without tokens.
DEFAULT_TENANT: Final = "default"


class CallerId(NamedTuple):
    """The name of a token, which is unique within its tenant; as text, `TENANT/NAME` outside `default`."""

    tenant: str
    name: str

    @override
    def __str__(self) -> str:
        return self.name if self.tenant == DEFAULT_TENANT else f"{self.tenant}/{self.name}"


@dataclass(frozen=True)
class Caller:
    """Someone who calls the server: the name of their token, its scopes, and its tenant."""

    name: str
    scopes: frozenset[Scope]
    tenant: str

    @property
    def id(self) -> CallerId:
        """Return the name of the token with its tenant."""
        return CallerId(self.tenant, self.name)

    def may(self, scope: Scope) -> bool:
        """Return whether the caller has a scope; `admin` includes all others."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def check(self, scope: Scope) -> None:
        """Raise an error unless the caller has a scope.

        Raises:
            MistifyError: PERMISSION_DENIED.
        """
        if not self.may(scope):
            scopes = ", ".join(sorted(self.scopes))
            raise MistifyError(
                ErrorCode.PERMISSION_DENIED,
                f'the token "{self.name}" has the scopes {scopes}; this needs {scope.value}; '
                "ask the server's administrator for a token that has it",
            )

    def check_operator(self, action: str) -> None:
        """Raise an error unless the caller is of the tenant `default`, for what concerns the whole server.

        Args:
            action: A description of the call, such as `measures the server's machine`.

        Raises:
            MistifyError: PERMISSION_DENIED.
        """
        if self.tenant != DEFAULT_TENANT:
            raise MistifyError(
                ErrorCode.PERMISSION_DENIED,
                f'the token "{self.name}" belongs to the tenant {self.tenant}, and this {action}, which '
                f"concerns the whole server; use a token of the tenant {DEFAULT_TENANT}",
            )


#: Everyone who calls a server without a token, which only programs on the same machine can reach.
LOCAL: Final = Caller("local", frozenset({Scope.ADMIN}), DEFAULT_TENANT)

#: Whoever has the token in the server's --token-file.
ADMINISTRATOR: Final = Caller("administrator", frozenset({Scope.ADMIN}), DEFAULT_TENANT)

_CALLER: Final = ContextVar[Caller]("caller")


def current_caller() -> Caller:
    """Return the caller of the call that is being handled.

    Raises:
        LookupError: None was set, so whoever asks may do nothing.
    """
    try:
        return _CALLER.get()
    except LookupError:
        raise LookupError("the caller is unknown: call set_caller before anything is done for one") from None


def known_caller() -> CallerId | None:
    """Return the id of `current_caller`; None for work of the server itself."""
    caller = _CALLER.get(None)
    return None if caller is None else caller.id


def set_caller(caller: Caller) -> Token[Caller]:
    """Set the caller of the call that this task handles, until it ends or the token is reset."""
    return _CALLER.set(caller)
