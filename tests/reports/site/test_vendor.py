from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from histo_monai.reports.site import vendor
from histo_monai.reports.site.vendor import LIBRARIES, fetch, found, missing


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
    folder = found()
    assert folder is not None
    assert missing(folder) == []


def test_a_copy_of_the_repository_takes_those_of_the_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy/histo_monai/reports/site"
    copy.mkdir(parents=True)
    monkeypatch.setattr(vendor, "HERE", copy)
    folder = found()
    assert folder is not None
    assert tmp_path not in folder.parents


@pytest.mark.parametrize("editable", [True, False])
def test_an_installed_package_is_found_where_it_lies(
    editable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Installed:
        """As importlib.metadata tells of it."""

        def locate_file(self, path: str) -> Path:
            return tmp_path / "site-packages" / path

        def read_text(self, name: str) -> str | None:
            url = (tmp_path / "a folder").as_uri()
            return json.dumps({"url": url, "dir_info": {"editable": True}}) if editable else None

    place = tmp_path / ("a folder" if editable else "site-packages") / "histo_monai/reports/site/vendored"
    place.mkdir(parents=True)
    for library in LIBRARIES:
        for name in library.files.values():
            (place / name).write_text("here")
    copy = tmp_path / "copy/histo_monai/reports/site"
    monkeypatch.setattr(vendor, "HERE", copy)
    monkeypatch.setattr(vendor.importlib.metadata, "distributions", lambda name: [Installed()])
    assert found() == place
