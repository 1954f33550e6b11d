from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from histo_monai.reports.site import vendor
from histo_monai.reports.site.vendor import LIBRARIES, fetch, missing


def _package(**files: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as packed:
        for name, text in files.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(text)
            packed.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


def test_a_package_that_is_not_the_expected_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vendor, "_by_npm", lambda library: _package(evil="alert(1)"))
    monkeypatch.setattr(vendor, "_by_url", lambda library: _package(evil="alert(1)"))
    with pytest.raises(OSError, match=r"openseadragon .*another package than expected"):
        fetch(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert len(missing(tmp_path)) == 2 * len(LIBRARIES)


def test_what_is_there_is_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in LIBRARIES:
        for name in library.files.values():
            (tmp_path / name).write_text("here")
    monkeypatch.setattr(vendor, "_by_npm", None)
    monkeypatch.setattr(vendor, "_by_url", None)
    fetch(tmp_path)
    assert missing(tmp_path) == []


def test_a_registry_that_cannot_be_reached_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendor.shutil, "which", lambda name: None)
    monkeypatch.setattr(vendor, "REGISTRY", "http://127.0.0.1:1")
    with pytest.raises(OSError, match="refused"):
        fetch(tmp_path)


def test_the_libraries_of_this_installation_are_whole() -> None:
    assert missing() == []
