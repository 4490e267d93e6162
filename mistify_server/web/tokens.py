"""Routes for the tokens of callers, for administrators."""

import asyncio
import time
from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, Field

from mistify.errors import ErrorCode
from mistify_server.identity.authentication import MOST_DAYS, create_token
from mistify_server.identity.callers import MEANINGS, Scope
from mistify_server.identity.tokens import AccessToken, TokenStore
from mistify_server.web.bodies import described_body, small_body
from mistify_server.web.problems import responses
from mistify_server.web.rendering import render_page


class NewToken(BaseModel):
    """A token to make; without `days` it does not expire."""

    name: str
    scopes: list[Scope]
    days: Annotated[int, Field(ge=1, le=MOST_DAYS)] | None = None


class TokenModel(BaseModel):
    """A token without its secret."""

    name: str
    scopes: list[Scope]
    created_unix_ms: int
    expires_unix_ms: int | None

    @classmethod
    def of(cls, token: AccessToken) -> "TokenModel":
        """Return the model of a token."""
        return cls(
            name=token.name,
            scopes=sorted(token.scopes),
            created_unix_ms=token.created_unix_ms,
            expires_unix_ms=token.expires_unix_ms,
        )


class MadeToken(TokenModel):
    """A new token with its secret, which is shown only once."""

    token: str


def token_routes(tokens: TokenStore) -> APIRouter:
    """Return the routes to a store of tokens."""
    router = APIRouter(prefix="/v1/tokens", tags=["tokens"])

    @router.get("", responses=dict(responses()))
    async def list_tokens() -> list[TokenModel]:
        """List the tokens by name, without their secrets."""
        return list(map(TokenModel.of, await asyncio.to_thread(tokens.all)))

    @router.post(
        "",
        status_code=201,
        responses=dict(responses(ErrorCode.INVALID_CONFIG, ErrorCode.CONFLICT)),
        openapi_extra=described_body(NewToken),
    )
    async def create(request: Request) -> MadeToken:
        """Make a token; the secret is in this response only."""
        new = await small_body(request, NewToken)
        token, secret = await asyncio.to_thread(create_token, tokens, new.name, new.scopes, new.days)
        return MadeToken(**TokenModel.of(token).model_dump(), token=secret)

    @router.delete("/{name}", status_code=204, responses=dict(responses(ErrorCode.NOT_FOUND)))
    async def revoke(name: str) -> None:
        """Revoke a token; it and its sessions are refused from the next call."""
        await asyncio.to_thread(tokens.revoke, name)

    return router


def token_pages(tokens: TokenStore) -> APIRouter:
    """Return the route of the page for a store of tokens."""
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

    @router.get("/tokens")
    async def page(request: Request) -> HTMLResponse:
        kept = await asyncio.to_thread(tokens.all)
        text = render_page(
            request,
            "tokens.html",
            tokens=kept,
            scopes=MEANINGS,
            most_days=MOST_DAYS,
            now_ms=time.time() * 1000,
        )
        return HTMLResponse(text)

    return router
