"""Models pushed to a real SSH server, pulled into a fresh clone, damaged there and mended: docs/remote.md."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from dvc.repo import Repo

from histo_monai.models.checkpoint import load_model
from tests.folders import NewFolder
from tests.pipeline.sharing import (
    DESCRIPTION,
    MODEL,
    READ_BY_EVALUATE,
    digests_in_folders,
    digests_of,
    evaluates_to_the_same_bytes,
    md5,
)

Shell = Callable[..., str]

pytestmark = pytest.mark.slow


class Published(NamedTuple):
    """A repository whose results were pushed, and what its dvc.lock says of each file: its MD5."""

    folder: Path
    digests: dict[str, str]
    server: Any

    def kept(self, path: str) -> Path:
        """The file in the remote that holds the content of `path`."""
        digest = self.digests[path]
        return self.server.storage / "files/md5" / digest[:2] / digest[2:]


@pytest.fixture(scope="module")
def published(finished: Any, server: Any, shell: Shell, module_folder: NewFolder) -> Published:
    """The finished clone's last commit and cache, its remote set up and pushed to."""
    folder = module_folder("published")
    shell(f"git clone -q {finished.folder} .", folder)
    shell(f"dvc cache dir --local {finished.folder}/.dvc/cache", folder)
    shell(f"dvc remote add -d storage ssh://{server.address}{server.storage}", folder)
    shell("dvc remote modify storage verify true && git commit -qam remote && git tag v1", folder)
    _use_key(folder, server, shell)
    output = shell("dvc push", folder)
    assert "files pushed" in output
    return Published(folder, digests_of(folder), server)


@pytest.fixture
def fresh(published: Published, shell: Shell, tmp_path: Path) -> Path:
    """A clone of the published repository that has the key to the remote, and nothing else yet."""
    shell(f"git clone -q {published.folder} clone", tmp_path)
    _use_key(tmp_path / "clone", published.server, shell)
    return tmp_path / "clone"


def _use_key(folder: Path, server: Any, shell: Shell) -> None:
    shell(f"dvc remote modify --local storage keyfile {server.keyfile}", folder)


def _flip_one_byte(path: Path) -> None:
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        old = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([old ^ 1]))


@pytest.fixture
def damaged(published: Published) -> Any:
    """In the remote, one byte of the student is another, and one of its description; mended afterwards."""
    kept = [published.kept(path) for path in (MODEL, DESCRIPTION)]
    whole = [path.read_bytes() for path in kept]
    for path in kept:
        _flip_one_byte(path)
    yield kept
    for path, content in zip(kept, whole, strict=True):
        path.write_bytes(content)


def test_a_fresh_clone_that_pulls_evaluates_to_the_same_bytes(
    fresh: Path, published: Published, shell: Shell
) -> None:
    output = shell(f"dvc pull {READ_BY_EVALUATE}", fresh)
    assert MODEL in output
    evaluates_to_the_same_bytes(fresh, published.digests, shell)


def test_a_changed_byte_in_the_remote_is_refused_by_its_name_until_it_is_mended(
    fresh: Path, published: Published, damaged: list[Path], shell: Shell
) -> None:
    output = shell("dvc pull consistency@rsp-0-spatial_neighbors-0", fresh, fails=True)
    refused = output[output.index("Checkout failed for following targets") :]
    assert MODEL in refused
    assert DESCRIPTION in refused
    assert "curves.csv" not in refused
    assert not [
        path for path in fresh.glob("data/models/rsp-0-spatial_neighbors-0/student/*") if "model" in path.name
    ]
    cached = {path.parent.name + path.name for path in fresh.glob(".dvc/cache/files/md5/*/*")}
    assert cached
    assert cached <= set(published.digests.values()) | digests_in_folders(fresh)
    assert not cached & {published.digests[MODEL], published.digests[DESCRIPTION]}
    assert "up to date" in shell(
        "dvc push", published.folder
    )  # DVC sees names only: to push again mends nothing
    for path in damaged:
        path.unlink()
    assert "2 files pushed" in shell("dvc push", published.folder)
    shell("dvc pull consistency@rsp-0-spatial_neighbors-0", fresh)
    load_model(fresh / MODEL)
    assert md5(fresh / MODEL) == published.digests[MODEL]


