"""Provenance of results: code, params, inputs, package versions, and digests of outputs.

A record holds nothing that differs between two runs of one commit: no time, machine, user, or path outside the
project. An interrupted and resumed run therefore writes equal bytes.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd

from histo_monai import __version__
from histo_monai.data.tables.manifests import first_five
from histo_monai.pipeline import paths
from histo_monai.pipeline.environment import code_version
from histo_monai.pipeline.params import Params
from histo_monai.pipeline.paths import Run
from histo_monai.utils.errors import InputError
from histo_monai.utils.process.precision import asked_precision
from histo_monai.utils.roles import STUDENT
from histo_monai.utils.settings.own_methods import OWN_METHODS
from histo_monai.utils.settings.reader import as_tree
from histo_monai.utils.storage import (
    RECORD_SEAL,
    file_of,
    file_sha256,
    identify,
    identify_slide,
    read_json,
    sealed,
    write_json,
)
from histo_monai.utils.storage.shapes import COUNT, SHA256
from histo_monai.utils.storage.shapes import FILES as FILES_SHAPE

FILES = "files"
"""Record key of the file digests."""

PROVENANCE_SHAPE = {
    "git_commit": (str, None),
    "git_dirty": (bool, None),
    "code_sha256": str,
    "params_sha256": (str, None),
    "inputs": {str: SHA256},
    "slides": {str: SHA256},
    "images?": {"num_files": COUNT, "sha256": SHA256},
    "packages": {str: (str, None)},
    "precision?": str,
}
"""Shape of the result of `made_from`."""

RECORD_SHAPE = {
    FILES: FILES_SHAPE,
    "provenance?": PROVENANCE_SHAPE,
    "slide?": {"path": str, "size": COUNT, "mtime_ns": int, "sample_sha256": SHA256},
}
"""Shape of metrics.json and of the records of `utils.storage.outputs`."""

PACKAGES = (
    *("torch", "torchvision", "monai", "pytorch-ignite", "cucim", "openslide-python", "numpy", "pandas"),
    *(
        "scipy",
        "scikit-learn",
        "scikit-image",
        "opencv-python-headless",
        "pillow",
        "tifffile",
        "safetensors",
        "timm",
    ),
)
_CUCIM = ("cucim-cu13", "cucim-cu12", "cucim")  # one library, named by its CUDA version
_WITHOUT_IDS = (f"{paths.INDEX.as_posix()}/", f"{paths.DATA.as_posix()}/models/", f"{OWN_METHODS}/")
_THREADS = 8


def made_from(
    params: Params | None,
    files: Iterable[Path] = (),
    slides: Sequence[pd.DataFrame] = (),
    images: pd.DataFrame | None = None,
    *,
    as_indexed: bool = True,
) -> dict[str, Any]:
    """Provenance record of a stage, made before the stage reads.

    Args:
        params: None if no params were read; `params_sha256` is then None.
        files: tables, models and outlines, recorded by SHA-256.
        slides: tables of slides or patches; slides are recorded by id and a digest of samples
            (`storage.identify_slide`), as many have gigabytes.
        as_indexed: compare the slides with those of `data/index`.
        images: patch table; its whole images are recorded in one digest, as there may be 100,000.

    Returns:
        JSON record: `git_commit` (last change of code, params or pipeline), `git_dirty` (local changes to them), both
        None outside git; `code_sha256`; `params_sha256`; `inputs`, path -> SHA-256; `slides`, id -> digest; `images`;
        `packages`, name -> version, None if not installed; `precision`, if set.

    Raises:
        InputError: an input is missing, or a slide differs from the one in `data/index`.
        OSError: an input cannot be read.
    """
    version, precision = code_version(), asked_precision()
    file_paths = sorted(set(files))
    digests = _in_threads(_sha256, file_paths)
    of_slides = _slide_digests(slides)
    if as_indexed:
        _compare_with_index(of_slides)
    return {
        "git_commit": version.commit,
        "git_dirty": version.is_dirty,
        "code_sha256": version.sha256,
        "params_sha256": None if params is None else params_sha256(params),
        "inputs": dict(zip(map(portable, file_paths), digests, strict=True)),
        "slides": dict(sorted(zip(of_slides["slide_id"], of_slides["digest"], strict=True))),
        **({} if images is None else {"images": image_digest(images)}),
        "packages": package_versions(),
        **({"precision": precision} if precision else {}),
    }


def without_ids(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Provenance record of a model file, with the number and digest of slides instead of their ids."""
    inputs: dict[str, str] = {}
    named: dict[str, str] = dict(provenance["slides"])
    for path, digest in provenance["inputs"].items():
        (inputs if path.startswith(_WITHOUT_IDS) else named)[path] = digest
    digest = hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()
    return {**provenance, "inputs": inputs, "slides": {"num_files": len(named), "sha256": digest}}


def write_metrics(
    folder: Path,
    metrics: Mapping[str, Any],
    provenance: Mapping[str, Any],
    summary: Mapping[str, Any] | None = None,
) -> None:
    """Write summary.json (numbers for `dvc metrics show`) and metrics.json, the last files of a stage.

    metrics.json holds all metrics, the provenance, and the SHA-256 of every other file in the folder (`files`).

    Args:
        folder: holds all other files already.
        metrics: any JSON.
        summary: numbers; None writes no summary.json.
    """
    if summary is not None:
        write_json(folder / paths.SUMMARY, summary)
    record = {**metrics, "provenance": dict(provenance), FILES: output_digests(folder)}
    write_json(folder / paths.METRICS, sealed(record, RECORD_SEAL))


