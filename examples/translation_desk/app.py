"""The translation desk as an application."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles

from ephemerals.web import EphemeralsLifespan, install_refusals

from . import api, pages
from .apertium import ApertiumTranslator
from .desk import LARGEST_TEXT, Desk
from .owners import OwnerCookie
from .safety import Safety
from .translators import PseudoTranslator

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fastapi import Request

    from ephemerals import OwnerWindow

    from .translators import Translator

__all__ = ["create_app"]

# Each byte of the text takes up to six in JSON (`\\u00e9`), and three in a form.
_LARGEST_BODY = 6 * (LARGEST_TEXT + 1000)


def create_app(
    translator: Translator | None = None, *, window: OwnerWindow | None = None, key: str | None = None
) -> FastAPI:
    """Return the application.

    `translator` is by default Apertium where a language pair is installed, else pseudo-localisation. `key` signs the
    cookies; `None` takes it from the environment (`DESK_KEY`), or generates one that lasts as long as the process.
    """
    if translator is None:
        apertium = ApertiumTranslator()
        translator = apertium if apertium.languages() else PseudoTranslator()
    desk = Desk(translator, window)

    @asynccontextmanager
    async def translator_processes(_: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await desk.translator.aclose()
            desk.window.clear()

    app = FastAPI(
        title="Translation desk",
        lifespan=EphemeralsLifespan(desk.registry, translator_processes),
        docs_url=None,  # these pages would fetch scripts from elsewhere
        redoc_url=None,
    )
    app.state.desk = desk
    install_refusals(app)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_middleware(OwnerCookie, key=key or os.environ.get("DESK_KEY"))
    app.add_middleware(Safety, largest_body=_LARGEST_BODY)
    app.include_router(api.router)
    app.include_router(pages.router)
    app.mount("/static", StaticFiles(directory=Path(__file__).with_name("static")), name="static")
    return app


async def _invalid(_: Request, error: Any) -> JSONResponse:
    return JSONResponse({"detail": api.without_input(error.errors())}, 422)
