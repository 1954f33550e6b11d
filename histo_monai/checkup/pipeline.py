"""The project: params, the file of weights, DVC's lock file, and what killed processes have left."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

import yaml

from histo_monai import artifacts
from histo_monai.checkup.finding import Finding
from histo_monai.errors import InputError
from histo_monai.networks.start import EncoderStart
from histo_monai.params import Params, load_params
from histo_monai.params.file import NO_PROJECT

LOCK_FILE, RWLOCK = Path("dvc.lock"), Path(".dvc/tmp/rwlock")
_DRAFTS = (".*.draft", ".*.draft.*", ".*.before")
_MEND_LOCK = (
    "`git checkout dvc.lock`, or `rm dvc.lock` where it was never committed, then `dvc repro`: what was run already "
    "comes from the run cache"
)


def params_file(_params: Params | None) -> Iterator[Finding]:
    """It can be read, and every value is one that a stage can use."""
    if not artifacts.PARAMS.is_file():
        yield Finding("WARN", "params.yaml", "not here", NO_PROJECT)
        return
    try:
        params = load_params(artifacts.PARAMS)
    except InputError as error:
        yield Finding("FAIL", "params.yaml", str(error).removeprefix("params.yaml: "))
        return
    message = (
        f"{params.source} {params.dataset}, methods {', '.join(params.methods)}, "
        f"{len(params.pretrain.seeds)} encoders of each, {len(params.seeds)} seeds of each encoder"
    )
    yield Finding("PASS", "params.yaml", message)


def weights_file(params: Params | None) -> Iterator[Finding]:
    """The file that `encoder.weights` names is there, and is the one of `encoder.sha256`."""
    if params is None or params.encoder.weights is None:
        return
    try:
        digest = EncoderStart.of(params.encoder).checked_digest(Path(params.encoder.weights))
    except InputError as error:
        message, _, remedy = str(error).partition("; ")
        yield Finding("FAIL", "encoder weights", message, remedy)
        return
    yield Finding("PASS", "encoder weights", f"{params.encoder.weights}, SHA-256 {digest}")


def lock_file(_params: Params | None) -> Iterator[Finding]:
    """A DVC that was killed while it wrote dvc.lock leaves it empty or cut off, and refuses it afterwards."""
    if not LOCK_FILE.exists():
        yield Finding("PASS", "dvc.lock", "not there yet: nothing has been run")
        return
    if LOCK_FILE.stat().st_size == 0:
        yield Finding("FAIL", "dvc.lock", "0 bytes: DVC was killed while it wrote it", _MEND_LOCK)
        return
    try:
        content = yaml.safe_load(LOCK_FILE.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        yield Finding("FAIL", "dvc.lock", f"not YAML ({' '.join(str(error).split())})", _MEND_LOCK)
        return
    stages = content.get("stages", {}) if isinstance(content, dict) and "schema" in content else None
    if not isinstance(stages, dict):
        yield Finding("FAIL", "dvc.lock", "not a lock file of DVC: no `schema` or no `stages`", _MEND_LOCK)
        return
    yield Finding("PASS", "dvc.lock", f"{len(stages)} stages")


def locks(_params: Params | None) -> Iterator[Finding]:
    """Which stages run now, and locks of processes that are gone."""
    running: list[str] = []
    stale: list[str] = []
    for path in sorted(artifacts.lock_path("*").parent.glob(".*.lock")):
        (running if _is_held(path) else stale).append(path.name.removeprefix(".").removesuffix(".lock"))
    if running:
        yield Finding(
            "WARN", "locks", f"running now: {', '.join(running)}", "wait for the end before you change data/"
        )
    if stale:
        message = f"left by processes that are gone: {', '.join(stale)}; they stop nobody"
        yield Finding("PASS", "locks", message)
    if RWLOCK.is_file():
        yield from _dvc_locks()
    if not running and not stale:
        yield Finding("PASS", "locks", "none")


def _dvc_locks() -> Iterator[Finding]:
    try:
        content = json.loads(RWLOCK.read_text(encoding="utf-8"))
        holders = [entry for entries in content.get("read", {}).values() for entry in entries]
        holders += list(content.get("write", {}).values())
        commands = {int(holder["pid"]): str(holder["cmd"]) for holder in holders}
    except (ValueError, KeyError, TypeError, AttributeError):
        yield Finding("FAIL", "dvc locks", f"{RWLOCK} is damaged, and DVC refuses to run", f"`rm {RWLOCK}`")
        return
    alive = [f"{pid} ({command})" for pid, command in commands.items() if _is_alive(pid)]
    gone = [str(pid) for pid in commands if not _is_alive(pid)]
    if alive:
        yield Finding("WARN", "dvc locks", f"DVC runs: process {', '.join(alive)}", "wait for it")
    if gone:
        message = f"{RWLOCK} names processes that are gone ({', '.join(gone)}); DVC removes them itself"
        yield Finding("PASS", "dvc locks", message)


def drafts(_params: Params | None) -> Iterator[Finding]:
    """What a killed process was writing; its stage removes it when it runs again."""
    drafts = sorted({path for name in _DRAFTS for path in artifacts.DATA.rglob(name)})
    if not drafts:
        yield Finding("PASS", "drafts", "none")
        return
    if any(_is_held(path) for path in artifacts.lock_path("*").parent.glob(".*.lock")):
        yield Finding("PASS", "drafts", f"{len(drafts)}, of a stage that runs now")
        return
    names = ", ".join(map(str, drafts[:5]))
    yield Finding(
        "WARN",
        "drafts",
        f"{len(drafts)} left by killed processes: {names}",
        "run the stage again, or remove them",
    )


def _is_held(lock: Path) -> bool:
    try:
        handle = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
