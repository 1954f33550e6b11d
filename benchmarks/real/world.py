"""Patches unlike the training: left-out patients of GlaS against other organs, laboratories, pen and blur."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

from histo_monai.data.tables.patches import labeled_table
from histo_monai.slides import Box, open_slide
from histo_monai.slides.tiles.cells import slide_grid, tissue_cells
from histo_monai.utils.randomness import generator

from .encoders import IMAGENET, digest_of, write_encoder
from .features import EncoderSource, encoded, load_features, save_features
from .tasks import TASKS, read_patches

Pixels = NDArray[np.uint8]

INSIDE = "left-out patients"
NUM_DRAWN, NUM_OF_SLIDE = 297, 12
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


DRAWN: dict[str, Callable[[Pixels, int], Pixels]] = {
    "left-out patients at 1 µm/px": coarser,
    "pen": pen,
    "out of focus (sigma 1.9 µm)": blurred(3.0),
    "blur (sigma 0.9 µm)": blurred(1.5),
}
"""Source -> change of a patch of GlaS."""


def drawn_patches(
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
        cells, _ = tissue_cells(slide, grid, 16.0, 0.5)
        chosen = generator(0, "atlas", row["slide_id"]).permutation(len(cells))[:NUM_OF_SLIDE]
        side_px = round(_TRAINING_UM / slide.mpp)
        for center in grid.centers_yx(cells[np.sort(chosen)]):
            box = Box(center_yx=tuple(center.tolist()), side_px=side_px, mpp=slide.mpp)
            yield np.ascontiguousarray(slide.read(box).transpose(1, 2, 0))


def cached(cache: Path, name: str, pictures: Callable[[], Iterator[Pixels]]) -> NDArray[np.float32]:
    """Features of pictures by the frozen ImageNet encoder, computed once."""
    encoder = write_encoder(IMAGENET, cache / "encoders")
    path = cache / "features" / f"world-{name}-{digest_of(encoder)[:16]}.npz"
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


def outside_features(real: Path, cache: Path) -> dict[str, NDArray[np.float32]]:
    """Source -> features of its patches; drawn patches are those of `drawn_rows`."""
    encoder, task = EncoderSource(write_encoder(IMAGENET, cache / "encoders")), TASKS["glas-classes"]
    rows = read_patches(real, task).iloc[drawn_rows(real)]
    sources = {
        name: cached(cache, f"drawn-{number}", partial(drawn_patches, real, rows, change))
        for number, (name, change) in enumerate(DRAWN.items())
    }
    atlas = pd.read_csv(real / "atlas" / "slides.csv")
    of_slides = {
        row["slide_id"]: cached(cache, f"atlas-{row['slide_id']}", partial(atlas_patches, real, row))
        for _, row in atlas.iterrows()
    }
    is_colon = atlas["organ"].eq("colon")
    sources["colon of another laboratory (atlas)"] = np.concatenate(
        [of_slides[name] for name in atlas["slide_id"][is_colon]]
    )
    sources["other organs (atlas)"] = np.concatenate(
        [of_slides[name] for name in atlas["slide_id"][~is_colon]]
    )
    for name, dataset in (("colon of another laboratory (CoNSeP)", "consep"), ("lung", "lung")):
        (sources[name],) = encoder.features(real, cache, TASKS[dataset], 0).values()
    return sources


def drawn_rows(real: Path) -> NDArray[np.intp]:
    """Row numbers of patches of GlaS, at random."""
    number = len(read_patches(real, TASKS["glas-classes"]))
    return np.sort(generator(0, "drawn").permutation(number)[:NUM_DRAWN])
