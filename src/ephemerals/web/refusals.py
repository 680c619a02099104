"""What a client is told when a coordinator takes nothing more."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ephemerals.errors import CoordinatorClosed, CoordinatorFull, MissingExtra
from ephemerals.options import as_seconds

if TYPE_CHECKING:
    from ephemerals.options import Seconds

__all__ = ["install_refusals"]

_RETRY_AFTER = 1.0


def install_refusals(app: Any, *, retry_after: Seconds = _RETRY_AFTER) -> None:
    """Answer `CoordinatorFull` with 429 and `CoordinatorClosed` with 503 in a FastAPI or Starlette application.

    Both carry `Retry-After`: `retry_after` in whole seconds, rounded up. The answer names nothing of the application.
    Installing it again replaces what was installed. Raise `MissingExtra` if Starlette is not installed.
    """
    try:
        from starlette.responses import JSONResponse
    except ImportError:
        raise MissingExtra("install_refusals", "fastapi") from None
    headers = {"Retry-After": str(math.ceil(as_seconds("retry_after", retry_after, zero=True)))}

    async def full(_request: Any, _error: Exception) -> JSONResponse:
        return JSONResponse({"detail": "Too much is waiting. Try again later."}, 429, headers)

    async def closed(_request: Any, _error: Exception) -> JSONResponse:
        return JSONResponse({"detail": "This is shutting down. Try again later."}, 503, headers)

    app.add_exception_handler(CoordinatorFull, full)
    app.add_exception_handler(CoordinatorClosed, closed)
