from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_imports_go_downwards_only(root: Path) -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
