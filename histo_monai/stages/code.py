"""Stage `code`: the package -> data/code/<stage>.json, the digest of every file that a stage runs.

A stage depends on its file here, so that a change of code runs again what it reaches and nothing else, DVC keeps one
line for it instead of a hundred, and a project needs no copy of the package. Files of a part's own folder are digested
apart, and dvc.yaml names them where the part is used: `data/code/pretext/${item.method}`,
`data/code/semisupervised/${item.student}`, `data/code/datasets/${dataset}`. What such a folder imports from elsewhere
is in the stage's file, for all parts together.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from histo_monai import artifacts
from histo_monai.datasets.registry import DATASETS
from histo_monai.imports import COMMAND_LINE, PACKAGE, imported_files, stage_module
from histo_monai.storage import file_sha256, whole_folder, write_json

_LOG = logging.getLogger(__name__)

DATASET_FOLDER, COHORT = "datasets", "phantom/cohorts/cohort.py"
PART_FOLDERS = ("pretext", "semisupervised", DATASET_FOLDER)
"""Rooms with a folder for each part; a stage that imports a room's `protocol.py` loads parts of it by name."""


def run() -> None:
    """Write data/code: for each stage path -> SHA-256, and for each part one such file beside each of its own.

    A file keeps its bytes where no change reaches its stage or part.
    """
    with whole_folder(artifacts.CODE) as draft:
        for path in sorted((PACKAGE / "stages").glob("[!_]*.py")):
            if path != Path(__file__):
                write_json(draft / f"{path.stem}.json", _digests(code_of(path.stem)))
        for folder in (folder for room in PART_FOLDERS for folder in _parts(room)):
            for path in _files(folder):
                digest = draft / path.relative_to(PACKAGE).with_name(f"{path.name.removesuffix('.py')}.json")
                digest.parent.mkdir(parents=True, exist_ok=True)
                write_json(digest, _digests([path]))
    _LOG.info("%s written", artifacts.CODE)


def code_of(stage: str) -> list[Path]:
    """Files of the package that a stage runs, whichever parts are in use, but for what lies in the folders of parts."""
    files = set(imported_files([COMMAND_LINE, stage_module(stage)]))
    for room in PART_FOLDERS:
        if PACKAGE / room / "protocol.py" in files:
            for folder in _parts(room):
                files |= {path for path in imported_files(_modules(folder)) if folder not in path.parents}
    if PACKAGE / COHORT in files:
        simulated = [dataset.phantom.partition(":")[0] for dataset in DATASETS.values() if dataset.phantom]
        files.update(imported_files(simulated))
    return sorted(files)


def _parts(room: str) -> list[Path]:
    if room == DATASET_FOLDER:
        return [PACKAGE / room / name for name in DATASETS]
    return sorted(path.parent for path in (PACKAGE / room).glob("*/__init__.py"))


def _files(folder: Path) -> list[Path]:
    """Of a part: its code, and what lies beside it."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")


def _digests(files: Iterable[Path]) -> dict[str, str]:
    return {_name(file): file_sha256(file) for file in files}


def _modules(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        yield _name(path).removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def _name(path: Path) -> str:
    return path.relative_to(PACKAGE.parent).as_posix()
