"""The files that each stage imports, written among the `deps` of dvc.yaml: `python -m tests.dvc_deps`, or `make deps`.

Only lines that name code are replaced, each by a file, or by a folder all of whose modules are imported; data, comments
and everything else stay as they are. What a method of pretraining alone needs lies in its folder, which stands there as
`histo_monai/pretext/${item.method}`, and a semi-supervised method's in `histo_monai/semisupervised/${item.student}`.
What reads a dataset lies in its folder, `histo_monai/datasets/${dataset}` and `${corpus}`; its object, `dataset.py`
there, names what simulates it and the class that is mapped.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from histo_monai.datasets.registry import DATASETS
from histo_monai.imports import COMMAND_LINE, PACKAGE, imported_files, stage_module

DVC_YAML = Path("dvc.yaml")
PRETEXT = PACKAGE / "pretext"
FOLDER_OF_METHOD = "histo_monai/pretext/${item.method}"
FOLDER_OF_STUDENT = "histo_monai/semisupervised/${item.student}"
FOLDERS_OF_DATASETS = ("histo_monai/datasets/${corpus}", "histo_monai/datasets/${dataset}")
STAGES_OF_MAPS = (
    "heatmap",
    "aggregate",
    "compare",
)  # they ask the dataset's object for the class that is mapped
READERS = PACKAGE / "datasets"
SEMISUPERVISED = PACKAGE / "semisupervised"
_CODE = f"      - {PACKAGE.name}/"


def code_deps(stage: str) -> list[str]:
    """What dvc.yaml has to name of the package, for a stage."""
    files = set(imported_files([COMMAND_LINE, stage_module(stage)]))
    by_method, students, readers = (
        room / "protocol.py" in files for room in (PRETEXT, SEMISUPERVISED, READERS)
    )
    folders = [*(_folders(PRETEXT) if by_method else ()), *(_folders(SEMISUPERVISED) if students else ())]
    folders += [READERS / name for name in DATASETS] if readers else []
    for folder in folders:
        files.update(path for path in imported_files(_modules(folder)) if folder not in path.parents)
    cohorts = PACKAGE / "phantom" / "cohorts" / "cohort.py" in files
    if cohorts:
        simulated = [dataset.phantom.partition(":")[0] for dataset in DATASETS.values() if dataset.phantom]
        files.update(imported_files(simulated))
    names = {path.relative_to(PACKAGE.parent).as_posix() for path in files}
    names |= ({FOLDER_OF_METHOD} if by_method else set()) | ({FOLDER_OF_STUDENT} if students else set())
    names |= set(FOLDERS_OF_DATASETS) if readers else set()
    names |= {f"{folder}/dataset.py" for folder in FOLDERS_OF_DATASETS} if cohorts else set()
    names |= {f"{FOLDERS_OF_DATASETS[1]}/dataset.py"} if stage in STAGES_OF_MAPS else set()
    return sorted(_folded(names))


def _folded(names: set[str]) -> set[str]:
    """A folder whose every module is among the names stands for them: DVC keeps one line of it instead of many."""
    folders = {folder.parent for folder in PACKAGE.rglob("*.py") if folder.parent != PACKAGE}
    modules = {
        folder: {path.relative_to(PACKAGE.parent).as_posix() for path in folder.rglob("*.py")}
        for folder in folders
    }
    for folder in sorted(folders, key=lambda folder: len(folder.parts)):
        if modules[folder] <= names:
            names = names - modules[folder] | {folder.relative_to(PACKAGE.parent).as_posix()}
    return names


def _folders(room: Path) -> list[Path]:
    """A folder for each method."""
    return sorted(path.parent for path in room.glob("*/__init__.py"))


def _modules(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        yield ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def with_code_deps(text: str) -> str:
    """The text of dvc.yaml with the code that each stage depends on now."""
    lines, stage, section = [], "", ""
    for line in text.splitlines(keepends=True):
        if match := re.fullmatch(r"( {0,4})([\w-]+):.*\n?", line):
            if len(match[1]) == 2:
                stage = match[2]
            section = match[2] if len(match[1]) == 4 else ""
        if section == "deps" and line.startswith(_CODE):
            continue
        lines.append(line)
        if line.rstrip() == "    deps:":
            lines += [f"      - {name}\n" for name in code_deps(stage)]
    return "".join(lines)


if __name__ == "__main__":
    before = DVC_YAML.read_text(encoding="utf-8")
    after = with_code_deps(before)
    DVC_YAML.write_text(after, encoding="utf-8")
    print(f"{DVC_YAML}: {'written' if after != before else 'nothing to change'}", file=sys.stderr)
