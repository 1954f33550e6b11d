"""`report --serve`: the page of the run, to a browser on this machine."""

from __future__ import annotations

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from histo_monai.errors import InputError

LOOPBACK = "127.0.0.1"


class _Quiet(SimpleHTTPRequestHandler):
    """A tile is no news."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


def serve(folder: Path, port: int | None) -> None:
    """Serve a page until Ctrl-C.

    Args:
        folder: of the page.
        port: on the loopback interface, which no other machine reaches; None takes a free one.

    Raises:
        InputError: there is no page, or the port is none or cannot be had.
    """
    if port is not None and not 1 <= port <= 65535:
        raise InputError(f"--port is {port}; expected 1 to 65535, or none for one that is free")
    page = folder / "index.html"
    if not page.is_file():
        raise InputError(f"{page}: not found; run `dvc repro report` first")
    try:
        server = ThreadingHTTPServer((LOOPBACK, port or 0), partial(_Quiet, directory=str(folder)))
    except OSError as error:
        raise InputError(
            f"--port {port}: cannot be had ({error.strerror}); name another, or none for one that is free"
        ) from None
    with server:
        print(f"http://{LOOPBACK}:{server.server_port}/ (Ctrl-C ends it)", flush=True)
        server.serve_forever()
