"""Check of `doctor`: DVC's default remote exists, its server answers, and git holds none of its secrets."""

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
"""URL schemes that need a DVC extra, the module `dvc_<scheme>`."""
_SECRETS = {
    *("secret_access_key", "session_token", "sse_customer_key"),  # S3
    *("account_key", "sas_token", "connection_string", "client_secret"),  # Azure
    *("password", "passphrase", "token"),
}


def default_remote(_params: Params | None) -> Iterator[Finding]:
    """Check of default remote, server, committed secrets, and DVC's usage reports."""
    if not DVC.is_dir():
        return
    config = _dvc_config()
    if config.get("core", "analytics", fallback="true").lower() != "false":
        yield Finding(
            "WARN",
            "dvc analytics",
            "DVC may send usage reports to its developers",
            "`dvc config core.analytics false`",
        )
    yield from _committed_secrets()
    name = config.get("core", "remote", fallback="")
    section = f'remote "{name}"'
    if not name or not config.has_section(section):
        yield Finding(
            "WARN",
            "dvc remote",
            "none: models and data are on this disk only",
            "`dvc remote add -d storage <url>` (docs/remote.md)",
        )
        return
    yield _look_at(name, dict(config[section]))


def _look_at(name: str, options: Mapping[str, str]) -> Finding:
    url = options.get("url", "")
    shown, scheme = _without_password(url), urlsplit(url).scheme
    if scheme in _SEPARATE and importlib.util.find_spec(f"dvc_{scheme}") is None:
        message = f"{name} ({shown}): DVC is installed without {scheme}"
        return Finding("WARN", "dvc remote", message, f"`pip install 'dvc[{scheme}]'`")
    try:
        _reach(url, options.get("endpointurl", ""), options.get("port", ""))
    except OSError as error:
        reason = error.strerror or str(error)
        return Finding(
            "WARN",
            "dvc remote",
            f"{name} ({shown}) does not answer: {reason}",
            "check network, VPN and mounts",
        )
    return Finding("PASS", "dvc remote", f"{name} ({shown}) answers; credentials not checked")


def _without_password(url: str) -> str:
    password = urlsplit(url).password
    return url.replace(f":{password}@", "@", 1) if password else url


def _committed_secrets() -> Iterator[Finding]:
    committed = _parse(_text(DVC / "config"))
    for section in committed.sections():
        kind, _, quoted = section.partition(" ")
        name = quoted.strip('"')
        options = sorted(_SECRETS & set(committed[section])) if kind == "remote" else []
        if kind == "remote" and urlsplit(committed[section].get("url", "")).password:
            options.append("url")
        for option in options:
            message = f"{option} of {name} is in {DVC / 'config'}, which git tracks"
            command = f"--unset {name} {option}"
            if option == "url":  # a remote needs one
                message = f"a password in the {message}"
                command = f"{name} url {_without_password(committed[section]['url'])}"
            remedy = (
                f"`dvc remote modify {command}`, then get a new secret from the provider: "
                "a committed secret stays readable (docs/remote.md)"
            )
            yield Finding("FAIL", "dvc secrets", message, remedy)


def _dvc_config() -> configparser.ConfigParser:
    everywhere = [Path("/etc/xdg"), Path(os.environ.get("XDG_CONFIG_HOME", Path.home() / ".config"))]
    paths = (*(place / "dvc/config" for place in everywhere), DVC / "config", DVC / "config.local")
    return _parse("\n".join(map(_text, paths)))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _parse(text: str) -> configparser.ConfigParser:
    """DVC's config, which indents options and quotes section names."""
    config = configparser.ConfigParser(interpolation=None, strict=False)
    config.read_string(re.sub(r"^\['(.*)'\]", r"[\1]", re.sub(r"^[ \t]+", "", text, flags=re.M), flags=re.M))
    return config


def _reach(url: str, endpoint: str, port: str) -> None:
    """Connect to the server of a URL, or check its folder.

    Raises:
        OSError: no answer in time, or no folder.
    """
    parts = urlsplit(endpoint or url)
    if parts.scheme in ("", "file"):
        place = DVC / parts.path  # relative to DVC's folder
        if not place.exists():
            raise FileNotFoundError(2, "no such folder")
        return
    host = _HOSTS.get(parts.scheme) or parts.hostname
    if parts.scheme == "azure":
        host = "blob.core.windows.net"
    number = parts.port or (int(port) if port.isdecimal() else _PORTS.get(parts.scheme, 443))
    socket.create_connection((str(host), number), timeout=TIMEOUT_S).close()