def test_what_dvc_does_not_verify_is_refused_when_it_is_loaded_and_can_be_mended(
    fresh: Path, published: Published, damaged: list[Path], shell: Shell
) -> None:
    shell("dvc remote modify --local storage verify false", fresh)
    shell("dvc pull consistency@rsp-0-spatial_neighbors-0", fresh)
    with pytest.raises(ValueError, match=r"student/model\.json: .*(remove both files|SHA-256 differs)"):
        load_model(fresh / MODEL)
    _flip_one_byte(damaged[1])
    (fresh / DESCRIPTION).write_bytes(damaged[1].read_bytes())
    with pytest.raises(ValueError, match=r"student/model\.safetensors: SHA-256 differs from model\.json"):
        load_model(fresh / MODEL)
    _flip_one_byte(damaged[0])
    shell("dvc remote modify --local storage verify true", fresh)
    shell(f"rm {MODEL} {DESCRIPTION}", fresh)
    shell("chmod -R u+w .dvc/cache/files && find .dvc/cache/files -type f -exec touch {} +", fresh)
    shell("dvc pull consistency@rsp-0-spatial_neighbors-0", fresh)
    load_model(fresh / MODEL)
    assert md5(fresh / MODEL) == published.digests[MODEL]


def test_one_model_is_had_by_version(published: Published, shell: Shell, tmp_path: Path) -> None:
    work, bare = tmp_path / "work", tmp_path / "bare.git"
    shell(f"git clone -q {published.folder} work", tmp_path)
    shell("gto register student --version v1.0.0", work)
    lock = work / "dvc.lock"
    another = published.digests[MODEL.replace("rsp", "random")]  # a second version, as if trained anew
    lock.write_text(lock.read_text().replace(published.digests[MODEL], another))
    shell("git commit -qam 'another student' && git tag v2", work)
    shell("gto register student --version v2.0.0", work)
    shell(f"git clone -q --bare work {bare}", tmp_path)
    key = f"--remote-config keyfile={published.server.keyfile}"
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    shell(f"dvc get {bare} data/models/rsp-0-spatial_neighbors-0/student --rev v1 -o first {key}", tmp_path)
    shell(f"dvc artifacts get {bare} student --rev v1.0.0 -o second {key}", tmp_path)
    shell(f"dvc artifacts get {bare} student -o third {key}", tmp_path)
    for folder in (first, second):
        load_model(folder / "model.safetensors")
        assert md5(folder / "model.safetensors") == published.digests[MODEL]
    assert md5(third / "model.safetensors") == another
    with pytest.raises(ValueError, match="SHA-256 differs"):  # of the description of the first version
        load_model(third / "model.safetensors")


def test_every_artifact_is_a_folder_with_a_whole_model(published: Published) -> None:
    with Repo(str(published.folder)) as repo:
        (artifacts,) = repo.artifacts.read().values()
    assert artifacts
    for name, artifact in artifacts.items():
        files = {Path(path) for path in published.digests if Path(path).parent == Path(artifact.path)}
        tensors = [path for path in files if path.suffix == ".safetensors"]
        assert len(tensors) == 1, name
        assert tensors[0].with_suffix(".json") in files, name


def test_a_remote_that_does_not_answer_is_reported_and_leaves_nothing(
    fresh: Path, published: Published, shell: Shell
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    shell(f"dvc remote modify --local storage url ssh://127.0.0.1:{port}/nowhere", fresh)
    output = shell("dvc pull consistency@rsp-0-spatial_neighbors-0", fresh, fails=True)
    assert "failed to connect to ssh" in output
    assert str(port) in output
    assert not (fresh / "data/models").exists()