def output_digests(folder: Path) -> dict[str, str]:
    """Path in the folder -> SHA-256, for every file except metrics.json."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    file_paths = sorted(path for path in files if path != folder / paths.METRICS)
    digests = _in_threads(_sha256, file_paths)
    return {
        path.relative_to(folder).as_posix(): digest for path, digest in zip(file_paths, digests, strict=True)
    }


def check_slides(slides: Sequence[pd.DataFrame]) -> None:
    """Compare slides with those of `data/index`; missing slides are not checked.

    Raises:
        InputError: a slide has changed since indexing, so its patch positions are wrong; the message names up to five.
    """
    there = [table[[Path(path).exists() for path in table["path"]]] for table in slides]
    _compare_with_index(_slide_digests(there))


def _slide_digests(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """`path`, `digest` of samples and `content` (digest at indexing, or empty), by `slide_id`; last row per id."""
    parts = []
    for table in tables:
        rows = table[table["y"].notna()] if "y" in table else table
        known = rows.reindex(columns=["slide_id", "path", "content"], fill_value="")
        parts.append(known.drop_duplicates("slide_id", keep="last"))
    if not parts:
        return pd.DataFrame(columns=["slide_id", "path", "content", "digest"])
    slides = pd.concat(parts).drop_duplicates("slide_id", keep="last")
    file_paths = [Path(path) for path in slides["path"]]
    return slides.assign(digest=_in_threads(_slide_sha256, file_paths))


def _compare_with_index(slides: pd.DataFrame) -> None:
    path = paths.INDEX / paths.METRICS
    if slides.empty or not path.is_file():
        return
    record = read_json(path, "run `dvc repro index` again", {"provenance?": {"slides": {str: SHA256}}})
    recorded = record.get("provenance", {}).get("slides", {})
    before = pd.Series(recorded, dtype=str).reindex(slides["slide_id"])
    before = slides["content"].where(slides["content"] != "", before.to_numpy())
    odd = slides["path"][before.notna() & (before != slides["digest"])].tolist()
    if odd:
        raise InputError(
            f"{paths.INDEX}: {len(odd)} slides have changed since indexing: {first_five(odd)}. Fix: restore them, or "
            "run `dvc repro index`"
        )


def image_digest(patches: pd.DataFrame) -> dict[str, Any]:
    """Number of files with whole-image patches (a zip counts once), and one digest of all."""
    names = patches.loc[patches["y"].isna(), "path"].unique()
    files = sorted({file_of(Path(name)) for name in names})
    digest = hashlib.sha256()
    for path, of_file in zip(files, _in_threads(_sample_sha256, files), strict=True):
        digest.update(f"{portable(path)} {of_file}\n".encode())
    return {"num_files": len(files), "sha256": digest.hexdigest()}


def params_sha256(params: Params) -> str:
    """Digest of all values, independent of key order and comments."""
    return hashlib.sha256(json.dumps(as_tree(params), sort_keys=True).encode()).hexdigest()


def package_versions() -> dict[str, str | None]:
    """Package -> version; None if not installed."""
    versions: dict[str, str | None] = {"python": platform.python_version(), "histo_monai": __version__}
    for name in PACKAGES:
        known = (_version(each) for each in (_CUCIM if name == "cucim" else (name,)))
        versions[name] = next((version for version in known if version), None)
    return versions


def portable(path: Path) -> str:
    """Path relative to the project's root; the file name for paths outside it."""
    plain = paths.plain_path(path)
    here = Path.cwd()
    if plain.is_absolute() and plain.is_relative_to(here):
        plain = plain.relative_to(here)
    return plain.name if plain.is_absolute() or plain.parts[:1] == ("..",) else plain.as_posix()


@functools.cache  # reading versions takes longer than a stage on small data
def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _sample_sha256(path: Path) -> str:
    with _named(path):
        return identify(path).sample_sha256


def _slide_sha256(path: Path) -> str:
    with _named(path):
        return identify_slide(path).sample_sha256


def _sha256(path: Path) -> str:
    with _named(path):
        return file_sha256(path)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise InputError(
            f"{path}: not found. Fix: run its stage, `dvc pull`, or correct the path in the manifest"
        ) from None


def _in_threads(digest: Callable[[Path], str], file_paths: Sequence[Path]) -> list[str]:
    """Digests in the order of the paths, from several threads."""
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(digest, file_paths))


OF_DIAGNOSES = "positive_class"
"""Key of a model's description: the positive diagnosis of slides, if the model learned from diagnoses."""


def check_diagnoses(run: Run, params: Params) -> None:
    """Refuse a student that learned from diagnoses of another positive class: its stage does not depend on maps.

    Raises:
        InputError: names the model and the command.
    """
    path = run.models[STUDENT].with_suffix(".json")
    counted = read_json(path, "run its stage again", {f"{OF_DIAGNOSES}?": str}).get(
        OF_DIAGNOSES, params.positive_class
    )
    if counted != params.positive_class:
        raise InputError(
            f"{path}: learned from diagnoses of {counted!r}, but heatmap.{params.dataset}.positive_class is "
            f"{params.positive_class!r}. Fix: run `dvc repro --force --single-item consistency@{run.name}`"
        )
