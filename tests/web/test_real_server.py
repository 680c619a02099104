"""With a real server, real connections that break, and real signals."""

from __future__ import annotations

import signal
import time

import httpx
import pytest
from tests.web.server import Server

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def server():
    with Server("tests.web.real_app:app") as server:
        yield server


@pytest.fixture
def client(server):
    with httpx.Client(base_url=server.url) as client:
        yield client


def eventually(look, wanted, patience=10):
    """Look until it is there, in real time: another process is watched."""
    deadline = time.monotonic() + patience
    while wanted not in (seen := look()):
        assert time.monotonic() < deadline, f"{wanted!r} did not come: {seen}"
        time.sleep(0.02)


def test_a_client_that_goes_away_from_a_stream_does_not_take_the_work_with_it(server, client):
    with httpx.Client(base_url=server.url) as leaving, leaving.stream("POST", "/stream") as answer:
        next(answer.iter_raw())
    eventually(lambda: client.get("/completed").json(), "from a stream")
    eventually(lambda: client.get("/completed").json(), "work")


def test_a_client_that_does_not_wait_for_the_answer_does_not_take_the_work_with_it(server, client):
    with httpx.Client(base_url=server.url) as leaving, pytest.raises(httpx.ReadTimeout):
        leaving.post("/hang", timeout=httpx.Timeout(5, read=0.05))
    eventually(lambda: client.get("/completed").json(), "from a request that hangs")


def test_a_handler_that_raises_after_enqueue_has_enqueued(server, client):
    assert httpx.post(f"{server.url}/raise").status_code == 500
    eventually(lambda: client.get("/completed").json(), "from a handler that raises")


def test_a_full_coordinator_answers_429_with_a_time_to_come_back(client):
    answers = [client.post("/small") for _ in range(4)]
    assert answers[0].status_code == 200
    assert answers[-1].status_code == 429
    assert answers[-1].headers["retry-after"] == "1"


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_under_load_ends_the_process_within_the_budget(sent):
    with Server("tests.web.real_app:app") as server:
        httpx.post(f"{server.url}/load")
        end = server.stop(sent)
    assert end.seconds < 2 + 1.5
    assert end.code in {0, -sent}
    assert end.output.count("(work)") == 4, "four run for a minute and are cancelled when the budget ends"
    assert "2 that have not started" in end.output
    assert "Task was destroyed" not in end.output
    assert "never awaited" not in end.output
    assert "Traceback" not in end.output


def test_a_signal_lets_short_work_end():
    with Server("tests.web.real_app:app") as server:
        for _ in range(2):
            httpx.post(f"{server.url}/hang")
        end = server.stop()
    assert end.seconds < 2
    assert "cancels at shutdown" not in end.output
