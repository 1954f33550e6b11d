"""Patches unlike the training: left-out patients of GlaS against other organs, laboratories, pen and blur.

Features are those of the frozen ImageNet encoder. A distance has its threshold from labeled patches against those of
other patients; above it a patch counts as unlike the training.
"""

from __future__ import annotations

import io
import itertools
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import cv2
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.covariance import LedoitWolf
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from histo_monai.data.tables.patches import labeled_table
from histo_monai.models.reference import QUANTILE, TrainingReference, stored_rows
from histo_monai.slides import Box, open_slide
from histo_monai.slides.tiles.cells import slide_grid, tissue_cells
from histo_monai.slides.tiles.usable import TissueRules
from histo_monai.utils.randomness import generator

from .encoders import IMAGENET, description_of, digest_of, sides_of, write_encoder
from .features import EncoderSource, encoded, load_features, save_features
from .tasks import ALL_LABELS, SUBSETS, TASKS, fold_of_rows, read_patches, split_rows

Pixels = NDArray[np.uint8]
Features = NDArray[np.float32]
TASK = "glas-classes"

INSIDE = "left-out patients"
"""Source of the patches that count as inside; its slides are fields."""
NUM_CHANGED, NUM_OF_SLIDE = 297, 12
_TRAINING_UM = 128 * 0.62
"""Side of a patch of GlaS, µm."""
_PENS = ((30, 60, 160), (20, 120, 60), (20, 20, 20))


def pen(pixels: Pixels, number: int) -> Pixels:
    """Patch with a translucent line of a felt pen across."""
    random = generator(number, "pen")
    side = pixels.shape[0]
    one, other = random.integers(0, side, 2).tolist()
    mask = np.zeros(pixels.shape[:2], np.float32)
    cv2.line(mask, (0, one), (side, other), 1.0, int(side * random.uniform(0.25, 0.6)), cv2.LINE_AA)
    opacity = 0.85 * mask[..., None]
    color = np.array(_PENS[number % len(_PENS)], np.float32)
    return np.rint(pixels * (1 - opacity) + color * opacity).astype(np.uint8)


def blurred(sigma_px: float) -> Callable[[Pixels, int], Pixels]:
    """Patch out of focus: a Gaussian of this deviation, px."""
    return lambda pixels, number: np.asarray(cv2.GaussianBlur(pixels, (0, 0), sigma_px))


def coarser(pixels: Pixels, number: int) -> Pixels:
    """Patch at the resolution of the atlas, 1 µm/px."""
    side = round(_TRAINING_UM)
    return np.asarray(cv2.resize(pixels, (side, side), interpolation=cv2.INTER_AREA))


CHANGES: dict[str, Callable[[Pixels, int], Pixels]] = {
    "left-out patients at 1 µm/px": coarser,
    "pen": pen,
    "out of focus (sigma 1.9 µm)": blurred(3.0),
    "blur (sigma 0.9 µm)": blurred(1.5),
}
"""Source -> change of a patch of GlaS."""


def changed_patches(
    real: Path, rows: pd.DataFrame, change: Callable[[Pixels, int], Pixels]
) -> Iterator[Pixels]:
    """Changed patches of a table of GlaS."""
    archive = real / "glas-patches.zip"
    with zipfile.ZipFile(archive) as file:
        for number, path in enumerate(rows["path"]):
            content = file.read(str(Path(path).relative_to(archive)))
            yield change(np.asarray(Image.open(io.BytesIO(content)).convert("RGB")), number)


def atlas_patches(real: Path, row: pd.Series) -> Iterator[Pixels]:
    """Random tissue patches of a slide of the atlas, of the size of GlaS's in µm."""
    with open_slide(real / "atlas" / row["path"], row["mpp"]) as slide:
        grid = slide_grid(slide, _TRAINING_UM)
        cells, _ = tissue_cells(slide, grid, TissueRules(), 0.5)
        chosen = generator(0, "atlas", row["slide_id"]).permutation(len(cells))[:NUM_OF_SLIDE]
        side_px = round(_TRAINING_UM / slide.mpp)
        for center in grid.centers_yx(cells[np.sort(chosen)]):
            box = Box(center_yx=tuple(center.tolist()), side_px=side_px, mpp=slide.mpp)
            yield np.ascontiguousarray(slide.read(box).transpose(1, 2, 0))


