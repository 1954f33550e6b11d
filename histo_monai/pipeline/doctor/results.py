"""Checks of `verify`: files against seals and provenance records, offline."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from histo_monai.data.tables.patches import read_patches
from histo_monai.models.checkpoint import load_model
from histo_monai.pipeline import paths
from histo_monai.pipeline.doctor.finding import Finding
from histo_monai.pipeline.environment import code_version
from histo_monai.pipeline.params import load_params
from histo_monai.pipeline.provenance import FILES, RECORD_SHAPE, image_digest, package_versions, params_sha256
from histo_monai.utils.errors import InputError
from histo_monai.utils.files.csv_values import read_texts
from histo_monai.utils.storage import (
    RECORD_SEAL,
    InputFileError,
    file_sha256,
    identify_slide,
    opened,
    read_json,
)
from histo_monai.utils.storage.shapes import misfit

RECORDS = (paths.METRICS, "written.json", "*.map.json")
"""Names of sealed JSON records with the digests of files."""

_AGAIN = "run `dvc pull` or `dvc repro` again (docs/remote.md)"
_STALE = "`dvc repro`"
_SHOWN = 5


def verify_folder(folder: Path) -> list[Finding]:
    """Findings on every model and record in a folder; read-only, offline.

    Raises:
        InputError: the folder is missing or holds no checkable file.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: not found. Fix: name an existing folder")
    models = sorted(_visible(folder, "*.safetensors"))
    records = sorted({path for name in RECORDS for path in _visible(folder, name)})
    lost = [path for path in sorted(_visible(folder, "*.json")) if _is_lost(path)]
    if not models and not records and not lost:
        raise InputError(f"{folder}: no model, metrics.json or map. Fix: name a folder with results")
    findings = [_model(path) for path in models]
    findings += [Finding("FAIL", str(path), "its model is missing", _AGAIN) for path in lost]
    provenances = []
    for path in records:
        problems, provenance = _record(path)
        findings += problems
        provenances += [(provenance, _root(path, provenance))] if provenance else []
    return [*findings, *_compared_with_now(provenances)]


def _visible(folder: Path, name: str) -> Iterator[Path]:
    for path in folder.rglob(name):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


def _model(path: Path) -> Finding:
    try:
        _, description = load_model(path)
    except (InputError, OSError) as error:
        return Finding("FAIL", str(path), str(error).removeprefix(f"{path}: "))
    return Finding("PASS", str(path), f"sealed{_commit(description.get('provenance'))}")


def _is_lost(path: Path) -> bool:
    """Whether a JSON describes a missing model."""
    if path.with_suffix(".safetensors").is_file():
        return False
    with contextlib.suppress(InputFileError):
        return "description_sha256" in read_json(path, "", {})
    return False


@dataclass
class _Checked:
    """Result of comparing digests."""

    problems: list[Finding] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    num_right: int = 0

    def add(self, name: str, right: bool, what: Path, message: str, remedy: str) -> None:
        if right:
            self.num_right += 1
        else:
            self.problems.append(Finding("FAIL", str(what), f"{name}: {message}", remedy))


def _record(path: Path) -> tuple[list[Finding], dict[str, Any] | None]:
    """Findings on a record, and its provenance."""
    try:
        content = read_json(path, _AGAIN, {})
    except InputFileError as error:
        return [Finding("FAIL", str(path), error.problem.removeprefix(f"{path}: "), _AGAIN)], None
    record = opened(content, RECORD_SEAL)
    if record is None:
        why = "changed after writing (SHA-256 differs)" if RECORD_SEAL in content else "is not sealed"
        return [Finding("FAIL", str(path), why, _AGAIN)], None
    fault = misfit(record, RECORD_SHAPE)
    if fault:
        return [
            Finding("FAIL", str(path), f"sealed, but not in this project's format: {fault}", _AGAIN)
        ], None
    files, provenance = record[FILES], record.get("provenance", {})
    checked = _Checked()
    for name, digest in files.items():
        _check_file(checked, path, path.parent / name, digest)
    num_files = checked.num_right
    if provenance:
        _check_inputs(checked, path, provenance, _root(path, provenance), files)
    _check_map(checked, path, record)
    findings = list(checked.problems)
    if checked.missing:
        names = ", ".join(checked.missing[:_SHOWN]) + ", ..." * (len(checked.missing) > _SHOWN)
        findings.append(
            Finding("WARN", str(path), f"missing inputs, not compared: {len(checked.missing)} ({names})")
        )
    if path.name == paths.METRICS:
        findings += _unlisted(path, files)
    if not findings:
        message = f"{num_files} files unchanged, {checked.num_right - num_files} inputs unchanged"
        findings = [Finding("PASS", str(path), message + _commit(provenance))]
    return findings, provenance


def _check_file(checked: _Checked, record: Path, file: Path, digest: str) -> None:
    if not file.is_file():
        checked.problems.append(Finding("FAIL", str(file), f"missing, but listed in {record.name}", _AGAIN))
        return
    is_right = file_sha256(file) == digest
    checked.add(file.name, is_right, file, f"differs from {record.name} (SHA-256)", _AGAIN)


