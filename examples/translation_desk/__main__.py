"""Run the translation desk on the loopback: `python -m examples.translation_desk [PORT]`."""

from __future__ import annotations

import sys

import uvicorn

from .app import create_app


def main() -> None:
    """Serve until interrupted, and say where."""
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    app = create_app()
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)
    server = uvicorn.Server(config)
    listener = config.bind_socket()
    print(f"Translation desk: http://127.0.0.1:{listener.getsockname()[1]}/", flush=True)
    print(f"Translator: {app.state.desk.translator.name}. Stop with Ctrl-C.", flush=True)
    server.run(sockets=[listener])


if __name__ == "__main__":
    main()
