"""Who owns a translation: a random name in a signed cookie, and nothing about the person."""

from __future__ import annotations

import secrets
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Final

from itsdangerous import BadSignature, TimestampSigner
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection  # noqa: TC002 - FastAPI reads the annotation

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["OwnerCookie", "owner_of"]

_COOKIE: Final = "desk_owner"
_MAX_AGE: Final = 30 * 24 * 3600


class OwnerCookie:
    """Give everybody who comes without a valid cookie a new identity; a middleware.

    Without a `key` one is generated, and identities last as long as the process.
    """

    def __init__(self, app: ASGIApp, key: str | None = None) -> None:
        self._app = app
        self._signer = TimestampSigner(key or secrets.token_urlsafe(32), salt="translation-desk-owner")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Set `owner` in the request's state, and the cookie if it is new."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        owner = self._known(Headers(scope=scope).getlist("cookie"))
        is_new = owner is None
        owner = owner or secrets.token_hex(16)
        scope.setdefault("state", {})["owner"] = owner

        async def send_with_cookie(message: Message) -> None:
            if is_new and message["type"] == "http.response.start":
                MutableHeaders(scope=message).append(
                    "set-cookie", self._cookie(owner, secure=scope["scheme"] == "https")
                )
            await send(message)

        await self._app(scope, receive, send_with_cookie)

    def _known(self, headers: list[str]) -> str | None:
        try:
            cookie = SimpleCookie("; ".join(headers)).get(_COOKIE)
            return None if cookie is None else self._signer.unsign(cookie.value, max_age=_MAX_AGE).decode()
        except (CookieError, BadSignature, UnicodeDecodeError):
            return None

    def _cookie(self, owner: str, *, secure: bool) -> str:
        value = self._signer.sign(owner).decode()
        return f"{_COOKIE}={value}; Path=/; Max-Age={_MAX_AGE}; HttpOnly; SameSite=Lax{'; Secure' * secure}"


async def owner_of(request: HTTPConnection) -> str:
    """Return who sends this request; a dependency."""
    owner: str = request.state.owner
    return owner
