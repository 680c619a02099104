"""The desk for people: an editor, a table, and what came of it; whole pages without JavaScript, parts with HTMX."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from ephemerals import CoordinatorFull, OperationStatus, status_of
from ephemerals.coordination.timeline import timeline

from .api import TheDesk, TheOwner, found
from .desk import LARGEST_TEXT, TextNotAccepted, TranslatorDown
from .preview import rendered

if TYPE_CHECKING:
    from .desk import Desk

__all__ = ["router"]

router = APIRouter(include_in_schema=False)
_templates = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=select_autoescape(),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_EXAMPLE = Path(__file__).with_name("example.md").read_text("utf-8")
_STATUS = {
    OperationStatus.PENDING: "waiting",
    OperationStatus.RUNNING: "running",
    OperationStatus.COMPLETED: "done",
    OperationStatus.FAILED: "failed",
}


def _html(name: str, status: int = 200, **values: Any) -> HTMLResponse:
    return HTMLResponse(_templates.get_template(name).render(values), status, {"Vary": "HX-Request"})


def _wants_part(request: Request) -> bool:
    return request.headers.get("hx-request") == "true"


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form as browsers send it."""
    body = (await request.body()).decode("ascii", "replace")
    fields = parse_qs(body, keep_blank_values=True, max_num_fields=10)
    # A browser sends the lines of a text area with the ends that mail has.
    return {name: values[-1].replace("\r\n", "\n") for name, values in fields.items()}


def _table(desk: Desk, owner: str, notice: str | None = None) -> dict[str, Any]:
    rows = [status_of(each) for each in desk.window.list(owner)]
    return {
        "rows": rows,
        "languages": desk.translator.languages(),
        "is_running": any(not row.is_finished for row in rows),
        "words": _STATUS,
        "notice": notice,
    }


async def _page(desk: Desk, owner: str, status: int = 200, **values: Any) -> HTMLResponse:
    text = values.pop("text", _EXAMPLE)
    preview = await asyncio.to_thread(rendered, text)
    return _html(
        "page.html",
        status,
        translator=desk.translator,
        is_up=await desk.translator.is_up(),
        text=text,
        preview=preview,
        limit=LARGEST_TEXT // 1000,
        **{"part": "", **_table(desk, owner, ""), **values},
    )


@router.get("/")
async def editor(desk: TheDesk, owner: TheOwner) -> Response:
    """Show the editor, its preview, and the owner's translations."""
    return await _page(desk, owner)


@router.post("/editor/preview")
async def preview(request: Request) -> Response:
    """Return the text as it will look."""
    text = (await _form(request)).get("markdown", "")
    return HTMLResponse(await asyncio.to_thread(rendered, text))


@router.post("/editor/translations")
async def start(request: Request, desk: TheDesk, owner: TheOwner) -> Response:
    """Start a translation, and return the table; a refusal is said in it."""
    form = await _form(request)
    text = form.get("markdown", "")
    status, notice = 200, ""
    try:
        await desk.start(owner, form.get("language", ""), text)
    except TextNotAccepted as refusal:
        status, notice = 422, str(refusal)
    except TranslatorDown as refusal:
        status, notice = 503, str(refusal)
    except CoordinatorFull:
        status, notice = 429, "Too much is waiting just now. Please try again in a moment."
    if _wants_part(request):  # a part that says what is wrong is what was asked for
        return _html("table.html", **_table(desk, owner, notice))
    if notice:
        return await _page(desk, owner, status, notice=notice, text=text)
    return RedirectResponse("/", 303)


@router.get("/editor/translations")
async def table(desk: TheDesk, owner: TheOwner) -> Response:
    """Return the table of the owner's translations; it asks for itself again only while something runs."""
    return _html("table.html", **_table(desk, owner))


@router.get("/editor/translations/{operation_id}")
async def view(operation_id: str, request: Request, desk: TheDesk, owner: TheOwner) -> Response:
    """Show a finished translation beside its original, or why there is none."""
    operation = found(desk, owner, operation_id)
    row = status_of(operation)
    values: dict[str, Any] = {"row": row, "languages": desk.translator.languages(), "words": _STATUS}
    if row.is_completed:
        done = await operation
        original, translated = await asyncio.gather(
            asyncio.to_thread(rendered, done.original), asyncio.to_thread(rendered, done.translated)
        )
        values |= {"original": original, "translated": translated, "source": done.translated}
    part = _templates.get_template("view.html").render(values | {"error": operation.error})
    return HTMLResponse(part) if _wants_part(request) else await _page(desk, owner, part=Markup(part))


@router.get("/editor/translations/{operation_id}/history")
async def history(operation_id: str, request: Request, desk: TheDesk, owner: TheOwner) -> Response:
    """Show what happened to a translation: when it waited, started, said something, and ended."""
    operation = found(desk, owner, operation_id)
    snapshot = operation.snapshot()
    entries = timeline([snapshot])
    signals = iter(snapshot.signals)
    said = [dict(next(signals).data or {}) if each.event == "signal" else {} for each in entries]
    values = {
        "row": status_of(operation),
        "languages": desk.translator.languages(),
        "entries": [
            (f"{entry.monotonic - entries[0].monotonic:.2f} s", entry, data)
            for entry, data in zip(entries, said, strict=True)
        ],
        "error": operation.error,
    }
    part = _templates.get_template("history.html").render(values)
    return HTMLResponse(part) if _wants_part(request) else await _page(desk, owner, part=Markup(part))
