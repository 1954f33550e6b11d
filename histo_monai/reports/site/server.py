"""Local web server of `report --serve` and `label --serve`, with a secret in its address."""

from __future__ import annotations

import hmac
import io
import os
import re
import secrets
import sys
from collections.abc import Callable
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
_JSON = "application/json"
_LONGEST = 2**20
"""Bytes of a page's message."""
_LENGTH = re.compile("[0-9]{1,7}")


class _Handler(SimpleHTTPRequestHandler):
    """Handler of regular files in a folder, below the secret and for this machine's names only; see `serve_page`."""

    timeout = 60

    def __init__(
        self, *args: Any, token: str, directory: str, page: str, answer: Callable[[bytes], bytes] | None
    ) -> None:
        self._token, self._page, self._answer = token, page, answer
        super().__init__(*args, directory=directory)

    def do_POST(self) -> None:
        """Answer a message of the page. A script of another page can send no JSON without asking first."""
        length = self.headers.get("Content-Length", "")
        status = self._refusal() if self._answer else HTTPStatus.NOT_IMPLEMENTED
        if status is None and (not self.headers.get("Origin") or self.headers.get("Content-Type") != _JSON):
            status = HTTPStatus.FORBIDDEN
        if status is None and not (_LENGTH.fullmatch(length) and int(length) <= _LONGEST):
            status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        if self._answer is None or status is not None:
            self.send_error(status or HTTPStatus.NOT_IMPLEMENTED)
            return
        code, kind = HTTPStatus.OK, _JSON
        try:
            content = self._answer(self.rfile.read(int(length)))
        except (InputError, OSError) as error:
            code, kind, content = HTTPStatus.CONFLICT, "text/plain; charset=utf-8", str(error).encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def send_head(self) -> io.BytesIO | BinaryIO | None:
        status = self._refusal()
        if status is not None:
            self.send_error(status)
            return None
        return super().send_head()

    def translate_path(self, path: str) -> str:
        if self._answer is not None:
            return str(Path(self.directory, self._page))
        path = super().translate_path(path.removeprefix(f"/{self._token}"))
        return f"{path}{self._page}" if path.endswith("/") else path

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
    """Serve the page of a folder until Ctrl-C; links out of the folder are not followed.

    Raises:
        InputError: there is no page, or an error of `serve_page`.
    """
    page = folder / "index.html"
    if not page.is_file():
        raise InputError(f"{page}: not found. Fix: run `dvc repro report`")
    serve_page(page, port)


def serve_page(page: Path, port: int | None, answer: Callable[[bytes], bytes] | None = None) -> None:
    """Serve a page until Ctrl-C, at an address with a secret of this call.

    Args:
        page: an existing file.
        port: on the loopback interface; None: a free one.
        answer: message of the page -> JSON, or an `InputError` or `OSError` whose text the page gets; no other file is
            served then. None: the page sends no message, and its whole folder is served.

    Raises:
        InputError: the port is invalid or in use.
    """
    if port is not None and not 1 <= port <= 65535:
        raise InputError(f"--port: {port} is out of range. Fix: give 1 to 65535, or leave it out")
    token = secrets.token_urlsafe(16)
    folder = os.path.realpath(page.parent)
    handler = partial(_Handler, token=token, directory=folder, page=page.name, answer=answer)
    try:
        server = _Server((LOOPBACK, port or 0), handler)
    except OSError as error:
        raise InputError(
            f"--port {port}: not available ({error.strerror}). Fix: name another port, or leave it out"
        ) from None
    with server:
        print(f"http://{LOOPBACK}:{server.server_port}/{token}/ (Ctrl-C ends it)", flush=True)
        server.serve_forever()
