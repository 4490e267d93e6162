"""Tokens in the database."""

from sqlalchemy import select
from typing_extensions import override

from mistify.errors import ErrorCode, MistifyError
from mistify_server.identity.callers import Scope
from mistify_server.identity.tokens import AccessToken, TokenStore
from mistify_server.store.sql.database import Database
from mistify_server.store.sql.schema import TokenRow


class SqlTokenStore(TokenStore):
    """Tokens in the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    def add(self, token: AccessToken) -> None:
        with self._database.write() as session:
            if session.get(TokenRow, token.name) is not None:
                raise MistifyError(
                    ErrorCode.CONFLICT,
                    f'there is a token "{token.name}" already; revoke it first or use another name',
                )
            session.add(
                TokenRow(
                    name=token.name,
                    sha256=token.sha256,
                    scopes=" ".join(sorted(token.scopes)),
                    created_unix_ms=token.created_unix_ms,
                    expires_unix_ms=token.expires_unix_ms,
                )
            )

    @override
    def find(self, sha256: str) -> AccessToken | None:
        with self._database.read() as session:
            row = session.scalar(select(TokenRow).where(TokenRow.sha256 == sha256))
            return None if row is None else _token(row)

    @override
    def all(self) -> list[AccessToken]:
        with self._database.read() as session:
            return [_token(row) for row in session.scalars(select(TokenRow).order_by(TokenRow.name))]

    @override
    def revoke(self, name: str) -> None:
        with self._database.write() as session:
            row = session.get(TokenRow, name)
            if row is None:
                raise MistifyError(ErrorCode.NOT_FOUND, f'there is no token "{name}"; see the list of tokens')
            session.delete(row)


def _token(row: TokenRow) -> AccessToken:
    return AccessToken(
        name=row.name,
        sha256=row.sha256,
        scopes=frozenset(map(Scope, row.scopes.split())),
        created_unix_ms=row.created_unix_ms,
        expires_unix_ms=row.expires_unix_ms,
    )
