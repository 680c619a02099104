"""What every answer and every request has to keep to: a policy for the browser, one origin, a size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Safety"]

_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
}


class _TooLarge(Exception):
    """Break off the reading of a body that is too large."""


class Safety:
    """Send the browser's policy with every answer; refuse what comes from other sites, and bodies that are too large.

    `largest_body` is in bytes.
    """

    def __init__(self, app: ASGIApp, largest_body: int) -> None:
        self._app = app
        self._largest_body = largest_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        is_answered = False
        left = self._largest_body

        async def send_with_policy(message: Message) -> None:
            nonlocal is_answered
            if message["type"] == "http.response.start":
                is_answered = True
                given = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    given[name] = value
                if not scope["path"].startswith("/static/"):
                    given["cache-control"] = "no-store"  # what people write is kept nowhere
            await send(message)

        async def receive_bounded() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise _TooLarge
            return message

        if scope["method"] not in {"GET", "HEAD", "OPTIONS"} and _is_foreign(headers):
            await JSONResponse({"detail": "This comes from another site."}, 403)(scope, receive, send_with_policy)
            return
        try:
            if int(headers.get("content-length", "0")) > self._largest_body:
                raise _TooLarge  # noqa: TRY301 - as the reading does
            await self._app(scope, receive_bounded, send_with_policy)
        except _TooLarge:
            if is_answered:
                raise
            await JSONResponse({"detail": "The text is too large."}, 422)(scope, receive, send_with_policy)


def _is_foreign(headers: Headers) -> bool:
    """Tell whether a browser says that the request comes from another site's page."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in {"same-origin", "none"}
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != headers.get("host")
