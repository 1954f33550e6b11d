from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from histo_monai.reports.site.server import LOOPBACK, serve
from histo_monai.utils.errors import InputError
from tests.folders import NewFolder


def test_a_port_that_another_program_has_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "index.html").touch()
    with socket.create_server((LOOPBACK, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(
            InputError, match=f"--port {port}: not available .Address already in use.. Fix: name another"
        ):
            serve(tmp_path, port)


def test_a_page_that_was_never_written_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"index\.html: not found. Fix: run `dvc repro report`"):
        serve(tmp_path, None)


@pytest.fixture(scope="module")
def site(module_folder: NewFolder) -> Iterator[tuple[int, str, Path]]:
    """Port, token and folder of a page that is served, beside a file that nobody may see."""
    outer = module_folder("served")
    (outer / "secret.txt").write_text("of a patient")
    (outer / "elsewhere").mkdir()
    (outer / "elsewhere/secret.txt").write_text("of a patient")
    folder = outer / "report"
    (folder / "slides").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "index.html").write_text("the page")
    (folder / "slides/a b.js").write_text("a slide")
    (folder / "inside.js").symlink_to("slides/a b.js")
    (folder / "outside.txt").symlink_to("../secret.txt")
    (folder / "absolute.txt").symlink_to(outer / "secret.txt")
    (folder / "folder").symlink_to("../elsewhere")
    (folder / "nowhere").symlink_to("not there")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    code = "import sys; from pathlib import Path; from histo_monai.reports.site.server import serve; "
    code += "serve(Path(sys.argv[1]), None)"
    command = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        address = re.match(r"http://127\.0\.0\.1:(\d+)/([\w-]+)/", process.stdout.readline())
        assert address
        try:
            yield int(address[1]), address[2], folder
        finally:
            process.terminate()
        assert process.stdout.read() == ""  # neither a traceback nor a word of what was asked


def _ask(port: int, request: bytes) -> tuple[int, bytes]:
    """Status and content of the answer to bytes as they are."""
    with socket.create_connection((LOOPBACK, port), timeout=10) as connection:
        connection.sendall(request)
        with connection.makefile("rb") as answer:
            content = answer.read()
    head, _, body = content.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def _get(port: int, path: str, *headers: str, host: str = "", method: str = "GET") -> tuple[int, bytes]:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host or f'127.0.0.1:{port}'}", *headers, "", ""]
    return _ask(port, "\r\n".join(lines).encode("latin-1"))


Site = tuple[int, str, Path]


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("", b"the page"),
        ("index.html", b"the page"),
        ("index.html?a=1#slide=x", b"the page"),
        ("slides/a%20b.js", b"a slide"),
        ("inside.js", b"a slide"),
        ("./slides/../index.html", b"the page"),
    ],
)
def test_files_of_the_page_are_served_to_who_has_its_address(path: str, content: bytes, site: Site) -> None:
    port, token, _ = site
    assert _get(port, f"/{token}/{path}") == (200, content)
    assert _get(port, f"/{token}/{path}", host=f"localhost:{port}") == (200, content)
    assert _get(port, f"/{token}/{path}", f"Origin: http://127.0.0.1:{port}") == (200, content)
    assert _get(port, f"/{token}/{path}", method="HEAD") == (200, b"")
    assert _get(port, f"/{token}/{path}", host="localhost:1") == (200, content), (
        "a tunnel has a port of its own"
    )


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:{port}", "127.0.0.1.evil.example:{port}", "localhost.evil.example"),
        *(
            "127.0.0.1@evil.example",
            "evil.example#127.0.0.1",
            "10.0.0.1:{port}",
            "0.0.0.0:{port}",
            "[::1]:{port}",
        ),
        *(
            "2130706433:{port}",
            "127.1:{port}",
            "localhost:{port}:1",
            "localhost:",
            "127.0.0.1:123456",
            ":{port}",
        ),
        *("127.0.0.1:{port}, evil.example", "localhost evil.example", "127x0.0.1:{port}"),
    ],
)
def test_a_name_that_leads_here_by_dns_gets_nothing(host: str, site: Site) -> None:
    port, token, _ = site
    status, body = _get(port, f"/{token}/", host=host.format(port=port))
    assert status == 403
    assert b"the page" not in body


