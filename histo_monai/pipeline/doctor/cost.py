"""Check of `doctor`: time and disk of the stage `features`, and time of a round of labels."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from histo_monai.data.features.store import StoredPrecision, patch_names
from histo_monai.data.features.tables import rows_by_file
from histo_monai.data.tables.columns import read_whole_slides
from histo_monai.data.tables.patches import read_patches
from histo_monai.data.tables.slide_classes import classes_to_learn
from histo_monai.data.tables.tasks import split_rows, task_classes
from histo_monai.models.batchnorm import has_batchnorm, patches_for_statistics
from histo_monai.models.encoder import Encoder
from histo_monai.pipeline import paths
from histo_monai.pipeline.context import schedule_of
from histo_monai.pipeline.doctor import reading
from histo_monai.pipeline.doctor.finding import Finding
from histo_monai.pipeline.doctor.machine import memory_free
from histo_monai.pipeline.doctor.speed import (
    Speed,
    encoding_speed,
    shaped_encoder,
    training_speed,
    with_values,
)
from histo_monai.pipeline.environment import Environment, read_environment
from histo_monai.pipeline.params import Params, needs_fold_models
from histo_monai.utils.errors import InputError
from histo_monai.utils.settings.recipe import LabelKind, label_kind
from histo_monai.wsi.inference.encoding import Encoding

FILE_BYTES = 6_000
"""Attributes and headers of a file of features."""
COUNTED_SLIDES = 3
"""Whole slides whose patches are counted; the others are estimated by the mean."""
COUNTING_S = 8.0
_COORDS_BYTES = 16
_CELL_BYTES = 20
"""Row, column and tissue fraction of a patch of a whole slide."""
_COPIES = 3
"""Of the weights in memory: two networks and gradients."""
_LONGEST_STEP_S = 8.0
"""Forward and backward pass of one patch, by which a training is still measured."""


def of_features(params: Params | None) -> Iterator[Finding]:
    """Findings on time and disk of features, measured on this machine, and on a round of labels."""
    if params is None:
        return
    try:
        environment = read_environment()
    except InputError:  # The check of the variables reports it.
        return
    name, side = params.encoder.name, params.patch_px
    try:
        encoder = shaped_encoder(params.encoder, side)
        need, (free, _) = _COPIES * _num_bytes(encoder), memory_free()
        if environment.device.type == "cpu" and need > free:
            short = (
                f"{name}: not measured; needs about {need / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB free"
            )
            yield Finding("WARN", "features", short, "use a machine with more memory, or a smaller encoder")
            return
        encoding, encoder = _encoding(params), with_values(encoder)
        cut = encoder if encoding.depths == (None,) else copy.deepcopy(encoder)
        ready = encoding.ready(cut, environment.device)
    except InputError as error:
        yield Finding("FAIL", "features", str(error))
        return
    environment.use_cpus()
    batch_size, device = params.evaluate.batch_size, environment.device
    side *= encoding.field
    speed = encoding_speed(ready, encoding, patch_px=side, batch_size=batch_size, device=device)
    message = (
        f"{name} on {device}: {float(f'{1000 * speed.seconds:.3g}'):g} s per 1,000 patches of {side} px "
        f"({speed.num_patches} measured)"
    )
    if not paths.PATCHES_CSV.is_file():
        yield Finding("PASS", "features", f"{message}; run `index` for the number of patches")
        return
    patches = read_patches(paths.PATCHES_CSV)
    rows = pd.concat([patches, read_patches(paths.UNLABELED_CSV)], ignore_index=True)
    num = patches_for_statistics(
        params.features.batchnorm_patches, has_weights=params.encoder.weights is not None
    )
    statistics = num if has_batchnorm(encoder) else 0
    amount = amount_of_features(params, rows, ready.num_features, statistics)
    del ready
    yield Finding("PASS", "features", f"{message}; {amount.described(speed)}")
    yield _round_of_labels(params, patches, encoder, speed, environment)


@dataclass(frozen=True)
class Amount:
    """What the stage `features` encodes and stores, over all encoders.

    Attributes:
        num_patches: distinct patches of tables and whole slides.
        num_encoded: patches that encoders compute, batch-norm statistics included.
        num_encoders: encoders.
        num_bytes: size of the files.
        uncounted: what the numbers lack or estimate, in words; empty for exact numbers.
    """

    num_patches: int
    num_encoded: int
    num_encoders: int
    num_bytes: int
    uncounted: str

    def minutes(self, speed: Speed) -> float:
        """Time of encoding in one process, min."""
        return self.num_encoded * speed.seconds / 60

    def described(self, speed: Speed) -> str:
        """For a finding."""
        return (
            f"{self.num_patches:,} patches, {_encoders(self.num_encoders)}: {self.minutes(speed):.1f} min, "
            f"{self.num_bytes / 1e6:.1f} MB" + (f" ({self.uncounted})" if self.uncounted else "")
        )


def amount_of_features(params: Params, rows: pd.DataFrame, num_features: int, statistics: int) -> Amount:
    """Patches and bytes of all encoders.

    Args:
        rows: of data/index/patches.csv and unlabeled.csv.
        num_features: D of the encoder at the depth of params.
        statistics: patches of batch-norm statistics, for each encoder.
    """
    section = params.features
    per_patch = num_features * _value_bytes(section.precision) * (1 + len(section.views)) + _COORDS_BYTES
    files = [patch_names(part["patch_id"].tolist()) for part in rows_by_file(rows).values()]
    of_tables = sum(len(names) * (per_patch + names.itemsize) + FILE_BYTES for names in files)
    num_rows = sum(map(len, files))
    encoders = [(method, seed) for method in params.pretraining_methods for seed in params.pretraining_seeds]
    on_slides = sum(params.learns_from_slides(*encoder) for encoder in encoders)
    slides = read_whole_slides(paths.WHOLE_SLIDES_CSV)
    if slides.empty or (
        classes_to_learn(slides)[1] and params.finetune.mode != "head"
    ):  # heads map from features
        on_slides = 0
    whole, uncounted = _patches_of_slides(params, slides) if on_slides else (0, "")
    names = int(slides["slide_id"].str.len().max()) + len("-000-000") if on_slides else 0
    of_slides = whole * (per_patch + _CELL_BYTES + names) + FILE_BYTES * len(slides)
    num_statistics = len(encoders) * min(statistics, num_rows + whole)
    return Amount(
        num_rows + whole,
        len(encoders) * num_rows + on_slides * whole + num_statistics,
        len(encoders),
        len(encoders) * of_tables + on_slides * of_slides,
        uncounted,
    )


def _patches_of_slides(params: Params, slides: pd.DataFrame) -> tuple[int, str]:
    """Patches of tissue of all whole slides, and how they were counted."""
    mpp = params.features.mpp or min(params.corpus_section.mpps)
    plan = {
        "stride_um": params.features.stride_um or params.patch_px * mpp,
        "tissue_mpp": params.index.tissue_mpp,
        "artefacts": params.index.artefacts,
        "min_tissue_fraction": params.heatmap.min_tissue_fraction,
    }
    spread = np.unique(np.linspace(0, len(slides) - 1, COUNTED_SLIDES).round().astype(int))
    jobs = [
        {"path": path, "mpp": None if np.isnan(mpp) else float(mpp), **plan}
        for path, mpp in slides.iloc[spread][["path", "mpp"]].itertuples(index=False, name=None)
    ]
    counts = [reply["num_patches"] for reply in reading.ask(jobs, COUNTING_S) if "num_patches" in reply]
    if not counts:
        return 0, f"without {len(slides)} whole slides, whose patches were not counted"
    if len(counts) == len(slides):
        return sum(counts), ""
    return round(
        float(np.mean(counts)) * len(slides)
    ), f"estimated from {len(counts)} of {len(slides)} slides"


def _round_of_labels(
    params: Params, patches: pd.DataFrame, encoder: Encoder, encoding: Speed, environment: Environment
) -> Finding:
    """Finding on what new labels of indexed patches compute again."""
    maps = "; maps of slides are computed again" if all(params.mapping) else ""
    mode = params.finetune.mode
    if mode == "head":
        return Finding("PASS", "round of labels", f"new labels encode no patch of data/index{maps}")
    if patches.empty:
        return Finding("PASS", "round of labels", "not estimated: no patch is labeled yet")
    if 3 * encoding.seconds > _LONGEST_STEP_S:  # A backward pass takes about two forward passes.
        slow = f"not estimated: a training step of one patch takes about {3 * encoding.seconds:.0f} s"
        return Finding("WARN", "round of labels", slow, "set finetune.mode: head, or use a GPU")
    kind = label_kind(task_classes(patches))
    batch_size = params.finetune_section(kind).batch_size
    speed = training_speed(
        encoder, mode, patch_px=params.patch_px, batch_size=batch_size, device=environment.device
    )
    networks, images = trained_images(params, len(split_rows(patches, "train")), kind)
    minutes = networks * images * speed.seconds / 60
    return Finding(
        "PASS",
        "round of labels",
        f"finetune trains at most {networks} networks on {images:,} images each: {minutes:.1f} min of forward and "
        f"backward passes ({speed.num_patches} measured); students are not estimated{maps}",
    )


def trained_images(params: Params, num_train: int, kind: LabelKind) -> tuple[int, int]:
    """Number of networks that fine-tuning trains at most, and images of the training of each."""
    section = params.finetune_section(kind)
    schedule = schedule_of(section)
    steps = schedule.steps_per_epoch
    per_epoch = steps * section.batch_size if steps else round(params.alpha * num_train)
    is_mapped = any(needs_fold_models(params, method) for method in params.pretraining_methods)
    is_validated = not params.is_validation_separate or is_mapped
    folds = params.cross_validation.num_folds if is_validated else 0
    return len(params.pretraining_methods) * len(params.repeats) * (1 + folds), schedule.epochs * per_epoch


def _encoding(params: Params) -> Encoding:
    section = params.features
    return Encoding(section.depths, section.views, section.precision)


def _encoders(number: int) -> str:
    return f"{number} encoder{'s' * (number > 1)}"


def _value_bytes(precision: StoredPrecision) -> int:
    return int(np.dtype(precision).itemsize)


def _num_bytes(encoder: Encoder) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in encoder.parameters())
