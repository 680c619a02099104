"""The work API under a real uvicorn: real requests, connections that break, and a signal under load."""

from __future__ import annotations

import json
import signal
import socket
import time
from urllib.parse import urlsplit

import httpx
import pytest
from tests.web.server import Server

pytestmark = pytest.mark.heavy
HEAD = b"POST /api/command HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
APPLICATION = "tests.examples.slow_work_api:create"


@pytest.fixture(scope="module")
def server():
    with Server(APPLICATION, "--factory") as server:
        yield server


@pytest.fixture
def client(server):
    with httpx.Client(base_url=server.url) as client:
        yield client


def completed(client, name):
    return client.get("/api/status").json()["coordinators"].get(name, {}).get("completed", 0)


def eventually(look, patience=20):
    deadline = time.monotonic() + patience
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_translation_is_accepted_worked_on_and_fetched(client):
    operation_id = client.post("/api/translate", json={"text": "good morning"}).json()["id"]
    path = f"/api/translate/{operation_id}"
    assert client.get(path).status_code == 409
    eventually(lambda: client.get(path).status_code == 200)
    assert client.get(path).json()["translated"] == "GOOD MORNING"


def test_a_client_that_hangs_up_as_soon_as_it_is_answered_has_its_commands_executed(server, client):
    before = completed(client, "commands")
    body = json.dumps({"user": "gone", "action": "tidy up"}).encode()
    address = urlsplit(server.url)
    for _ in range(3):
        with socket.create_connection((address.hostname, address.port)) as connection:
            connection.sendall(HEAD % len(body) + body)
            assert connection.recv(1) == b"H"
    eventually(lambda: completed(client, "commands") == before + 3)


def test_a_refused_user_gets_429_and_everybody_else_is_served(client):
    answers = [client.post("/api/command", json={"user": "ada", "action": "x"}) for _ in range(12)]
    assert answers[0].status_code == 202
    assert 429 in {answer.status_code for answer in answers}
    assert client.post("/api/command", json={"user": "bob", "action": "x"}).status_code == 202


@pytest.mark.parametrize("sent", [signal.SIGTERM])
def test_a_signal_under_load_ends_it_within_the_budget(sent):
    with Server(APPLICATION, "--factory") as server:
        for _ in range(5):
            httpx.post(f"{server.url}/api/translate", json={"text": "secret", "quality": "accurate"})
            httpx.post(f"{server.url}/api/command", json={"user": "ada", "action": "secret"})
        end = server.stop(sent)
    assert end.seconds < 5 + 2
    assert end.code in {0, -sent}
    assert "coordinator accurate cancels at shutdown" in end.output
    assert "coordinator commands cancels" not in end.output, "five short ones have ended in time"
    for never in ("Task was destroyed", "never awaited", "Traceback", "secret"):
        assert never not in end.output
