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


def serve(folder: Path, port: int) -> None:
    """Serve a page until Ctrl-C.

    Args:
        folder: of the page.
        port: on the loopback interface, which no other machine reaches; 0 takes a free one.

    Raises:
        InputError: there is no page.
        OSError: the port is taken.
    """
    page = folder / "index.html"
    if not page.is_file():
        raise InputError(f"{page}: not found; run `dvc repro report` first")
    with ThreadingHTTPServer((LOOPBACK, port), partial(_Quiet, directory=str(folder))) as server:
        print(f"http://{LOOPBACK}:{server.server_port}/ (Ctrl-C ends it)", flush=True)
        server.serve_forever()
