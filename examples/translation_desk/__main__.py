"""Run the translation desk on the loopback: `python -m examples.translation_desk [PORT]`."""

from __future__ import annotations

import contextlib
import socket
import sys
from typing import Final

import uvicorn

from .app import create_app

_HOST: Final = "127.0.0.1"
_PORT: Final = 8000


def main() -> None:
    """Serve until interrupted, and say where."""
    listener = _listener(sys.argv[1:])
    app = create_app()
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
    print(f"Translation desk: http://{_HOST}:{listener.getsockname()[1]}/", flush=True)
    print(f"Translator: {app.state.desk.translator.name}. Stop with Ctrl-C.", flush=True)
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again when everything has ended
        server.run(sockets=[listener])
    print("Stopped.")


def _listener(arguments: list[str]) -> socket.socket:
    """Listen on the port that is asked for; without one on the usual port, or on any if somebody else has it."""
    if arguments:
        return socket.create_server((_HOST, int(arguments[0])))
    try:
        return socket.create_server((_HOST, _PORT))
    except OSError:
        return socket.create_server((_HOST, 0))


if __name__ == "__main__":
    main()
