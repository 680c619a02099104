"""The work API as it is with real work, which takes its time."""

from __future__ import annotations

from examples.work_api.app import create_app
from examples.work_api.work import Pace


def create():
    app = create_app(Pace(fast=0.3, accurate=60, command=0.3))

    @app.middleware("http")
    async def pass_through(request, call_next):
        return await call_next(request)

    return app