def _check_inputs(
    checked: _Checked, record: Path, provenance: Mapping[str, Any], root: Path, files: Mapping[str, str]
) -> None:
    inputs: Mapping[str, str] = provenance.get("inputs", {})
    for name, digest in inputs.items():
        if not (root / name).is_file():
            checked.missing.append(name)
        else:
            is_right = file_sha256(root / name) == digest
            checked.add(name, is_right, record, f"made from a different {name}", _STALE)
    tables = [root / name for name in inputs if name.endswith(".csv")]
    tables += [record.parent / name for name in files if name.endswith(".csv")]
    file_paths = _slides(tables) if provenance.get("slides") else {}
    for slide_id, digest in provenance.get("slides", {}).items():
        path = root / file_paths[slide_id] if slide_id in file_paths else None
        if path is None or not path.is_file():
            checked.missing.append(f"slide {slide_id}")
        else:
            is_right = identify_slide(path).sample_sha256 == digest
            checked.add(f"slide {slide_id}", is_right, record, f"made from a different {path}", _STALE)
    if provenance.get("images", {}).get("num_files"):
        _check_images(checked, record, provenance["images"], root)


def _check_images(checked: _Checked, record: Path, recorded: Mapping[str, Any], root: Path) -> None:
    table = record.with_name(paths.PATCHES_CSV.name).absolute()
    try:
        with contextlib.chdir(root):
            digest = image_digest(read_patches(table))
    except (OSError, InputError):
        checked.missing.append(f"{recorded['num_files']} images of patches")
        return
    name = f"{recorded['num_files']} images of patches"
    checked.add(name, digest == recorded, record, "at least one file has changed", _STALE)


def _check_map(checked: _Checked, path: Path, record: Mapping[str, Any]) -> None:
    """Check of a map against its slide, if the slide exists."""
    slide = record.get("slide")
    if slide is None:
        return
    try:
        now = identify_slide(Path(slide["path"])).sample_sha256
    except (OSError, ValueError, InputError):
        checked.missing.append(slide["path"])
        return
    right = now == slide["sample_sha256"]
    checked.add("slide", right, path, f"made from a different {slide['path']}", "map it again")


def _unlisted(record: Path, files: Mapping[str, str]) -> list[Finding]:
    """Finding on files in a stage's folder that the stage did not write; folders of other stages are excluded."""
    inner = {path.parent for path in record.parent.rglob(paths.METRICS)} - {record.parent}
    extra = [
        path.relative_to(record.parent).as_posix()
        for path in sorted(_visible(record.parent, "*"))
        if path != record and not any(folder in path.parents for folder in inner)
    ]
    names = [name for name in extra if name not in files and not name.endswith(".gitignore")]
    if not names:
        return []
    message = f"{len(names)} files are not listed in {record.name}: {', '.join(names[:_SHOWN])}"
    return [Finding("WARN", str(record.parent), message, "move these files; the stage deletes them")]


def _slides(tables: Iterable[Path]) -> dict[str, str]:
    """Slide paths by id, from the tables."""
    file_paths: dict[str, str] = {}
    for table in tables:
        with contextlib.suppress(OSError, ValueError):
            wanted = read_texts(table, ["slide_id", "path"]).drop_duplicates()
            file_paths |= {str(row.slide_id): str(row.path) for row in wanted.itertuples()}
    return file_paths


def _root(record: Path, provenance: Mapping[str, Any]) -> Path:
    """Project folder of a record: nearest parent folder with the record's inputs."""
    inputs = provenance.get("inputs", {})
    for place in record.absolute().parents:
        if (place / paths.PARAMS).is_file() or any((place / name).is_file() for name in inputs):
            return place
    return Path.cwd()


def _commit(provenance: Mapping[str, Any] | None) -> str:
    record = provenance or {}
    if not record.get("git_commit"):
        return ""
    return f", commit {record['git_commit'][:12]}" + " with local changes" * bool(record.get("git_dirty"))


def _compared_with_now(provenances: list[tuple[dict[str, Any], Path]]) -> list[Finding]:
    """Findings on code, params and packages: recorded against current versions."""
    if not provenances:
        return []
    packages, code = package_versions(), code_version().sha256
    num_code = sum(each["code_sha256"] != code for each, _ in provenances)
    of_root = {root: _params_of(root) for _, root in provenances}
    num_params = sum(each["params_sha256"] != of_root[root] for each, root in provenances if of_root[root])
    others = {
        f"{name} {version}"
        for each, _ in provenances
        for name, version in each["packages"].items()
        if packages.get(name) != version
    }
    total = len(provenances)
    return [
        _same_or("code", num_code, total, "made by different code"),
        _same_or(
            "params.yaml",
            num_params,
            total,
            "made with different params; `dvc status` lists stages to run again, if any",
        ),
        _same_or(
            "packages", len(others), total, f"made with different versions: {', '.join(sorted(others))}"
        ),
    ]


def _params_of(root: Path) -> str | None:
    try:
        return params_sha256(load_params(root / paths.PARAMS))
    except ValueError:
        return None


def _same_or(what: str, num: int, total: int, message: str) -> Finding:
    if not num:
        return Finding("PASS", what, f"equal to all {total} records")
    return Finding("WARN", what, message if what == "packages" else f"{num} of {total} records {message}")
