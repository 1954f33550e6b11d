"""Models pushed to a real S3 server, pulled into a fresh clone, damaged there and mended, as docs/remote.md says."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import s3fs

from histo_monai.models.checkpoint import load_model
from tests.folders import NewFolder
from tests.pipeline.object_store import Key, Store, object_store
from tests.pipeline.sharing import (
    DESCRIPTION,
    MODEL,
    READ_BY_EVALUATE,
    STUDENT,
    digests_in_folders,
    digests_of,
    md5,
)

Shell = Callable[..., str]

pytestmark = pytest.mark.slow


class Laboratory(NamedTuple):
    """An S3 server, a shell whose user has set nothing of Amazon's but what a test gives, and docs/remote.md."""

    store: Store
    shell: Shell
    credentials: Path
    page: str

    def run(self, command: str, cwd: Path, key: Key | None, fails: bool = False) -> str:
        """The output of a command that finds the credentials of `key`, or none, in its environment."""
        nobody = f"AWS_CONFIG_FILE=/nowhere AWS_SHARED_CREDENTIALS_FILE={self.credentials}"
        alone = "AWS_EC2_METADATA_DISABLED=true AWS_MAX_ATTEMPTS=1"
        variables = key.variables if key else ""
        return self.shell(f"export {nobody} {alone} {variables}; {command}", cwd, fails)

    def typed(self, *words: str, **values: str) -> str:
        """The one command of the page that holds all these words, as it would be typed here."""
        lines = [line.split("  #")[0].strip() for line in self.page.splitlines() if line.startswith("    ")]
        (command,) = [line for line in lines if all(word in line for word in words)]
        return self.filled(command, **values)

    def filled(self, text: str, **values: str) -> str:
        """The page's examples in place of which a user puts their own."""
        here = {"https://s3.example.org": self.store.endpoint, "rsp_moco": "rsp"}
        member = {"<key>": self.store.member.name, "<secret>": self.store.member.secret}
        for example, own in (here | member | values).items():
            text = text.replace(example, own)
        return text

    @property
    def objects(self) -> Any:
        """The server, as another client of S3 sees it."""
        key, secret = self.store.member
        return s3fs.S3FileSystem(endpoint_url=self.store.endpoint, key=key, secret=secret)


class Published(NamedTuple):
    """A repository whose results were pushed, and what its dvc.lock says of each file: its MD5."""

    folder: Path
    digests: dict[str, str]

    def object_of(self, path: str) -> str:
        """The object that holds the content of `path`."""
        digest = self.digests[path]
        return f"laboratory/histo_monai/files/md5/{digest[:2]}/{digest[2:]}"


@pytest.fixture(scope="module")
def laboratory(root: Path, shell: Shell, module_folder: NewFolder) -> Iterator[Laboratory]:
    folder = module_folder("s3")
    with object_store(folder) as store:
        yield Laboratory(store, shell, folder / "credentials", (root / "docs/remote.md").read_text())


@pytest.fixture(scope="module")
def published(finished: Any, laboratory: Laboratory, shell: Shell, module_folder: NewFolder) -> Published:
    """The finished clone's last commit and cache, its remote set up as the page says; what evaluate reads is pushed."""
    folder = module_folder("published")
    shell(f"git clone -q {finished.folder} .", folder)
    shell(f"dvc cache dir --local {finished.folder}/.dvc/cache", folder)
    section = laboratory.page.split("## Set up, once per repository: S3\n")[1]
    install, *commands = [line.strip() for line in section.split("\n\n")[1].splitlines()]
    assert "--editable '.[s3]'" in install
    assert commands[-1].startswith("git commit")
    laboratory.run(laboratory.filled("set -e\n" + "\n".join(commands)), folder, None)
    assert "files pushed" in laboratory.run(f"dvc push {READ_BY_EVALUATE}", folder, laboratory.store.member)
    return Published(folder, digests_of(folder))


@pytest.fixture
def fresh(published: Published, shell: Shell, tmp_path: Path) -> Path:
    """A clone of the published repository, and nothing else yet."""
    shell(f"git clone -q {published.folder} clone", tmp_path)
    return tmp_path / "clone"


@pytest.fixture(scope="module")
def pulled(published: Published, laboratory: Laboratory, shell: Shell, module_folder: NewFolder) -> Path:
    """A clone that has pulled what an evaluation reads, with the credentials at hand."""
    folder = module_folder("pulled")
    shell(f"git clone -q {published.folder} .", folder)
    output = laboratory.run(laboratory.typed("dvc pull code phantom"), folder, laboratory.store.member)
    assert MODEL in output
    return folder


