from __future__ import annotations

import socket
from pathlib import Path

import pytest

from histo_monai.errors import InputError
from histo_monai.reports.site.server import LOOPBACK, serve


def test_a_port_that_another_program_has_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "index.html").touch()
    with socket.create_server((LOOPBACK, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(
            InputError, match=f"--port {port}: cannot be had .Address already in use.; name another"
        ):
            serve(tmp_path, port)


def test_a_page_that_was_never_written_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"index\.html: not found; run `dvc repro report` first"):
        serve(tmp_path, None)
