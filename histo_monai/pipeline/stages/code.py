"""Stage `code`: package -> data/code/<stage>.json, digests of the files that each stage uses.

A changed file reruns only the stages that use it, dvc.yaml names one file instead of a hundred, and a project needs no
copy of the package. Methods and datasets have their own files, which dvc.yaml names:
`data/code/pretraining/${item.method}.json` and `data/code/semisupervised/${item.student}.json` hold a method's file,
which may be in `own_methods/`, and its imports. `data/code/readers/${dataset}` holds the files of the dataset's
folder; their further imports are in the stage's file.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from histo_monai.data.readers.registry import DATASETS
from histo_monai.finetuning.heads import HEADS
from histo_monai.pipeline import paths
from histo_monai.pipeline.imports import COMMAND_LINE, PACKAGE, Source, imported_files, stage_module
from histo_monai.pretraining import PRETEXTS
from histo_monai.semisupervised import METHODS
from histo_monai.utils.storage import file_sha256, whole_folder, write_json

_LOG = logging.getLogger(__name__)

DATASET_FOLDER, SIMULATED = "data/readers", "data/simulated/datasets/dataset.py"
METHOD_FOLDERS = {"pretraining": PRETEXTS, "semisupervised": METHODS}
"""Packages with one method per file; stages that import a package's `protocol.py` load its methods by name."""


def run() -> None:
    """Write data/code: path -> SHA-256 per stage, method and file of a dataset.

    A file without affected code is not changed.
    """
    known: dict[str, Source] = {}
    digest_of = functools.cache(file_sha256)

    def write(draft: Path, files: Iterable[Path]) -> None:
        draft.parent.mkdir(parents=True, exist_ok=True)
        write_json(draft, {_name(file): digest_of(file) for file in files})

    with whole_folder(paths.CODE) as draft:
        for path in sorted((PACKAGE / "pipeline" / "stages").glob("[!_]*.py")):
            if path != Path(__file__):
                write(draft / f"{path.stem}.json", code_of(path.stem, known))
        for package, methods in METHOD_FOLDERS.items():
            for name in methods:
                files = set(imported_files([methods.module(name)], known))
                write(draft / package / f"{name}.json", sorted(files | _heads(files, known)))
        for folder in _dataset_folders():
            for path in _files(folder):
                place = path.relative_to(PACKAGE / "data")
                write(draft / place.with_name(f"{path.name.removesuffix('.py')}.json"), [path])
    _LOG.info("code: output=%s", paths.CODE)


def code_of(stage: str, known: dict[str, Source] | None = None) -> list[Path]:
    """Package files of a stage, without those of methods and datasets.

    Args:
        known: as in `imported_files`.
    """
    known = {} if known is None else known
    files = set(imported_files([COMMAND_LINE, stage_module(stage)], known))
    if PACKAGE / DATASET_FOLDER / "protocol.py" in files:
        for folder in _dataset_folders():
            files |= {path for path in imported_files(_modules(folder), known) if folder not in path.parents}
    if PACKAGE / SIMULATED in files:
        simulated = [dataset.phantom.partition(":")[0] for dataset in DATASETS.values() if dataset.phantom]
        files.update(imported_files(simulated, known))
    return sorted(files | _heads(files, known))


def _heads(files: set[Path], known: dict[str, Source]) -> set[Path]:
    """Files of the heads on frozen features, which the selection of a head loads by name."""
    if PACKAGE / "finetuning/heads/selection.py" not in files:
        return set()
    return set(imported_files((HEADS.module(name) for name in HEADS), known))


def _dataset_folders() -> list[Path]:
    return [PACKAGE / DATASET_FOLDER / name for name in DATASETS]


def _files(folder: Path) -> list[Path]:
    """Code and data files of a dataset."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")


def _modules(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        yield _name(path).removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def _name(path: Path) -> str:
    return (path.relative_to(PACKAGE.parent) if path.is_absolute() else path).as_posix()