@pytest.fixture(scope="module")
def visitor(published: Published, shell: Shell, module_folder: NewFolder) -> Path:
    """A clone with a file of its own to push, and all of the others' to pull."""
    folder = module_folder("visitor")
    shell(f"git clone -q {published.folder} . && echo mine > own.txt && dvc add own.txt", folder)
    return folder


def test_a_fresh_clone_pulls_the_bytes_that_an_evaluation_reads(pulled: Path, published: Published) -> None:
    """By which SSH's clone evaluates to the same bytes: `test_remote.py`."""
    files = [path for path in published.digests if (pulled / path).is_file()]
    assert {MODEL, DESCRIPTION} <= set(files)
    assert [path for path in files if md5(pulled / path) != published.digests[path]] == []
    cached = [path for path in pulled.glob(".dvc/cache/files/md5/*/*") if path.suffix != ".dir"]
    assert len(cached) > len(files)  # those in folders, too
    assert [path for path in cached if md5(path) != path.parent.name + path.name] == []
    load_model(pulled / MODEL)


def test_no_file_of_a_repository_and_nothing_in_its_history_holds_the_credentials(
    published: Published, pulled: Path, laboratory: Laboratory
) -> None:
    member = laboratory.store.member
    for folder in (published.folder, pulled):
        history = subprocess.run(
            ["git", "cat-file", "--batch-all-objects", "--batch"], cwd=folder, check=True, capture_output=True
        ).stdout
        files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        endpoint = laboratory.store.endpoint.encode()
        assert endpoint in history  # the search finds what is there
        assert endpoint in files[folder / ".dvc/config"]
        for secret in map(str.encode, member):
            assert secret not in history
            assert not [path for path, content in files.items() if secret in content]


