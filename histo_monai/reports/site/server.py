"""`report --serve`: the page of the run, to a browser on this machine that was given its address."""

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
"""Other pages neither embed nor frame this one, and are not given its address."""


class _Handler(SimpleHTTPRequestHandler):
    """Regular files of a folder, below the token, to whoever asks for them by this machine's own name."""

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
        """The status of a request that is not answered with a file; None where it is.

        A browser states in `Host` the name that its page was reached by, whatever the name leads to, and in `Origin`
        whose script asks. The port may be another: of a tunnel to this machine.
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
        """A tile is no news."""


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle of a file is no error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def serve(folder: Path, port: int | None) -> None:
    """Serve a page until Ctrl-C, at an address that holds a secret of this call.

    Args:
        folder: of the page; links in it that lead out of it are not followed.
        port: on the loopback interface, which no other machine reaches; None takes a free one.

    Raises:
        InputError: there is no page, or the port is none or cannot be had.
    """
    if port is not None and not 1 <= port <= 65535:
        raise InputError(f"--port is {port}; expected 1 to 65535, or none for one that is free")
    page = folder / "index.html"
    if not page.is_file():
        raise InputError(f"{page}: not found; run `dvc repro report` first")
    token = secrets.token_urlsafe(16)
    handler = partial(_Handler, token=token, directory=os.path.realpath(folder))
    try:
        server = _Server((LOOPBACK, port or 0), handler)
    except OSError as error:
        raise InputError(
            f"--port {port}: cannot be had ({error.strerror}); name another, or none for one that is free"
        ) from None
    with server:
        print(f"http://{LOOPBACK}:{server.server_port}/{token}/ (Ctrl-C ends it)", flush=True)
        server.serve_forever()
