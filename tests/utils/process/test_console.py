"""A console that cannot show a letter gets its escape."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENCODINGS = ("ascii", "gbk", "shift_jis", "koi8-r")
EVERY_HELP = """
import sys
from histo_monai.pipeline.arguments import COMMANDS, STAGES
from histo_monai.pipeline.cli import main
for name in ("", *STAGES, *COMMANDS):
    try:
        main([*filter(None, [name]), "--help"])
    except SystemExit as left:
        assert left.code == 0, name
    print(f"end of {name}")
"""


def outcome(program: list[str], folder: Path, encoding: str) -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | {"PYTHONIOENCODING": encoding, "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, *program], cwd=folder, env=environment, capture_output=True, check=False
    )


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_help_of_every_command_is_shown_whole(encoding: str, tmp_path: Path) -> None:
    from histo_monai.pipeline.arguments import COMMANDS, STAGES

    done = outcome(["-c", EVERY_HELP], tmp_path, encoding)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode(encoding)
    assert all(f"end of {name}" in text for name in (*STAGES, *COMMANDS))
    assert r"\xb5m/px" in text  # "µ" is in none of the four


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_error_names_a_file_the_console_cannot_show(encoding: str, tmp_path: Path) -> None:
    name = "Prä\N{MUSICAL SYMBOL G CLEF}.xml"
    done = outcome(["-m", "histo_monai", "convert", name, "out.geojson"], tmp_path, encoding)
    assert done.returncode == 1
    (line,) = done.stderr.decode(encoding).splitlines()
    assert r"\U0001d11e.xml" in line
