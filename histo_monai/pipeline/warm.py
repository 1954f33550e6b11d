"""A process with the libraries loaded, whose forks run the stages of one DVC command.

Python loads torch, MONAI and Ignite in seconds, and DVC starts a new Python for each stage. `histo-monai dvc repro`
loads them once, those of trainings for a project that trains networks. Each `python -m histo_monai STAGE` passes its
arguments, environment and terminal to that process, and ends with the exit status of the fork that ran it. All else is
as with `dvc repro`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn, TextIO, TypedDict

ADDRESS = "HISTO_MONAI_WARM"
"""Environment variable of the commands that DVC starts: socket of the process that runs them."""
_CLI = "histo_monai.pipeline.cli"
_STAGES = "histo_monai.pipeline.stages"
_THREADS = "histo_monai.utils.process.threads"
_STORED = "histo_monai.pipeline.stored_features"
_LIBRARIES = (
    _CLI,
    *(f"{_STAGES}.{name}" for name in ("code", "index", "check", "compare", "report")),
    "torch",
    *(f"{_STAGES}.{name}" for name in ("features", "finetune", "consistency", "evaluate", "heatmap")),
    "timm",
)
"""Modules that are loaded beforehand, quick ones first; a command may begin after each."""
TRAINING_LIBRARIES = (
    *("torchvision", "ignite.handlers", "histo_monai.transforms.augmentation"),
    *(f"histo_monai.pipeline.{name}" for name in ("finetuning", "teaching")),
)
"""Modules that are loaded after them for a project that trains networks."""
_LENGTH = 8
"""Bytes of the length of a request."""
_TERMINAL = (0, 1, 2)
"""File descriptors of stdin, stdout and stderr."""
_STATUS = b"s"
"""First byte of an answer; the exit status follows."""
_REFUSED = b"--"
"""Answer to a command of other code: of another copy of the package, or changed since it was loaded."""
_ENDS_IN_S = 5.0
_LONGEST_FOLDER = 70
"""Characters of a temporary folder that leave room for a socket's address, of 107 bytes at most."""


class Request(TypedDict):
    """What a process asks for.

    Attributes:
        code: this file: another copy of the package runs its own code.
        arguments: of the command line.
        folder: the working folder.
        environ: all environment variables.
    """

    code: str
    arguments: list[str]
    folder: str
    environ: dict[str, str]


def main() -> int:
    """Run a stage or command: in a fork of the process of `histo-monai dvc`, if there is one, else here."""
    address = os.environ.get(ADDRESS)
    status = _ask(address) if address else None
    if status is None:
        status = importlib.import_module(_CLI).main()
    return status


def _ask(address: str) -> int | None:
    """Exit status of the fork that ran this process's command; None if the process is gone or has other code."""
    request = Request(code=__file__, arguments=sys.argv[1:], folder=os.getcwd(), environ={**os.environ})
    content = json.dumps(request).encode()
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as asking:
        try:
            asking.connect(address)
        except OSError:  # `histo-monai dvc` has ended
            return None
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the fork, whose exit status counts
        socket.send_fds(asking, [len(content).to_bytes(_LENGTH, "big")], _TERMINAL)
        asking.sendall(content)
        answer = asking.recv(len(_REFUSED))
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not answer:
        raise RuntimeError(f"{ADDRESS}: the process that ran this command has ended")
    return None if answer == _REFUSED else answer[1]


@contextlib.contextmanager
def warm_process() -> Iterator[dict[str, str]]:
    """Start the process, and end it with the context; environment variables for the DVC command."""
    short = None if len(tempfile.gettempdir()) < _LONGEST_FOLDER else "/tmp"
    with tempfile.TemporaryDirectory(prefix="histo-monai-", dir=short) as folder:
        address = str(Path(folder) / "socket")
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as listening:
            listening.bind(address)
            listening.listen()
            number = listening.fileno()
            command = [sys.executable, "-m", __name__, str(number)]
            started = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[number])
        try:
            yield {ADDRESS: address}
        finally:
            try:
                started.communicate(timeout=_ENDS_IN_S)  # closes its stdin, at which it ends
            except subprocess.TimeoutExpired:  # It still loads a library; no stage runs any more.
                started.kill()
                started.wait()


