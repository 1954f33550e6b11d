"""DVC's default remote: is it set, does its server answer, and does git hold no secret of it?"""

from __future__ import annotations

import configparser
import importlib.util
import os
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from histo_monai.pipeline.doctor.finding import Finding
from histo_monai.pipeline.params import Params

DVC = Path(".dvc")
TIMEOUT_S = 3.0
_HOSTS = {"s3": "s3.amazonaws.com", "gs": "storage.googleapis.com"}
_PORTS = {"ssh": 22, "http": 80, "https": 443}
_SEPARATE = ("ssh", "s3", "gs", "azure")
"""Schemes whose part of DVC is an extra of it, and a module `dvc_<scheme>`."""
_SECRETS = {
    *("secret_access_key", "session_token", "sse_customer_key"),  # S3
    *("account_key", "sas_token", "connection_string", "client_secret"),  # Azure
    *("password", "passphrase", "token"),
}


def default_remote(_params: Params | None) -> Iterator[Finding]:
    """The default remote is set, its server answers, and no secret is committed; DVC reports no usage to anybody."""
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
    yield from _committed_secrets()
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
    yield _look_at(name, dict(config[section]))


def _look_at(name: str, options: Mapping[str, str]) -> Finding:
    url = options.get("url", "")
    scheme = urlsplit(url).scheme
    if scheme in _SEPARATE and importlib.util.find_spec(f"dvc_{scheme}") is None:
        message = f"{name} ({url}): this DVC was installed without {scheme}"
        return Finding("WARN", "dvc remote", message, f"`pip install 'dvc[{scheme}]'`")
    try:
        _reach(url, options.get("endpointurl", ""), options.get("port", ""))
    except OSError as error:
        reason = error.strerror or str(error)
        return Finding(
            "WARN", "dvc remote", f"{name} ({url}) does not answer: {reason}", "network, VPN, mount?"
        )
    return Finding("PASS", "dvc remote", f"{name} ({url}) answers; the credentials were not tried")


def _committed_secrets() -> Iterator[Finding]:
    committed = _parse(_text(DVC / "config"))
    for section in committed.sections():
        kind, _, quoted = section.partition(" ")
        name = quoted.strip('"')
        for option in sorted(_SECRETS & set(committed[section])) if kind == "remote" else ():
            message = f"{option} of {name} stands in {DVC / 'config'}, which git holds"
            remedy = (
                f"`dvc remote modify --unset {name} {option}`, and a new one from the provider: "
                "what was committed once stays readable; see docs/remote.md"
            )
            yield Finding("FAIL", "dvc secrets", message, remedy)


def _dvc_config() -> configparser.ConfigParser:
    everywhere = [Path("/etc/xdg"), Path(os.environ.get("XDG_CONFIG_HOME", Path.home() / ".config"))]
    paths = (*(place / "dvc/config" for place in everywhere), DVC / "config", DVC / "config.local")
    return _parse("\n".join(map(_text, paths)))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _parse(text: str) -> configparser.ConfigParser:
    """DVC indents options and quotes names of sections."""
    config = configparser.ConfigParser(interpolation=None, strict=False)
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
