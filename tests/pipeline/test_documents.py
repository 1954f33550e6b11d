"""What the pages say of files and commands, held against a project that has run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from histo_monai.pipeline.paths import RAW
from histo_monai.pipeline.skip import REASON
from tests.documentation.commands import RUN_HERE, Command, commands, pages
from tests.folders import NewFolder
from tests.pipeline.conftest import Finished, Shell

pytestmark = pytest.mark.slow

METHOD = ("rsp_moco", "rsp")  # of the pages, and of the project
SLIDE = "data/phantom/camelyon16/testing/images/test_001.tif"
OUTLINES = "data/phantom/camelyon16/training/lesion_annotations/tumor_001.xml"
NEEDS = {
    "dvc fetch --run-cache": "dvc push --run-cache",
    "histo-monai import tumor_student --output imported": "python -m histo_monai export model.safetensors "
    "--bundle tumor_student",
}
"""Commands of a page that follow others, and these."""
WRITTEN = (
    *("maps", "features", "imported", "tumor_student", "tumor_in_qupath", "tumor_student.onnx"),
    "trunk.safetensors",
)


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return (root / "docs/files.md").read_text(encoding="utf-8")


def _names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def _files(page: str) -> list[re.Pattern[str]]:
    """Of every file that the page names in the first cell of a table."""
    cells = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| `data/")]
    return [_pattern(name) for cell in cells for name in _names(cell)]


def _pattern(name: str) -> re.Pattern[str]:
    """`<anything>` and `*` stand for part of a name, `**` for any folders."""
    parts = re.split(r"(<[^>]+>|\*\*/|\*\*|\*)", name)
    signs = {"**/": "(.*/)?", "**": ".*", "*": "[^/]*"}
    return re.compile(
        "".join("[^/]+" if part.startswith("<") else signs.get(part, re.escape(part)) for part in parts)
    )


def _columns(page: str) -> Iterator[tuple[list[re.Pattern[str]], list[re.Pattern[str]]]]:
    """Files of each section about a table, and its columns."""
    for section in re.split(r"(?m)^#{2,3} ", page):
        heading, _, text = section.partition("\n")
        if heading.startswith("`"):
            rows = [line for line in text.splitlines() if line.startswith("| `")]
            columns = [_pattern(name) for row in rows for name in _names(row.split(" | ")[0])]
            assert all(len(row.strip("|").split(" | ")) == 3 for row in rows), heading
            yield [_pattern(name) for name in _names(heading)], columns


def test_every_file_below_data_stands_on_the_page_of_files(finished: Finished, page: str) -> None:
    patterns = _files(page)
    data = finished.folder / "data"
    files = [path.relative_to(finished.folder) for path in data.rglob("*") if path.is_file()]
    assert len(files) > 100
    pointers = {".gitignore", "README.md"}
    unknown = [str(path) for path in files if not any(one.fullmatch(str(path)) for one in patterns)]
    assert not [path for path in unknown if Path(path).name not in pointers and RAW not in Path(path).parents]


def test_every_column_of_every_table_stands_on_the_page_of_files(finished: Finished, page: str) -> None:
    tables = list(_columns(page))
    seen = 0
    for path in (finished.folder / "data").rglob("*.csv"):
        name = path.relative_to(finished.folder)
        if name.parts[1] == "phantom":
            continue
        columns = [
            column for files, of in tables if any(f.fullmatch(str(name)) for f in files) for column in of
        ]
        header = list(pd.read_csv(path, nrows=0).columns)
        if header == [REASON]:
            continue
        assert not [one for one in header if not any(column.fullmatch(one) for column in columns)], name
        seen += 1
    assert seen > 20


def _to_run() -> list[Command]:
    every = [command for path in pages() for command in commands(path)]
    here = [one for one in every if any(re.fullmatch(place, one.text) for place in RUN_HERE)]
    return list(
        {command.text.replace("histo-monai", "python -m histo_monai"): command for command in here}.values()
    )


@pytest.fixture(scope="module")
def project(finished: Finished, shell: Shell, module_folder: NewFolder) -> Path:
    """The finished project with what the pages take for granted: slides, outlines, a table, a remote."""
    folder = module_folder("documents") / "project"
    shutil.copytree(finished.folder, folder, symlinks=True, ignore=shutil.ignore_patterns("cache"))
    cache = finished.folder / ".dvc/cache"  # no file of it is ever written to
    shutil.copytree(cache, folder / ".dvc/cache", copy_function=os.link)
    for name in ("a.svs", "slide.svs", "other.tif"):
        (folder / name).symlink_to(folder / SLIDE)
    shutil.copy(folder / OUTLINES, folder / "outlines.xml")
    (folder / "slides.csv").write_text(f"path,mpp\n{SLIDE},1.0\n")
    for suffix in ("safetensors", "json"):
        shutil.copy(
            folder / f"data/models/rsp-0-spatial_neighbors-0/student/model.{suffix}",
            folder / f"model.{suffix}",
        )
    shell(f"dvc remote add -d here {folder.parent / 'remote'}", folder)
    return folder


@pytest.mark.parametrize("command", _to_run(), ids=str)
def test_a_command_of_the_pages_runs(command: Command, project: Path, shell: Shell) -> None:
    words = command.text.replace(*METHOD)
    arguments = shlex.split(words)
    for name in {*WRITTEN} & {*arguments}:
        if (project / name).exists():
            (shutil.rmtree if (project / name).is_dir() else Path.unlink)(project / name)
    if command.text in NEEDS:
        shell(NEEDS[command.text], project)
    shell(re.sub(r"^histo-monai ", "python -m histo_monai ", words), project)
