"""The mail recipe, against a real server on the loopback."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from email import message_from_bytes, policy

import aiosmtplib
import pytest
from aiosmtpd.smtp import SMTP
from examples.mail import compose, is_temporary, send_all
from jinja2 import UndefinedError


class Handler:
    """Take mails in; refuse as many as asked with a code, by address."""

    def __init__(self, refusals=()):
        self.refusals = {address: list(codes) for address, codes in dict(refusals).items()}
        self.mails, self.tries, self.open, self.most = [], [], 0, 0

    async def handle_RCPT(self, server, session, envelope, address, options):  # noqa: N802 - aiosmtpd's name
        self.tries.append(address)
        codes = self.refusals.get(address)
        if codes:
            return f"{codes.pop(0)} not now"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):  # noqa: N802
        self.open += 1
        self.most = max(self.most, self.open)
        await asyncio.sleep(0.02)
        self.open -= 1
        self.mails.append((envelope.rcpt_tos[0], message_from_bytes(envelope.content, policy=policy.default)))
        return "250 OK"


@contextlib.asynccontextmanager
async def serving(handler):
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(handler, hostname="localhost"), "127.0.0.1", 0)
    try:
        yield "127.0.0.1", server.sockets[0].getsockname()[1]
    finally:
        server.close()


def welcome(address="ada@example.org", name="Ada", **values):
    return compose("welcome", "us@example.org", (name, address), "Welcome", **({"link": "http://x/"} | values))


def test_a_mail_has_text_and_html_and_only_the_html_is_escaped():
    mail = welcome(name="<Ada & Bob>", link="http://x/?a=1&b=2")
    text, html = mail.iter_parts()
    assert "Hello <Ada & Bob>," in text.get_content()
    assert "Hello &lt;Ada &amp; Bob&gt;," in html.get_content()
    assert 'href="http://x/?a=1&amp;b=2"' in html.get_content()
    assert mail.get_content_type() == "multipart/alternative"


def test_a_mail_with_a_hole_in_it_is_not_made():
    with pytest.raises(UndefinedError, match="link"):
        compose("welcome", "us@example.org", ("Ada", "ada@example.org"), "Welcome")


@pytest.mark.parametrize("field", ["name", "subject"])
def test_nobody_smuggles_in_a_header(field):
    evil = "x\nBcc: everybody@example.org"
    with pytest.raises(ValueError, match=r"(?i)newline|linefeed|carriage|header"):
        if field == "name":
            welcome(name=evil)
        else:
            compose("welcome", "us@example.org", ("Ada", "ada@example.org"), evil, link="x")


@pytest.mark.real_loop
async def test_mails_arrive_some_at_once():
    handler = Handler()
    async with serving(handler) as (host, port):
        mails = [welcome(f"user{number}@example.org", f"User {number}") for number in range(8)]
        assert await send_all(mails, host, port, at_once=3) == [None] * 8
    assert sorted(to for to, _ in handler.mails) == [f"user{number}@example.org" for number in range(8)]
    assert 1 < handler.most <= 3
    to, mail = handler.mails[0]
    assert (mail["Subject"], mail["To"].addresses[0].addr_spec) == ("Welcome", to)


@pytest.mark.real_loop
async def test_what_is_refused_for_now_is_tried_again_and_what_is_refused_for_good_is_not():
    handler = Handler({"busy@example.org": [451, 421], "gone@example.org": [550] * 9, "never@example.org": [450] * 9})
    addresses = ["busy@example.org", "gone@example.org", "ada@example.org", "never@example.org"]
    async with serving(handler) as (host, port):
        mails = [welcome(address) for address in addresses]
        outcomes = await send_all(mails, host, port, attempts=3, pause=0.001)
    assert [type(each) for each in outcomes] == [
        type(None),
        aiosmtplib.SMTPRecipientsRefused,
        type(None),
        aiosmtplib.SMTPRecipientsRefused,
    ]
    assert {address: handler.tries.count(address) for address in addresses} == dict(
        zip(addresses, [3, 1, 1, 3], strict=True)
    )
    assert sorted(to for to, _ in handler.mails) == ["ada@example.org", "busy@example.org"]


@pytest.mark.real_loop
async def test_each_attempt_carries_the_same_id():
    """A server that took a mail and lost the connection gets it again; the id tells that it is the same."""
    handler = Handler()
    async with serving(handler) as (host, port):
        mail = welcome()
        await send_all([mail, mail], host, port)
    assert len({received["Message-ID"] for _, received in handler.mails}) == 1


@pytest.mark.real_loop
async def test_a_server_that_is_not_there_is_told_for_each_mail_without_addresses_in_the_log(caplog):
    async with serving(Handler()) as (host, port):
        pass
    with caplog.at_level(logging.DEBUG, "ephemerals"):
        outcomes = await send_all([welcome()], host, port, attempts=2, pause=0.001)
    assert [isinstance(each, aiosmtplib.SMTPConnectError) for each in outcomes] == [True]
    assert len(caplog.records) == 2  # one attempt that is tried again, and the end
    assert "example.org" not in caplog.text


@pytest.mark.real_loop
async def test_cancelling_the_sender_leaves_nothing_under_way():
    handler = Handler({"ada@example.org": [451] * 100})
    async with serving(handler) as (host, port):
        sending = asyncio.create_task(send_all([welcome()], host, port, attempts=100, pause=10))
        while not handler.tries:  # noqa: ASYNC110 - the server's own code is the only one that could say it
            await asyncio.sleep(0.001)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("ephemerals")] == []


def test_what_may_work_later():
    refused = aiosmtplib.SMTPRecipientRefused
    assert is_temporary(aiosmtplib.SMTPConnectError("no"))
    assert is_temporary(aiosmtplib.SMTPDataError(452, "full"))
    assert not is_temporary(aiosmtplib.SMTPDataError(554, "spam"))
    assert not is_temporary(aiosmtplib.SMTPRecipientsRefused([refused(450, "a", "a"), refused(550, "b", "b")]))
    assert not is_temporary(ValueError())
