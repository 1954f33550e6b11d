"""The project: params, the file of weights, DVC's lock file and remote, and what killed processes have left."""

from __future__ import annotations

import configparser
import fcntl
import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from histo_monai import artifacts
from histo_monai.checkup.finding import Finding
from histo_monai.errors import InputError
from histo_monai.networks.start import EncoderStart
from histo_monai.params import Params, load_params

LOCK_FILE, DVC, RWLOCK = Path("dvc.lock"), Path(".dvc"), Path(".dvc/tmp/rwlock")
TIMEOUT_S = 3.0
_DRAFTS = (".*.draft", ".*.draft.*", ".*.before")
_HOSTS = {"s3": "s3.amazonaws.com", "gs": "storage.googleapis.com"}
_PORTS = {"ssh": 22, "http": 80, "https": 443}
_MEND_LOCK = (
    "`git checkout dvc.lock`, or `rm dvc.lock` where it was never committed, then `dvc repro`: what was run already "
    "comes from the run cache"
)


def params_file(_params: Params | None) -> Iterator[Finding]:
    """It can be read, and every value is one that a stage can use."""
    if not artifacts.PARAMS.is_file():
        yield Finding("WARN", "params.yaml", "not here", "run from the project's root")
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


def remote(_params: Params | None) -> Iterator[Finding]:
    """The default remote is set and its server answers; DVC reports no usage to anybody."""
    if not DVC.is_dir():
        return
    config = _dvc_config()
    if config.get("core", "analytics", fallback="true").lower() != "false":
        yield Finding(
            "WARN",
            "dvc analytics",
            "DVC may report its use to its makers",
            "`dvc config core.analytics false`",
        )
    name = config.get("core", "remote", fallback="")
    section = f'remote "{name}"'
    if not name or not config.has_section(section):
        yield Finding(
            "WARN",
            "dvc remote",
            "none: models and data lie on this disk only",
            "`dvc remote add -d storage <url>`, see docs/remote.md",
        )
        return
    url = config.get(section, "url", fallback="")
    try:
        _reach(url, config.get(section, "endpointurl", fallback=""), config.get(section, "port", fallback=""))
    except OSError as error:
        reason = error.strerror or str(error)
        yield Finding(
            "WARN", "dvc remote", f"{name} ({url}) does not answer: {reason}", "network, VPN, mount?"
        )
        return
    yield Finding("PASS", "dvc remote", f"{name} ({url}) answers; the credentials were not tried")


def _dvc_config() -> configparser.ConfigParser:
    config = configparser.ConfigParser(interpolation=None, strict=False)
    text = ""
    everywhere = [Path("/etc/xdg"), Path(os.environ.get("XDG_CONFIG_HOME", Path.home() / ".config"))]
    for path in (*(place / "dvc/config" for place in everywhere), DVC / "config", DVC / "config.local"):
        text += path.read_text(encoding="utf-8") + "\n" if path.is_file() else ""
    config.read_string(re.sub(r"^\['(.*)'\]", r"[\1]", re.sub(r"^[ \t]+", "", text, flags=re.M), flags=re.M))
    return config


def _reach(url: str, endpoint: str, port: str) -> None:
    """Connect to the server of a url, or look for its folder.

    Raises:
        OSError: It does not answer in time, or is not there.
    """
    parts = urlsplit(endpoint or url)
    if parts.scheme in ("", "file"):
        place = DVC / parts.path  # DVC counts from its own folder.
        if not place.exists():
            raise FileNotFoundError(2, "no such folder")
        return
    host = _HOSTS.get(parts.scheme) or parts.hostname
    if parts.scheme == "azure":
        host = "blob.core.windows.net"
    number = parts.port or (int(port) if port.isdecimal() else _PORTS.get(parts.scheme, 443))
    socket.create_connection((str(host), number), timeout=TIMEOUT_S).close()


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
