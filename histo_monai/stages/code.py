"""Stage `code`: the package -> data/code/<stage>.json, the digest of every file that a stage runs.

A stage depends on its file here, so that a change of code runs again what it reaches and nothing else, and DVC keeps
one line for it instead of a hundred. What a part alone needs stands in its folder, which dvc.yaml names where the part
is used: `histo_monai/pretext/${item.method}`, `histo_monai/semisupervised/${item.student}`,
`histo_monai/datasets/${dataset}`. What such a folder imports from elsewhere is here, for all parts together.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
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
    """Write data/code: for each stage path -> SHA-256. A file keeps its bytes where no change reaches its stage."""
    with whole_folder(artifacts.CODE) as draft:
        for path in sorted((PACKAGE / "stages").glob("[!_]*.py")):
            if path != Path(__file__):
                digests = {_name(file): file_sha256(file) for file in code_of(path.stem)}
                write_json(draft / f"{path.stem}.json", digests)
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


def _modules(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        yield _name(path).removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def _name(path: Path) -> str:
    return path.relative_to(PACKAGE.parent).as_posix()
