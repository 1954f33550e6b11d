"""Check of `doctor`: free disk space against the run of params.yaml."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from histo_monai.pipeline import paths
from histo_monai.pipeline.doctor.finding import Finding
from histo_monai.pipeline.params import Params
from histo_monai.utils.files.csv_values import read_texts

MODEL_BYTES = 47_000_000
PHANTOM_BYTES_PER_PX = 0.5  # JPEG pyramid, measured on simulated slides
MAP_BYTES = 2_000_000  # per slide and model: scores, TIFF, overlay, GeoJSON
LOG_BYTES = 20_000_000  # TensorBoard, per method and seed
_CACHED = 2  # DVC's cache copies every output unless the disk supports reflinks


def space(params: Params | None) -> Iterator[Finding]:
    """Finding on free disk space, with the estimated need."""
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    if params is None:
        yield Finding("PASS", "disk", f"{free / 1e9:.1f} GB free")
        return
    need, parts = estimate(params)
    there = sum(folder_bytes(folder) for folder in (paths.DATA, Path(".dvc/cache")))
    left = max(0, need - there)
    message = (
        f"{free / 1e9:.1f} GB free; the run needs about {need / 1e9:.1f} GB ({parts}), "
        f"of which {min(need, there) / 1e9:.1f} GB exist"
    )
    if free < left:
        yield Finding(
            "FAIL", "disk", message, "free disk space, or run `dvc gc --workspace` to delete unused versions"
        )
    elif free < 2 * left:
        yield Finding("WARN", "disk", message, "free disk space before long runs or sweeps")
    else:
        yield Finding("PASS", "disk", message)


def estimate(params: Params) -> tuple[int, str]:
    """Estimated bytes of a run, DVC's cache included, and their composition in words."""
    section, num_runs = (
        params.phantom,
        len(params.pretraining_methods) * len(params.semisupervised_methods) * len(params.repeats),
    )
    slides = section.num_slides + section.num_test_slides
    simulated = 0
    if params.source == "phantom":
        simulated = int(slides * section.slide_side_px**2 * PHANTOM_BYTES_PER_PX)
        simulated += int(section.num_patches * (4 * params.patch_px) ** 2 * PHANTOM_BYTES_PER_PX)
    else:
        slides = _num_rows(paths.WHOLE_SLIDES_CSV)
    triples = itertools.product(
        params.pretraining_methods, params.pretraining_seeds, params.semisupervised_methods
    )
    num_mapped = sum(itertools.starmap(params.is_mapped_by, triples)) * len(params.training_seeds)
    num_models = len(params.pretraining_methods) * len(params.pretraining_seeds) + 2 * num_runs * (
        1 + params.cross_validation.num_folds
    )
    maps = num_mapped * 2 * slides * MAP_BYTES
    models = num_models * MODEL_BYTES
    # During a training: weights, best weights, optimizer state, teacher, and the draft of the next checkpoint.
    others = num_runs * LOG_BYTES + 10 * MODEL_BYTES
    parts = f"{num_models} models {_gb(models)}, slides {_gb(simulated)}, maps {_gb(maps)}, twice with DVC's cache; "
    parts += f"checkpoints and logs {_gb(others)}"
    return _CACHED * (simulated + models + maps) + others, parts


def folder_bytes(folder: Path) -> int:
    """Bytes of all files in a folder except data/raw; 0 without the folder."""
    total = 0
    for place, folders, files in os.walk(folder):
        if Path(place) == paths.DATA and "raw" in folders:
            folders.remove("raw")
        for name in files:
            path = Path(place, name)
            total += path.lstat().st_size if not path.is_symlink() else 0
    return total


def _num_rows(path: Path) -> int:
    return len(read_texts(path, ["slide_id"])) if path.is_file() else 0


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB"