def cached(
    cache: Path, name: str, pictures: Callable[[], Iterator[Pixels]], encoder: Path | None = None
) -> NDArray[np.float32]:
    """Features of pictures by a frozen encoder, ImageNet's without a path, computed once."""
    encoder = encoder or write_encoder(IMAGENET, cache / "encoders")
    sides = sides_of(description_of(encoder))
    path = cache / "features" / f"world-{name}-{digest_of(encoder)[:16]}-{sides}.npz"
    if not path.exists():
        with tempfile.TemporaryDirectory() as folder:
            rows = []
            for number, pixels in enumerate(pictures()):
                file = Path(folder) / f"{number}.png"
                Image.fromarray(pixels).save(file)
                rows.append({"patch_id": str(number), "path": str(file), "side_px": pixels.shape[0]})
            save_features(path, encoded(encoder, labeled_table(rows)))
    (features,) = load_features(path).values()
    return np.asarray(features)


def glas_features(real: Path, cache: Path) -> NDArray[np.float32]:
    """Features of every patch of GlaS, in the order of its table."""
    encoder = EncoderSource(write_encoder(IMAGENET, cache / "encoders"))
    (features,) = encoder.features(real, cache, TASKS[TASK], 0).values()
    return np.asarray(features)


def other_features(real: Path, cache: Path) -> dict[str, list[NDArray[np.float32]]]:
    """Source -> features of its patches, slide by slide; changed patches and datasets of patches are one slide."""
    encoder = EncoderSource(write_encoder(IMAGENET, cache / "encoders"))
    rows = read_patches(real, TASKS[TASK]).iloc[changed_rows(real)]
    sources = {
        name: [cached(cache, f"drawn-{number}", partial(changed_patches, real, rows, change))]
        for number, (name, change) in enumerate(CHANGES.items())
    }
    atlas = pd.read_csv(real / "atlas" / "slides.csv")
    for name, is_colon in (("colon of another laboratory (atlas)", True), ("other organs (atlas)", False)):
        sources[name] = [
            cached(cache, f"atlas-{row['slide_id']}", partial(atlas_patches, real, row))
            for _, row in atlas[atlas["organ"].eq("colon") == is_colon].iterrows()
        ]
    for name, dataset in (("colon of another laboratory (CoNSeP)", "consep"), ("lung", "lung")):
        sources[name] = list(encoder.features(real, cache, TASKS[dataset], 0).values())
    return sources


def changed_rows(real: Path) -> NDArray[np.intp]:
    """Random row numbers of the patches of GlaS that are changed."""
    number = len(read_patches(real, TASKS[TASK]))
    return np.sort(generator(0, "drawn").permutation(number)[:NUM_CHANGED])


class Distance(Protocol):
    """Distances of patches to training patches, as multiples of a threshold."""

    def __call__(self, training: Features, patients: NDArray, patches: Features) -> NDArray[np.float64]:
        """Shape (n,)."""


def nearest(training: Features, patients: NDArray, patches: Features) -> NDArray[np.float64]:
    """Distance of the package: cosine to the nearest training patch."""
    some = stored_rows(len(training))
    reference = TrainingReference.fit(training[some], patients[some])
    if reference is None:
        raise ValueError("training patches of one patient")
    return reference(torch.from_numpy(patches)).double().numpy()


def nearest_standardized(training: Features, patients: NDArray, patches: Features) -> NDArray[np.float64]:
    """As `nearest`, of features with mean 0 and deviation 1 over the training patches."""
    scaler = StandardScaler().fit(training)
    return nearest(scaler.transform(training), patients, scaler.transform(patches))


