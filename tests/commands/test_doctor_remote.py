"""What `doctor` says of the DVC remote: set or not, answering or not, and secrets in git."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from histo_monai.pipeline.doctor.finding import Finding
from histo_monai.pipeline.doctor.remote import default_remote


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of DVC's, and a user who has set nothing at home."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def s3(project: Path) -> Iterator[str]:
    """The settings of a remote on an S3 server that takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"url = s3://bucket/path\n    endpointurl = http://127.0.0.1:{server.getsockname()[1]}"


def _only(findings: Iterable[Finding], status: str) -> Finding:
    (result,) = [finding for finding in findings if finding.status == status]
    return result


def _config(project: Path, remote: str = "", local: str = "") -> None:
    (project / ".dvc").mkdir(exist_ok=True)
    (project / ".dvc/config").write_text(f"[core]\n    analytics = false\n{_named(remote, core=True)}")
    (project / ".dvc/config.local").write_text(_named(local))


def _named(options: str, core: bool = False) -> str:
    if not options:
        return ""
    chosen = "    remote = storage\n" if core else ""
    return f"{chosen}['remote \"storage\"']\n    {options}\n"


def test_no_remote_is_a_warning_with_the_command_and_analytics_too(project: Path) -> None:
    assert list(default_remote(None)) == []  # no DVC project
    _config(project)
    assert "dvc remote add -d" in _only(default_remote(None), "WARN").remedy
    (project / ".dvc/config").write_text("")
    names = [finding.what for finding in default_remote(None)]
    assert names == ["dvc analytics", "dvc remote"]


def test_a_remote_that_answers_passes_and_one_that_does_not_is_named(project: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"ssh://127.0.0.1:{server.getsockname()[1]}/srv"
        _config(project, f"url = {url}")
        assert "answers" in _only(default_remote(None), "PASS").message
    assert f"storage ({url}) does not answer" in _only(default_remote(None), "WARN").message
    _config(project, "url = s3://x", f"url = {project / 'mount'}")
    assert "no such folder" in _only(default_remote(None), "WARN").message
    (project / "mount").mkdir()
    assert "answers" in _only(default_remote(None), "PASS").message


def test_a_remote_that_this_dvc_does_not_support_is_reported_with_what_to_install(
    project: Path, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "dvc_s3" else find(name))
    _config(project, s3)
    assert "pip install 'dvc[s3]'" in _only(default_remote(None), "WARN").remedy


def test_a_secret_that_would_be_committed_fails_by_its_name_and_one_of_your_own_does_not(
    project: Path, s3: str
) -> None:
    _config(project, f"{s3}\n    secret_access_key = open-sesame")
    finding = _only(default_remote(None), "FAIL")
    assert "secret_access_key of storage is in .dvc/config" in finding.message
    assert "dvc remote modify --unset storage secret_access_key" in finding.remedy
    assert "sesame" not in finding.line()
    _config(project, s3, "secret_access_key = open-sesame")
    assert "FAIL" not in {finding.status for finding in default_remote(None)}


def test_a_password_in_the_url_is_not_shown_and_fails_where_git_tracks_it(project: Path) -> None:
    url = "url = https://ci:open-sesame@127.0.0.1:9/dvc"
    _config(project, url)
    findings = list(default_remote(None))
    failed = _only(findings, "FAIL")
    assert "a password in the url of storage is in .dvc/config" in failed.message
    assert "`dvc remote modify storage url https://ci@127.0.0.1:9/dvc`" in failed.remedy
    assert "https://ci@127.0.0.1:9/dvc" in _only(findings, "WARN").message
    _config(project, "url = s3://x", url)
    own = list(default_remote(None))
    assert "FAIL" not in {finding.status for finding in own}
    assert not any("sesame" in finding.line() for finding in (*findings, *own))