def test_a_changed_byte_in_the_bucket_is_refused_by_its_name_until_it_is_mended(
    fresh: Path, published: Published, laboratory: Laboratory
) -> None:
    member, pull = laboratory.store.member, "dvc pull consistency@rsp-0-spatial_neighbors-0"
    objects = [published.object_of(path) for path in (MODEL, DESCRIPTION)]
    for name in objects:
        content = bytearray(laboratory.objects.cat(name))
        content[len(content) // 2] ^= 1
        laboratory.objects.pipe(name, bytes(content))
    output = laboratory.run(pull, fresh, member, fails=True)
    refused = output[output.index("Checkout failed for following targets") :]
    assert MODEL in refused
    assert DESCRIPTION in refused
    assert "curves.csv" not in refused
    assert not [path for path in (MODEL, DESCRIPTION) if (fresh / path).exists()]
    cached = {path.parent.name + path.name for path in fresh.glob(".dvc/cache/files/md5/*/*")}
    assert cached
    assert cached <= set(published.digests.values()) | digests_in_folders(fresh)
    assert "up to date" in laboratory.run(f"dvc push {READ_BY_EVALUATE}", published.folder, member)
    where = laboratory.typed("dvc get .", "--show-url")
    assert laboratory.run(where, published.folder, member).strip() == f"s3://{objects[0]}"
    for name in objects:
        laboratory.run(
            laboratory.typed("s3fs", ".rm(", **{"ad/21f8...": name.split("md5/")[1]}), fresh, member
        )
    pushed = laboratory.run(f"dvc push {READ_BY_EVALUATE}", published.folder, member)
    assert "2 files pushed" in pushed
    laboratory.run(pull, fresh, member)
    load_model(fresh / MODEL)
    assert md5(fresh / MODEL) == published.digests[MODEL]


def test_one_model_is_had_by_version_with_credentials_of_the_environment_alone(
    published: Published, laboratory: Laboratory, shell: Shell, tmp_path: Path
) -> None:
    member, bare = laboratory.store.member, tmp_path / "bare.git"
    shell(f"git clone -q --bare {published.folder} {bare} && git clone -q {bare} work", tmp_path)
    laboratory.run(laboratory.typed("git tag v1"), tmp_path / "work", None)
    laboratory.run(laboratory.typed("gto register"), tmp_path / "work", None)
    for words in (("dvc get <repository>", "--rev v1"), ("dvc artifacts get", "--rev v1.0.0")):
        command = laboratory.typed(*words, **{"<repository>": str(bare)})
        laboratory.run(command, tmp_path, member)
        load_model(tmp_path / "student/model.safetensors")
        assert md5(tmp_path / "student/model.safetensors") == published.digests[MODEL]
        shell("rm -r student", tmp_path)


def test_a_profile_does_in_place_of_the_variables(
    fresh: Path, published: Published, laboratory: Laboratory, shell: Shell
) -> None:
    key, secret = laboratory.store.member
    laboratory.credentials.write_text(
        f"[laboratory]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n"
    )
    command = "dvc remote modify --local storage profile laboratory"
    assert f"`{command}`" in laboratory.page
    shell(command, fresh)
    laboratory.run(f"dvc pull {DESCRIPTION}", fresh, None)
    assert md5(fresh / DESCRIPTION) == published.digests[DESCRIPTION]
    assert shell("git status --porcelain", fresh) == ""


def test_a_key_that_may_only_read_pulls_and_does_not_push(
    visitor: Path, published: Published, laboratory: Laboratory
) -> None:
    guest = laboratory.store.guest
    laboratory.run(f"dvc pull {STUDENT}/curves.csv", visitor, guest)
    assert md5(visitor / STUDENT / "curves.csv") == published.digests[f"{STUDENT}/curves.csv"]
    output = laboratory.run("dvc push own.txt", visitor, guest, fails=True)
    _is_reported_in_one_line("Access Denied", output, laboratory)


@pytest.mark.parametrize(
    ("kind", "words", "reason"),
    [
        ("none", "Unable to locate credentials", "Unable to locate credentials"),
        ("wrong secret", "Forbidden", "The request signature we calculated does not match"),
    ],
)
def test_without_credentials_or_with_wrong_ones_nothing_is_moved_and_one_line_states_the_reason(
    kind: str, words: str, reason: str, visitor: Path, laboratory: Laboratory
) -> None:
    member = laboratory.store.member
    keys = {"none": None, "wrong secret": Key(member.name, "guessed")}
    output = laboratory.run("dvc push own.txt", visitor, keys[kind], fails=True)
    _is_reported_in_one_line(words, output, laboratory)
    digest = md5(visitor / "own.txt")
    assert not laboratory.objects.exists(f"laboratory/histo_monai/files/md5/{digest[:2]}/{digest[2:]}")
    output = laboratory.run(f"dvc pull {DESCRIPTION}", visitor, keys[kind], fails=True)
    _is_reported_in_one_line(words, output, laboratory)
    assert not (visitor / DESCRIPTION).exists()
    command = laboratory.typed("s3fs", ".ls(")
    assert reason in laboratory.run(command, visitor, keys[kind], fails=True).splitlines()[-1]
    assert "['laboratory/histo_monai']" in laboratory.run(command, visitor, member)


@pytest.mark.parametrize(
    ("option", "push", "pull"),
    [
        ("url s3://no-such-bucket/path", "The specified bucket does not exist", "Checkout failed"),
        ("endpointurl http://127.0.0.1:1", *["Could not connect to the endpoint URL"] * 2),
    ],
)
def test_a_missing_bucket_and_a_server_that_does_not_answer_are_reported(
    option: str, push: str, pull: str, visitor: Path, laboratory: Laboratory, shell: Shell
) -> None:
    member, usual = laboratory.store.member, f"endpointurl {laboratory.store.endpoint}"
    shell("dvc remote add --local --force elsewhere s3://laboratory/histo_monai", visitor)
    for setting in (usual, option):
        shell(f"dvc remote modify --local elsewhere {setting}", visitor)
    output = laboratory.run("dvc push --remote elsewhere own.txt", visitor, member, fails=True)
    _is_reported_in_one_line(push, output, laboratory)
    output = laboratory.run(f"dvc pull --remote elsewhere {DESCRIPTION}", visitor, member, fails=True)
    _is_reported_in_one_line(pull, output, laboratory)
    assert not (visitor / DESCRIPTION).exists()


def _is_reported_in_one_line(words: str, output: str, laboratory: Laboratory) -> None:
    """DVC says it once, the page has it in its table, and no secret is printed."""
    lines = [line for line in output.splitlines() if line.startswith("ERROR: ") and words in line]
    assert len(lines) == 1, output
    assert f"`{words}`" in laboratory.page
    assert laboratory.store.member.secret not in output
