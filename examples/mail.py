"""Send mails from templates, some at once, and try again what failed for now: `python -m examples.mail HOST PORT TO…`.

Needs Jinja2 and aiosmtplib. Nothing of a mail is in signals, logs or the window: an operation knows its template.
"""

from __future__ import annotations

import asyncio
import sys
from email.message import EmailMessage
from email.utils import formataddr, make_msgid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiosmtplib
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from ephemerals import WorkCoordinator
from ephemerals.atoms import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ephemerals.atoms import TokenBucket

TEMPLATES: Final = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "mail_templates"),
    autoescape=select_autoescape(["html"]),
    undefined=StrictUndefined,  # a mail with a hole in it is not sent
)
_TEMPORARY: Final = range(400, 500)


def compose(template: str, sender: str, to: tuple[str, str], subject: str, **values: Any) -> EmailMessage:
    """Return a mail of `TEMPLATE.txt` and `TEMPLATE.html` to a name and address; raise jinja2's errors.

    A name or subject with a line break in it is refused with `ValueError`, so nobody smuggles in a header.
    """
    message = EmailMessage()
    message["From"] = sender
    message["To"] = formataddr(to)
    message["Subject"] = subject
    message["Message-ID"] = make_msgid(domain="localhost")  # the same for each attempt, so that copies are recognised
    values |= {"name": to[0]}
    message.set_content(TEMPLATES.get_template(f"{template}.txt").render(values))
    message.add_alternative(TEMPLATES.get_template(f"{template}.html").render(values), subtype="html")
    return message


def is_temporary(error: Exception) -> bool:
    """Tell whether a server may take the mail later: a code from 400 on, or it could not be reached."""
    if isinstance(error, aiosmtplib.SMTPRecipientsRefused):
        return all(refused.code in _TEMPORARY for refused in error.recipients)
    if isinstance(error, aiosmtplib.SMTPResponseException):
        return error.code in _TEMPORARY
    return isinstance(error, aiosmtplib.SMTPConnectError | aiosmtplib.SMTPServerDisconnected | TimeoutError | OSError)


async def send_all(  # noqa: PLR0913 - where to, and how
    messages: Iterable[EmailMessage],
    host: str,
    port: int,
    *,
    at_once: int = 4,
    attempts: int = 5,
    pause: float = 1.0,
    limiter: TokenBucket | None = None,
    server: Mapping[str, Any] | None = None,
) -> list[Exception | None]:
    """Send mails; return for each what went wrong, or `None`.

    `server` is what `aiosmtplib.send` takes besides (`username`, `password`, `start_tls`, …).
    """
    deliver = partial(aiosmtplib.send, hostname=host, port=port, **(server or {}))

    async def send(message: EmailMessage) -> None:
        await deliver(message)

    policy = RetryPolicy(attempts=attempts, initial=pause, retry_on=is_temporary)
    async with WorkCoordinator(
        send, max_concurrency=at_once, retry=policy, limiter=limiter, operation_timeout=60, error_detail="type"
    ) as mails:
        operations = [await mails.enqueue(message) for message in messages]
        outcomes = await asyncio.gather(*operations, return_exceptions=True)
    return [each if isinstance(each, Exception) else None for each in outcomes]


async def main() -> None:
    """Greet everybody on the command line."""
    host, port, *addresses = sys.argv[1:]
    greet = partial(compose, "welcome", "ephemerals@localhost", subject="Welcome")
    messages = [greet(to=(address.partition("@")[0], address), link="http://localhost/") for address in addresses]
    for address, error in zip(addresses, await send_all(messages, host, int(port)), strict=True):
        print(address, "sent" if error is None else f"not sent: {error}")


if __name__ == "__main__":
    asyncio.run(main())
