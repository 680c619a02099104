"""The desk as a newcomer starts it: it says where it is, answers there and nowhere else, and stops when told to."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

import httpx
import pytest
from examples.translation_desk import __main__ as command


@pytest.mark.heavy
def test_it_says_where_it_is_and_stops_cleanly_when_interrupted():
    start = [sys.executable, "-m", "examples.translation_desk", "0"]
    with subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            address = process.stdout.readline().partition("Translation desk: ")[2].strip()
            assert address.startswith("http://127.0.0.1:")
            assert "Ctrl-C" in process.stdout.readline()
            page = httpx.get(address)
            assert page.status_code == 200
            assert "Start translation" in page.text
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 0
    assert output == "Stopped.\n"


def test_a_port_that_somebody_has_is_only_insisted_on_if_it_was_asked_for(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setattr(command, "_PORT", port)
        with command._listener([]) as listener:
            assert listener.getsockname()[0] == "127.0.0.1"
            assert listener.getsockname()[1] != port
        with pytest.raises(OSError, match="in use"):
            command._listener([str(port)])
