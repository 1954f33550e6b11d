from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import gc, os, sys
from histo_monai.utils.process.forks import leave_garbage_to_parents

class Graph:
    def __del__(self):
        os.write(1, b"freed by the child" if os.getpid() != parent else b"freed by the parent")

parent = os.getpid()
if sys.argv[1] == "left":
    leave_garbage_to_parents()
gc.disable()
graph = Graph()
graph.itself = graph
del graph
child = os.fork()
gc.collect()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
"""


def _freed(how: str, root: Path) -> str:
    command = [sys.executable, "-c", PROGRAM, how]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout


def test_garbage_is_freed_by_the_process_that_made_it_alone(root: Path) -> None:
    assert _freed("left", root) == "freed by the parent"
    assert "freed by the child" in _freed("as ever", root)
