"""Local web server of `report --serve`, with a secret in its address."""

from __future__ import annotations

import hmac
import io
import os
import re
import secrets
import sys
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO

from histo_monai.utils.errors import InputError

LOOPBACK = "127.0.0.1"
_HOST = re.compile(r"(127\.0\.0\.1|localhost)(:[0-9]{1,5})?")
_HEADERS = {
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers: no embedding, framing or referrer for other pages."""


class _Handler(SimpleHTTPRequestHandler):
    """Handler of regular files in a folder, below the secret and for this machine's names only."""

    timeout = 60

    def __init__(self, *args: Any, token: str, directory: str) -> None:
        self._token = token
        super().__init__(*args, directory=directory)

    def send_head(self) -> io.BytesIO | BinaryIO | None:
        status = self._refusal()
        if status is not None:
            self.send_error(status)
            return None
        return super().send_head()

    def translate_path(self, path: str) -> str:
        path = super().translate_path(path.removeprefix(f"/{self._token}"))
        return f"{path}index.html" if path.endswith("/") else path

    def _refusal(self) -> HTTPStatus | None:
        """HTTP status of a refused request; None if allowed.

        `Host` holds the name in the browser's address, and `Origin` the page of the requesting script. The port may
        differ: an SSH tunnel changes it.
        """
        hosts, origins = self.headers.get_all("Host", []), self.headers.get_all("Origin", [])
        if len(hosts) != 1 or not _HOST.fullmatch(hosts[0]) or set(origins) - {f"http://{hosts[0]}"}:
            return HTTPStatus.FORBIDDEN
        start = f"/{self._token}/".encode()
        if not hmac.compare_digest(self.path.encode("utf-8", "replace")[: len(start)], start):
            return HTTPStatus.NOT_FOUND
        path = self.translate_path(self.path)
        if not path.removeprefix(self.directory).isprintable():
            return HTTPStatus.BAD_REQUEST
        try:
            real = Path(os.path.realpath(path, strict=True))
        except OSError:
            return HTTPStatus.NOT_FOUND
        return None if real.is_relative_to(self.directory) and real.is_file() else HTTPStatus.NOT_FOUND

    def end_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log no requests."""


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that closes the connection."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def serve(folder: Path, port: int | None) -> None:
    """Serve a page until Ctrl-C, at an address with a secret of this call.

    Args:
        folder: of the page; links out of it are not followed.
        port: on the loopback interface; None: a free one.

    Raises:
        InputError: there is no page, or the port is invalid or in use.
    """
    if port is not None and not 1 <= port <= 65535:
        raise InputError(f"--port: {port} is out of range. Fix: give 1 to 65535, or leave it out")
    page = folder / "index.html"
    if not page.is_file():
        raise InputError(f"{page}: not found. Fix: run `dvc repro report`")
    token = secrets.token_urlsafe(16)
    handler = partial(_Handler, token=token, directory=os.path.realpath(folder))
    try:
        server = _Server((LOOPBACK, port or 0), handler)
    except OSError as error:
        raise InputError(
            f"--port {port}: not available ({error.strerror}). Fix: name another port, or leave it out"
        ) from None
    with server:
        print(f"http://{LOOPBACK}:{server.server_port}/{token}/ (Ctrl-C ends it)", flush=True)
        server.serve_forever()