def _serve(listening: socket.socket) -> None:
    """Load the libraries and run commands, each in a fork, until stdin is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, _reap)
    importlib.import_module(_THREADS).sleep_when_idle()
    gc.disable()  # what is imported lasts: see `utils.process.garbage`
    loaded = _code()
    waiting = [*_LIBRARIES, *(TRAINING_LIBRARIES if _trains_networks() else ())]
    while True:
        ready = select.select([listening.fileno(), 0], [], [], 0 if waiting else None)[0]
        if 0 in ready:
            return
        if ready:
            asking = listening.accept()[0]
            gc.freeze()
            if os.fork() == 0:
                listening.close()
                _supervise(asking, loaded)
                os._exit(0)
            asking.close()
        elif waiting:
            importlib.import_module(waiting.pop(0))
            if not waiting:  # four stages ask for this digest: forks know the parsed modules
                importlib.import_module(_STORED).features_code_sha256()


def _trains_networks() -> bool:
    """Whether the project's networks are trained, or its params cannot be read, as the stages will report.

    The values are not checked: that would import the project's own methods, whose text may change before a stage runs.
    """
    read_tree = importlib.import_module("histo_monai.pipeline.params.file").read_tree
    try:
        tree = read_tree(importlib.import_module("histo_monai.pipeline.paths").PARAMS)
        return bool(tree["finetune"]["mode"] != "head")
    except (OSError, ValueError, KeyError, TypeError):
        return True


def _reap(*_: object) -> None:
    """Take note of forks that have ended: their processor time counts as that of `histo-monai dvc`."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _code() -> list[tuple[str, int, int]]:
    """Names, sizes and times of the package's files."""
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    return [(str(path), (about := path.stat()).st_size, about.st_mtime_ns) for path in files]


def _supervise(asking: socket.socket, loaded: list[tuple[str, int, int]]) -> None:
    """Run one command in a fork, and pass on its exit status; the fork ends with the process that asks.

    Args:
        loaded: `_code` before the first import.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    length, terminal, _, _ = socket.recv_fds(asking, _LENGTH, len(_TERMINAL))
    content = b""
    while len(content) < int.from_bytes(length, "big"):
        part = asking.recv(1 << 16)
        if not part:  # the process that asks has ended
            return
        content += part
    request: Request = json.loads(content)
    if request["code"] != __file__ or _code() != loaded:
        asking.send(_REFUSED)
        return
    running = os.fork()
    if running == 0:
        asking.close()
        _end(_run(request, terminal))
    for number in terminal:
        os.close(number)
    ended = os.pidfd_open(running)
    if ended not in select.select([ended, asking.fileno()], [], [])[0]:  # the process that asks was killed
        os.kill(running, signal.SIGTERM)
    status = os.waitstatus_to_exitcode(os.waitpid(running, 0)[1])
    with contextlib.suppress(BrokenPipeError):
        asking.send(_STATUS + bytes([status if status >= 0 else 128 - status]))


def _run(request: Request, terminal: list[int]) -> int:
    """Run a command with the terminal, folder and environment of the process that asks; its exit status."""
    for number, inherited in zip(terminal, _TERMINAL, strict=True):
        os.dup2(number, inherited)
        os.close(number)
    sys.stdin, sys.stdout, sys.stderr = map(_opened_again, (sys.stdin, sys.stdout, sys.stderr), _TERMINAL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.enable()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.argv[1:], sys.path[0] = request["arguments"], request["folder"]
    status: int = importlib.import_module(_CLI).main()
    return status


def _end(status: int) -> NoReturn:
    """End a fork as Python ends, but leave its memory to the system: freeing a million objects takes half a second."""
    vars(threading)["_shutdown"]()  # waits for threads, as Python does
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _opened_again(stream: TextIO, number: int) -> TextIO:
    """A stream of this process on the file that has taken the place of its own."""
    file = io.FileIO(number, "r" if number == 0 else "w", closefd=False)
    buffer = io.BufferedReader(file) if number == 0 else io.BufferedWriter(file)
    is_by_line = number == 2 or file.isatty()
    return io.TextIOWrapper(buffer, stream.encoding, stream.errors, line_buffering=is_by_line)


if __name__ == "__main__":
    # By its name: Python shows warnings of deprecation that arise in `__main__`, and hides those of other modules.
    importlib.import_module("histo_monai.pipeline.warm")._serve(socket.socket(fileno=int(sys.argv[1])))