def mahalanobis(training: Features, patients: NDArray, patches: Features) -> NDArray[np.float64]:
    """Mahalanobis distance in 64 principal components, with Ledoit and Wolf's shrunk covariance."""
    components = make_pipeline(StandardScaler(), PCA(min(64, len(training) - 1), random_state=0))
    rows = components.fit_transform(training)
    between = np.empty(len(rows))
    for patient in np.unique(patients):
        own = patients == patient
        between[own] = LedoitWolf().fit(rows[~own]).mahalanobis(rows[own])
    squares = LedoitWolf().fit(rows).mahalanobis(components.transform(patches))
    return np.sqrt(squares / np.quantile(between, QUANTILE))


DISTANCES: dict[str, Distance] = {
    "nearest, cosine": nearest,
    "nearest, cosine, standardized": nearest_standardized,
    "Mahalanobis": mahalanobis,
}


class Measured(NamedTuple):
    """One source in one fold and label subset.

    Attributes:
        auc: of the source against the patches of left-out patients.
        fraction: of its patches that count as unlike the training.
        slides: fraction of its slides that are mostly so.
    """

    auc: float
    fraction: float
    slides: float


def measure(real: Path, cache: Path, distance: Distance, budget: int) -> dict[str, NDArray[np.float64]]:
    """Source -> `Measured` of every fold and label subset, Shape (runs, 3)."""
    task, features, others = TASKS[TASK], glas_features(real, cache), other_features(real, cache)
    rows, changed = read_patches(real, task), changed_rows(real)
    patients, fields = (
        rows["patient_id"].to_numpy(),
        rows["patch_id"].str.rsplit("_", n=2).str[0].to_numpy(),
    )
    fold_of = fold_of_rows(task, rows)
    found: dict[str, list[Measured]] = {}
    for fold, subset in itertools.product(range(task.num_folds), SUBSETS[: 3 if budget else 1]):
        labeled = split_rows(task, rows, fold, subset, budget).labeled
        of = partial(distance, features[labeled], patients[labeled])
        is_left_out = fold_of == fold
        inside = of(features[is_left_out])
        by_field = [inside[fields[is_left_out] == name] for name in np.unique(fields[is_left_out])]
        found.setdefault(INSIDE, []).append(_measured(inside, by_field))
        for name, slides in others.items():
            of_source = [of(some[fold_of[changed] == fold] if name in CHANGES else some) for some in slides]
            found.setdefault(name, []).append(_measured(inside, of_source))
    return {name: np.array(runs) for name, runs in found.items()}


def _measured(inside: NDArray[np.float64], slides: Sequence[NDArray[np.float64]]) -> Measured:
    distances = np.concatenate(slides)
    is_source = np.repeat([0, 1], [len(inside), len(distances)])
    auc = float(roc_auc_score(is_source, np.concatenate([inside, distances])))
    mostly = float(np.mean([(some > 1).mean() > 0.5 for some in slides])) if len(slides) > 1 else np.nan
    return Measured(auc, float((distances > 1).mean()), mostly)


def table(real: Path, cache: Path, budgets: Sequence[int]) -> str:
    """Table of all sources, distances and budgets, in Markdown."""
    lines = []
    for budget in budgets:
        labels = "all" if budget == ALL_LABELS else str(budget)
        lines += [
            f"| {labels} labels | " + " | ".join(DISTANCES) + " | slides mostly unlike |",
            "|---" * 5 + "|",
        ]
        of_distances = [measure(real, cache, distance, budget) for distance in DISTANCES.values()]
        for name in of_distances[0]:
            cells = [_cell(of_distance[name]) for of_distance in of_distances]
            mostly = of_distances[0][name][:, 2].mean()
            lines.append(
                f"| {name} | " + " | ".join(cells) + f" | {'' if np.isnan(mostly) else f'{mostly:.0%}'} |"
            )
        lines.append("")
    return "\n".join(lines)


def _cell(runs: NDArray[np.float64]) -> str:
    auc, fraction, _ = runs.mean(axis=0)
    low, high = runs[:, 1].min(), runs[:, 1].max()
    return f"{auc:.2f}, {fraction:.0%} ({low:.0%} to {high:.0%})"
