"""`python -m histo_monai` and `dvc` out of processes that have imported everything already, for a pipeline of tests.

A pipeline is dozens of processes, and importing torch, MONAI or DVC is most of what each does on a small dataset. Here
one process imports and then waits; a command of that name, first on PATH, hands it arguments, folder, environment and
its three streams; it forks, and the child runs the module as `python -m` does. Nothing else differs.
"""

from __future__ import annotations

import array
import contextlib
import importlib
import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from histo_monai.pipeline.warm import TRAINING_LIBRARIES

_COMMAND = """#!{python} -IS
import array, json, os, socket, sys
arguments = sys.argv[1:]
if {prefix!r} != arguments[: {length}]:
    os.execv({python!r}, [{python!r}, *arguments])
with socket.socket(socket.AF_UNIX) as line:
    line.connect({address!r})
    asked = dict(arguments=arguments[{length} :], folder=os.getcwd(), environment=dict(os.environ))
    streams = socket.SCM_RIGHTS, array.array("i", [0, 1, 2])
    text = json.dumps(asked).encode()
    line.sendmsg([len(text).to_bytes(8, "big")], [(socket.SOL_SOCKET, *streams)])
    line.sendall(text)
    status = line.recv(1)
sys.exit(status[0] if status else 137)
"""

TRAININGS = (
    *TRAINING_LIBRARIES,
    "timm",
    "torch.utils.tensorboard",
    *(f"histo_monai.pretraining.{name}" for name in ("moco", "rsp")),
)
"""Modules that stages import when they train a network."""
_CHECKOUT = Path(__file__).parents[2]


@contextlib.contextmanager
def warm(
    command: str,
    module: str,
    imports: Sequence[str],
    folder: Path,
    prefix: Sequence[str] = (),
    *,
    python: Path | str = sys.executable,
    path: Path | None = _CHECKOUT,
) -> Iterator[None]:
    """While it lasts, `folder`/`command` runs `module` in a fork of a process that has imported `imports`.

    Args:
        command: Name of the file that is written.
        module: What a child runs, by name, as its `__main__`.
        imports: Modules that are imported once.
        folder: Where the file goes: put it first on PATH.
        prefix: Arguments that a call begins with to be answered so; any other call goes to Python itself.
        python: The Python that imports and answers.
        path: Where it finds modules beside those of its environment.
    """
    address = folder / f"{command}.socket"
    text = _COMMAND.format(python=str(python), prefix=list(prefix), length=len(prefix), address=str(address))
    (folder / command).write_text(text)
    (folder / command).chmod(0o755)
    server = [python, __file__, str(address), module, *imports]
    environment = os.environ | {"PYTHONPATH": str(path or "")}
    with subprocess.Popen(server, cwd=folder, env=environment) as process:
        try:
            while not address.exists():
                if process.poll() is not None:
                    raise RuntimeError(f"the process that imports for {command} has ended")
                time.sleep(0.05)
            yield
        finally:
            process.terminate()


def _serve(address: str, module: str, imports: Sequence[str]) -> None:
    for name in imports:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the watchers
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{address}.draft")
        server.listen()
        os.rename(f"{address}.draft", address)
        while True:
            line, _ = server.accept()
            if os.fork() == 0:
                break
            line.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asked = _asked(line)
    child = os.fork()
    if child:
        _, ended = os.waitpid(child, 0)
        line.sendall(bytes([os.waitstatus_to_exitcode(ended) & 255]))
        os._exit(0)
    line.close()
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    # The streams of this process were made for other files: they would be sought in as those were.
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(
            io.BufferedWriter(io.FileIO(number, "w", closefd=False)),
            encoding="utf-8",
            errors=errors,
            line_buffering=number == 2,
        )
        for number, errors in ((1, "strict"), (2, "backslashreplace"))
    )
    sys.argv = [module, *asked["arguments"]]
    sys.path[0] = asked["folder"]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _asked(line: socket.socket) -> dict[str, Any]:
    """What a call sent: arguments, folder and environment; its streams become those of this process."""
    length, ancillary, _, _ = line.recvmsg(8, socket.CMSG_LEN(3 * array.array("i").itemsize))
    streams = array.array("i", ancillary[0][2])
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    with line.makefile("rb") as text:
        asked: dict[str, Any] = json.loads(text.read(int.from_bytes(length, "big")))
    return asked


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2], sys.argv[3:])
