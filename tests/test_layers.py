from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path


def test_imports_go_downwards_only(root: Path) -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_files_functions_and_rooms_stay_small(root: Path) -> None:
    """330 lines a file, 60 lines of code a function (its docstring apart), 15 files a room beside its `__init__.py`."""
    package = root / "histo_monai"
    too_large = []
    for path in package.rglob("*.py"):
        text = path.read_text()
        too_large += [path] * (text.count("\n") > 330)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                words = ast.get_docstring(node, clean=False)
                num = node.body[-1].end_lineno - node.lineno + 1 - (words.count("\n") + 1 if words else 0)
                too_large += [f"{path}: {node.name}"] * (num > 60)
    rooms = {path.parent for path in package.rglob("*.py")}
    too_large += [room for room in rooms if len(list(room.glob("[!_]*.py"))) > 15]
    assert not too_large
