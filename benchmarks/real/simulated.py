"""Patches of a simulated Camelyon16 in which one of twelve shows tumor, as a zip that the benchmark reads.

    python -m benchmarks.real.simulated FOLDER      # FOLDER/camelyon16-simulated.zip; then --real FOLDER

Random tissue of simulated lymph nodes, half of them with metastases. The class of a patch is that of most of its area.
"""

from __future__ import annotations

import argparse
import io
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.simulated.datasets.camelyon16 import SlideSpec, make_world, slide_specs
from histo_monai.data.simulated.plans.lesions import rasterize
from histo_monai.data.simulated.raster.lattice import Grid
from histo_monai.data.simulated.tissue.render import render
from histo_monai.utils.randomness import generator
from histo_monai.utils.storage import whole_file

ARCHIVE, TABLE = "camelyon16-simulated.zip", "patches.csv"
NUM_SLIDES, SIDE_PX, MPP = 24, 4096, 0.5
PATCH_PX, PER_SLIDE = 128, 100
PREVALENCE = 0.08
"""Fraction of the patches that show tumor."""
SEED = 16


def tissue_cells(spec: SlideSpec) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Cells of the patches' grid whose center is tissue, (n, 2) rows and columns; and which are mostly tumor."""
    world, lesions = make_world(spec)
    side = spec.side_px // PATCH_PX
    field_um = PATCH_PX * spec.mpp
    glass = world.plan.regions(Grid(0.0, 0.0, field_um, side, side))["glass"]
    mask = rasterize(lesions, spec.mpp * 8, spec.side_px // 8, spec.side_px // 8)
    of_cell = PATCH_PX // 8
    tumor = mask.reshape(side, of_cell, side, of_cell).mean(axis=(1, 3)) > 0.5
    cells = np.argwhere(np.broadcast_to(glass, (side, side)) < 0.5)
    return cells, tumor[cells[:, 0], cells[:, 1]]


def chosen_cells(specs: Sequence[SlideSpec], seed: int = SEED) -> pd.DataFrame:
    """Random tissue, `PER_SLIDE` cells of each slide: columns slide, row, column, is_tumor; `PREVALENCE` are tumor.

    Slides with more tumor have more of the tumor cells.
    """
    cells = [tissue_cells(spec) for spec in specs]
    num_tumor = np.array([is_tumor.sum() for _, is_tumor in cells])
    wanted = PREVALENCE * PER_SLIDE * len(specs)
    of_slide = np.minimum(np.round(wanted * num_tumor / num_tumor.sum()).astype(int), num_tumor)
    rows = []
    for number, ((places, is_tumor), num) in enumerate(zip(cells, of_slide, strict=True)):
        random = generator(seed, "cells", number)
        for is_wanted, count in ((True, int(num)), (False, PER_SLIDE - int(num))):
            some = random.permutation(np.flatnonzero(is_tumor == is_wanted))[:count]
            rows += [(number, int(row), int(column), is_wanted) for row, column in places[some]]
    return pd.DataFrame(rows, columns=["slide", "row", "column", "is_tumor"])


def write_archive(path: Path, specs: Sequence[SlideSpec], cells: pd.DataFrame) -> None:
    """Write PNG patches, and their table with path, patient_id (the slide), label and mpp."""
    worlds = [make_world(spec)[0] for spec in specs]
    rows = []
    with whole_file(path) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_STORED) as archive:
        places = cells[["slide", "row", "column"]].to_numpy(int).tolist()
        for number, ((slide, row, column), is_tumor) in enumerate(
            zip(places, cells["is_tumor"], strict=True)
        ):
            image = render(worlds[slide], row * PATCH_PX, column * PATCH_PX, PATCH_PX, PATCH_PX).image
            name = f"{number:05d}.png"
            archive.writestr(name, cv2.imencode(".png", image[..., ::-1])[1].tobytes())
            rows.append((name, specs[slide].name, "tumor" if is_tumor else "normal", MPP))
        table = io.StringIO()
        pd.DataFrame(rows, columns=["path", "patient_id", "label", "mpp"]).to_csv(table, index=False)
        archive.writestr(TABLE, table.getvalue())


def main(argv: Sequence[str] | None = None) -> int:
    """Write the archive."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.real.simulated", description=__doc__)
    options.add_argument("folder", type=Path)
    folder = options.parse_args(argv).folder
    specs = list(slide_specs(SEED, NUM_SLIDES, 0, SIDE_PX, MPP).values())
    cells = chosen_cells(specs)
    write_archive(folder / ARCHIVE, specs, cells)
    print(f"{folder / ARCHIVE}: {len(cells)} patches, {cells['is_tumor'].mean():.3f} of them tumor")
    return 0


if __name__ == "__main__":
    sys.exit(main())
