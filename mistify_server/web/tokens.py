"""Routes for the tokens of callers, for administrators."""

import asyncio
import time
from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from mistify.errors import ErrorCode
from mistify.quotas import Quota, Usage
from mistify_server.identity.authentication import MOST_DAYS, create_token
from mistify_server.identity.callers import MEANINGS, Scope
from mistify_server.identity.quotas import change_limits, size_limit
from mistify_server.identity.tenants import ByTenant
from mistify_server.identity.tokens import AccessToken, TokenStore
from mistify_server.usage import UsageService
from mistify_server.web.bodies import described_body, small_body
from mistify_server.web.problems import responses
from mistify_server.web.rendering import render_page


def _bytes(value: object) -> object:
    """Return a size such as 5GB in bytes, and other values unchanged.

    Raises:
        ValueError: The text is not a size.
    """
    return size_limit(value) if isinstance(value, str) else value


class TokenLimits(BaseModel):
    """Limits of a token; null for none."""

    model_config = ConfigDict(extra="forbid")

    max_uploads: Annotated[
        int | None, BeforeValidator(_bytes), Field(description="Bytes, or a size such as 5GB")
    ] = None
    max_jobs: Annotated[int | None, Field(description="Unfinished jobs")] = None
    max_workers: Annotated[int | None, Field(description="Steps in progress; further ones wait")] = None

    def present(self) -> dict[str, int | None]:
        """Return the limits that the request contains, by field of `Quota`."""
        limits = self.model_dump(include=set(TokenLimits.model_fields), exclude_unset=True)
        return {name.removeprefix("max_"): limit for name, limit in limits.items()}


class NewToken(TokenLimits):
    """A token to make; without `days` it does not expire.

    Limits that are absent are those of a revoked token with this name, or none.
    """

    name: str
    scopes: list[Scope]
    days: Annotated[int, Field(ge=1, le=MOST_DAYS)] | None = None


class ChangedToken(TokenLimits):
    """New limits of a token; those that are absent do not change."""


class TokenModel(BaseModel):
    """A token of the caller's tenant without its secret, with what its holder uses."""

    name: str
    scopes: list[Scope]
    created_unix_ms: int
    expires_unix_ms: int | None
    limits: Quota
    usage: Usage

    @classmethod
    def of(cls, token: AccessToken, usage: UsageService) -> "TokenModel":
        """Return the model of a token."""
        return cls(
            name=token.name,
            scopes=sorted(token.scopes),
            created_unix_ms=token.created_unix_ms,
            expires_unix_ms=token.expires_unix_ms,
            limits=token.limits,
            usage=usage.of(token.holder),
        )


class MadeToken(TokenModel):
    """A new token with its secret, which is shown only once."""

    token: str


def token_routes(tokens: ByTenant[TokenStore], usage: UsageService) -> APIRouter:
    """Return the routes to the tokens of the caller's tenant."""
    router = APIRouter(prefix="/v1/tokens", tags=["tokens"])

    @router.get("", responses=dict(responses()))
    async def list_tokens() -> list[TokenModel]:
        """List the tokens of the caller's tenant by name, without their secrets."""
        own = tokens.own
        return await asyncio.to_thread(lambda: [TokenModel.of(token, usage) for token in own.all()])

    @router.post(
        "",
        status_code=201,
        responses=dict(responses(ErrorCode.INVALID_CONFIG, ErrorCode.CONFLICT)),
        openapi_extra=described_body(NewToken),
    )
    async def create(request: Request) -> MadeToken:
        """Make a token of the caller's tenant; the secret is in this response only."""
        new = await small_body(request, NewToken)
        token, secret = await asyncio.to_thread(
            create_token, tokens.own, new.name, new.scopes, new.days, new.present()
        )
        made = await asyncio.to_thread(TokenModel.of, token, usage)
        return MadeToken(**made.model_dump(), token=secret)

    @router.patch(
        "/{name}",
        status_code=204,
        responses=dict(responses(ErrorCode.INVALID_CONFIG, ErrorCode.NOT_FOUND)),
        openapi_extra=described_body(ChangedToken),
    )
    async def change(name: str, request: Request) -> None:
        """Change limits of a token; its jobs and uploads stay."""
        changed = await small_body(request, ChangedToken)
        await asyncio.to_thread(change_limits, tokens.own, name, changed.present())

    @router.delete("/{name}", status_code=204, responses=dict(responses(ErrorCode.NOT_FOUND)))
    async def revoke(name: str) -> None:
        """Revoke a token; it and its sessions are refused from the next call."""
        await asyncio.to_thread(tokens.own.revoke, name)

    return router


def token_pages(tokens: ByTenant[TokenStore], usage: UsageService) -> APIRouter:
    """Return the route of the page for the tokens of the caller's tenant."""
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

    @router.get("/tokens")
    async def page(request: Request) -> HTMLResponse:
        kept = await asyncio.to_thread(tokens.own.all)
        text = render_page(
            request,
            "tokens.html",
            tokens=kept,
            usages={token.name: await asyncio.to_thread(usage.of, token.holder) for token in kept},
            scopes=MEANINGS,
            most_days=MOST_DAYS,
            now_ms=time.time() * 1000,
        )
        return HTMLResponse(text)

    return router
