"""A web application with named coordinators: `uvicorn --factory examples.work_api.app:create_app`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel, Field

from ephemerals import (
    KeyedWorkCoordinator,
    OperationStatus,
    ResultCoordinator,
    format_id,
    parse_id,
    status_of,
)
from ephemerals.signals import SignalSink
from ephemerals.web import EphemeralsLifespan, FromRegistry, get_registry, install_refusals

from .work import OVERLOAD, Command, Overload, Pace, registered

__all__ = ["create_app"]

Fast = Annotated[ResultCoordinator[str, str], FromRegistry("fast")]
Accurate = Annotated[ResultCoordinator[str, str], FromRegistry("accurate")]
Commands = Annotated[KeyedWorkCoordinator[Command, None], FromRegistry("commands")]


class Text(BaseModel):
    """Be a text to translate, and how."""

    text: str = Field(min_length=1, max_length=10_000)
    quality: Literal["fast", "accurate"] = "fast"


class Action(BaseModel):
    """Be something to do for a user."""

    user: str = Field(min_length=1, max_length=100)
    action: str = Field(min_length=1, max_length=1000)


class Accepted(BaseModel):
    """Name what was accepted."""

    id: str


class Translated(BaseModel):
    """Be a translated text."""

    id: str
    translated: str


def create_app(pace: Pace = Pace()) -> FastAPI:  # noqa: B008 - it is frozen
    """Return the application; each has a registry of its own."""
    overload = Overload(SignalSink())
    app = FastAPI(title="Work API", lifespan=EphemeralsLifespan(registered(overload, pace)))
    install_refusals(app)  # too much waits: 429; shutting down: 503

    @app.post("/api/translate", status_code=202)
    async def translate(text: Text, fast: Fast, accurate: Accurate) -> Accepted:
        """Start a translation, and return its id at once."""
        chosen = accurate if text.quality == "accurate" else fast
        operation = await chosen.enqueue(text.text, metadata={"length": len(text.text)})
        overload.update(accurate.pending_count)
        return Accepted(id=format_id(operation.id))

    @app.get("/api/translate/{operation_id}")
    async def translation(operation_id: str, fast: Fast, accurate: Accurate) -> Translated:
        """Return a result to whoever knows its id, for as long as the window remembers it; 409 while there is none."""
        seen = None
        try:
            number = parse_id(operation_id)
            seen = fast.get(number) or accurate.get(number)
        except ValueError:
            pass
        if seen is None:
            raise HTTPException(404, "There is no such translation.")
        if seen.status is not OperationStatus.COMPLETED or seen.result is None:
            raise HTTPException(409, f"This translation is {seen.status}.")
        return Translated(id=operation_id, translated=seen.result)

    @app.post("/api/command", status_code=202)
    async def command(action: Action, commands: Commands) -> Accepted:
        """Take a command; one user's run in order, and a user with too many waiting is refused, the others not."""
        operation = await commands.enqueue(Command(action.user, action.action))
        return Accepted(id=format_id(operation.id))

    @app.get("/api/status")
    async def status(request: Request) -> dict[str, Any]:
        """Return what goes on: numbers, states and times, and nothing that anybody has written."""
        created = get_registry(request.app).created()
        return {
            "overload": overload.sink.has(OVERLOAD),
            "coordinators": {name: _seen(coordinator) for name, coordinator in created.items()},
        }

    return app


def _seen(coordinator: Any) -> dict[str, Any]:
    numbers = coordinator.statistics()
    fields = ("pending", "active", "completed", "failed", "cancelled", "skipped", "rejected")
    newest = sorted(coordinator.snapshot(), key=lambda each: each.enqueued_at)[-20:]
    views = [status_of(each) for each in reversed(newest)]
    return {
        **{name: getattr(numbers, name) for name in fields},
        "newest": [{"id": each.id, "status": each.status, "duration": each.duration_text} for each in views],
    }