@pytest.mark.parametrize(
    "request_lines",
    [
        ["GET /{token}/ HTTP/1.1"],
        ["GET /{token}/ HTTP/1.1", "Host:"],
        ["GET /{token}/ HTTP/1.1", "Host: 127.0.0.1:{port}", "Host: evil.example"],
        ["GET /{token}/ HTTP/1.0"],
    ],
)
def test_a_request_without_one_host_gets_nothing(request_lines: list[str], site: Site) -> None:
    port, token, _ = site
    text = "\r\n".join([*request_lines, "", ""]).format(port=port, token=token)
    assert _ask(port, text.encode())[0] == 403


@pytest.mark.parametrize(
    "origin",
    [
        *(
            "http://evil.example",
            "null",
            "https://127.0.0.1:{port}",
            "http://127.0.0.1:1",
            "http://localhost:{port}",
        ),
        *("http://127.0.0.1:{port}.evil.example", "file://", "", "http://127.0.0.1:{port}/"),
    ],
)
def test_a_script_of_another_page_gets_nothing(origin: str, site: Site) -> None:
    port, token, _ = site
    assert _get(port, f"/{token}/", f"Origin: {origin.format(port=port)}")[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/",
            "/index.html",
            "/{token}",
            "/{token}x/",
            "/{Token}/",
            "/%2f{token}/",
        ),
        *("/a/{token}/", "http://127.0.0.1/{token}/", "/" + "A" * 22 + "/", "/?{token}/", "/é/"),
    ],
)
def test_without_the_secret_of_the_address_there_is_nothing(path: str, site: Site) -> None:
    port, token, _ = site
    status, body = _get(port, path.format(token=token, Token=token.swapcase()))
    assert status == 404
    assert b"the page" not in body


@pytest.mark.parametrize(
    ("path", "status"),
    [
        *(
            (path, 404)
            for path in ("outside.txt", "absolute.txt", "folder/secret.txt", "nowhere", "loop", "pipe")
        ),
        *(
            (path, 404)
            for path in ("../secret.txt", "%2e%2e/secret.txt", "..%2fsecret.txt", "slides/../../secret.txt")
        ),
        *(
            (path, 404)
            for path in ("slides", "slides/", "empty/", "folder/", "index.html/", "a" * 5000, "%", "%c0%ae")
        ),
        *(
            (path, 400)
            for path in ("%00", "index.html%00", "a%0d%0aX: 1", "%1b[2J", "%7f", "%e2%80%ae", "a%09b")
        ),
    ],
)
def test_nothing_but_files_inside_the_folder_is_served(path: str, status: int, site: Site) -> None:
    port, token, _ = site
    found, body = _get(port, f"/{token}/{path}")
    assert found == status
    assert b"of a patient" not in body
    assert b"Directory listing" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "X" * 999])
def test_other_methods_are_not_known(method: str, site: Site) -> None:
    port, token, _ = site
    assert _get(port, f"/{token}/", method=method)[0] == 501


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\r\n\r\n",
        b"\0" * 99 + b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9\r\n\r\n",
        b"GET /" + b"a" * 99_999,
        b"",
    ],
    ids=["nothing", "zeros", "one word", "a version nobody knows", "without end", "no byte"],
)
def test_what_is_no_request_ends_no_server(request_bytes: bytes, site: Site) -> None:
    port, token, _ = site
    with socket.create_connection((LOOPBACK, port), timeout=10) as connection:
        connection.sendall(request_bytes)
    assert _get(port, f"/{token}/") == (200, b"the page")


def test_no_other_page_may_embed_it_or_learn_its_address(site: Site) -> None:
    port, token, _ = site
    with socket.create_connection((LOOPBACK, port), timeout=10) as connection:
        connection.sendall(f"GET /{token}/ HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        with connection.makefile("rb") as answer:
            head = answer.read().partition(b"\r\n\r\n")[0].decode().lower()
    for header in ("cross-origin-resource-policy: same-origin", "referrer-policy: no-referrer"):
        assert header in head
    assert "access-control" not in head


def test_every_call_has_a_secret_of_its_own(site: Site, tmp_path: Path) -> None:
    (tmp_path / "index.html").touch()
    code = "import sys; from pathlib import Path; from histo_monai.reports.site.server import serve; "
    code += "serve(Path(sys.argv[1]), None)"
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
    assert site[1] not in line
