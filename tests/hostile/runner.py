"""Each case in a child of one warm process: what crashes, hangs or prints is seen, and stops no other case."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import pickle
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from histo_monai.pipeline.cli import main
from tests.hostile.case import TIMEOUT_S, Case, Outcome, faults, snapshot
from tests.hostile.project import copy_state

_MORE_MEMORY = 3 * 2**30
_CAPABILITY_VERSION_3 = 0x20080522


class BrokenCaseError(Exception):
    """A case that cannot be prepared: a fault of the catalogue."""


def run_case(case: Case, base: Path, room: Path) -> list[str]:
    """What is not as it must be; see `case.faults`.

    Args:
        case: To be tried.
        base: Made by `project.build`.
        room: An empty folder is made here, and removed.

    Raises:
        BrokenCaseError: `prepare` failed.
    """
    folder = room / "case"
    with _removed(folder):
        copy_state(base, case.state, folder)
        return faults(case, _outcome(case, folder, room))


@contextmanager
def _removed(folder: Path) -> Iterator[None]:
    try:
        yield
    finally:
        for where, _, _ in os.walk(folder):
            os.chmod(where, 0o700)
        shutil.rmtree(folder)


def _outcome(case: Case, folder: Path, room: Path) -> Outcome:
    about, out, err = (room / name for name in ("before", "out", "err"))
    about.unlink(missing_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _be_the_child(case, folder, about, out, err)
    ended = _wait(child)
    if not about.is_file():
        raise BrokenCaseError(f"{case.title}: {err.read_text(errors='replace')}")
    before = pickle.loads(about.read_bytes())
    after = snapshot(folder)
    printed = [path.read_bytes().decode("utf-8", "surrogateescape") for path in (out, err)]
    return Outcome(ended, *printed, before, after)


def _wait(child: int) -> int | str:
    """How the child ends; it and its own children are killed where it does not."""
    deadline = time.monotonic() + TIMEOUT_S
    ended: int | str = "hangs"
    pause = 0.001
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            ended = code if code >= 0 else f"dies of signal {-code}"
            break
        time.sleep(pause)
        pause = min(0.02, 2 * pause)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if ended == "hangs":
        os.waitpid(child, 0)
    return ended


def _be_the_child(case: Case, folder: Path, about: Path, out: Path, err: Path) -> None:
    code = 99
    try:
        os.setsid()
        for number, path in ((1, out), (2, err)):
            opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(opened, number)
            os.close(opened)
        sys.stdout, sys.stderr = (os.fdopen(os.dup(number), "w", buffering=1) for number in (1, 2))
        logging.root.handlers.clear()
        os.chdir(folder / "project")
        os.environ.update(case.environment)
        case.prepare()
        about.write_bytes(pickle.dumps(snapshot(folder)))
        _be_an_ordinary_user()
        if case.max_file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (case.max_file_bytes,) * 2)
        code = _call(case)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _call(case: Case) -> int:
    try:
        code = main(list(case.argv))
        if code == 0:
            case.check()
        return code
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1


def _be_an_ordinary_user() -> None:
    """No more memory than a case should need, no core files, and permissions that hold for root too."""
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + _MORE_MEMORY, now + _MORE_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()
    ctypes.CDLL(None, use_errno=True).capset(header, none)
