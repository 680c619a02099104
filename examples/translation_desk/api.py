"""The desk for programs: JSON."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Request
from pydantic import BaseModel

from ephemerals import Operation, OperationStatus, format_id, parse_id

from .desk import Desk, TextNotAccepted, Translation, TranslatorDown
from .owners import owner_of

__all__ = ["desk_of", "found", "router"]

router = APIRouter(prefix="/api/translate")


class Order(BaseModel):
    """Be an order: the language to translate into, and the text."""

    language: str
    markdown: str


class Started(BaseModel):
    """Name what was started."""

    id: str


class Finished(BaseModel):
    """Be a finished translation."""

    id: str
    language: str
    original: str
    translated: str


async def desk_of(request: Request) -> Desk:
    """Return the application's desk; a dependency."""
    desk: Desk = request.app.state.desk
    return desk


def found(desk: Desk, owner: str, operation_id: str) -> Operation[Translation]:
    """Return an owner's operation; 404 if there is none, also if it is somebody else's."""
    try:
        operation = desk.window.get(owner, parse_id(operation_id))
    except ValueError:
        operation = None
    if operation is None:
        raise HTTPException(404, "There is no such translation.")
    return operation


TheDesk = Annotated[Desk, Depends(desk_of)]
TheOwner = Annotated[str, Depends(owner_of)]


@router.get("/languages")
async def languages(desk: TheDesk) -> dict[str, str]:
    """Return the languages that can be ordered: code and name."""
    return dict(desk.translator.languages())


@router.post("/start-translation", status_code=202)
async def start_translation(order: Order, desk: TheDesk, owner: TheOwner) -> Started:
    """Start a translation, and return its id at once."""
    try:
        operation = await desk.start(owner, order.language, order.markdown)
    except TextNotAccepted as refusal:
        raise HTTPException(422, str(refusal)) from None
    except TranslatorDown as refusal:
        raise HTTPException(503, str(refusal), {"Retry-After": "10"}) from None
    return Started(id=format_id(operation.id))


@router.get("/translation/{operation_id}")
async def translation(operation_id: str, desk: TheDesk, owner: TheOwner) -> Finished:
    """Return a finished translation to its owner; 409 while there is none."""
    operation = found(desk, owner, operation_id)
    if operation.status is not OperationStatus.COMPLETED:
        raise HTTPException(409, f"This translation is {operation.status}.")
    done = await operation
    return Finished(id=operation_id, language=done.language, original=done.original, translated=done.translated)


def without_input(errors: list[Any]) -> list[dict[str, Any]]:
    """Return validation errors without what was sent: it is the user's text."""
    return [{name: error[name] for name in ("type", "loc", "msg")} for error in errors]
