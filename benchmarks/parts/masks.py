"""Tissue masks of a simulated slide, on one core."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import cv2
import numpy as np
import openslide
from skimage.color import rgb2hsv
from skimage.filters import threshold_otsu
from skimage.morphology import closing, disk, remove_small_objects
from turns import LIMIT, OURS, PEER, is_quick, row_of, take_turns

from histo_monai.data.simulated.datasets.camelyon16 import SlideSpec, make_world
from histo_monai.data.simulated.raster.pyramid import write_pyramid
from histo_monai.data.simulated.tissue.render import render_strips
from histo_monai.slides import choose_level, open_slide, tissue_mask
from histo_monai.utils.process.memory import keep_freed_memory

SIDE_PX, SLIDE_MPP, MPP = 4096, 0.5, 8.0


def main() -> None:
    keep_freed_memory()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "slide.tif"
        world, _ = make_world(SlideSpec("benchmark", 3, "macro", False, SIDE_PX, SLIDE_MPP))
        write_pyramid(path, render_strips(world, SIDE_PX, SIDE_PX), (SIDE_PX, SIDE_PX), mpp=SLIDE_MPP)
        ways = {OURS: lambda: ours(path), PEER: lambda: with_scikit_image(path), LIMIT: lambda: bare(path)}
        times = take_turns(ways, 5 if is_quick() else 21)
        row_of(
            f"tissue mask of {SIDE_PX} x {SIDE_PX} px at {MPP:g} µm/px, file to mask", times,
            peer_is="OpenSlide's thumbnail, Otsu of saturation and closing by scikit-image",
            limit_is="cuCIM, the level that is looked at, no mask", unit="slide",
        ).write()  # fmt: skip


def ours(path: Path) -> np.ndarray:
    """As the index does it."""
    with open_slide(path) as slide:
        return tissue_mask(slide.thumbnail(MPP))


def with_scikit_image(path: Path) -> np.ndarray:
    """What a user would write."""
    with openslide.OpenSlide(str(path)) as slide:
        side = round(SIDE_PX * SLIDE_MPP / MPP)
        saturation = rgb2hsv(np.asarray(slide.get_thumbnail((side, side))))[..., 1]
    mask = closing(saturation > threshold_otsu(saturation), disk(4))
    return np.asarray(remove_small_objects(mask, max_size=64))


def bare(path: Path) -> np.ndarray:
    """The pixels alone, opened anew."""
    from cucim.clara import CuImage

    image = CuImage(str(path))
    levels = [SLIDE_MPP * downsample for downsample in image.resolutions["level_downsamples"]]
    level = choose_level(levels, MPP)
    width, height = image.resolutions["level_dimensions"][level]
    return np.asarray(image.read_region((0, 0), (width, height), level))


if __name__ == "__main__":
    main()
