"""The test slides of a simulated Camelyon16 once more, from one other laboratory and scanner, for few_labels.py.

    python benchmarks/few_labels.py run DIR --dataset camelyon16 --subsets 0 1 2 --runs 0
    python benchmarks/stain_shift.py DIR --subsets 0 1 2
    python benchmarks/few_labels.py report DIR    # a dataset more: camelyon16_shifted

Tissue, lesions and the squares that are tested on stay what they are, and so do the models; what changes is how the
same cells are stained and scanned. All test slides change in the same way, by more than training slides differ.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import few_labels
import numpy as np

from histo_monai.data.simulated.datasets.camelyon16 import SlideSpec, make_world, slide_specs
from histo_monai.data.simulated.jobs import run_jobs
from histo_monai.data.simulated.raster.pyramid import write_pyramid
from histo_monai.data.simulated.raster.stain import StainStyle
from histo_monai.data.simulated.tissue.render import render_strips

DATASET, SHIFTED = "camelyon16", "camelyon16_shifted"
TEST = "testing/"
FEW_LABELS = (0,)
"""Of `few_labels.RUNS`."""
HEMATOXYLIN = np.array([1.30, 0.90, 0.75], np.float32)
"""Optical density in R, G, B, in parts of that of the slide's own stain: bluer."""
EOSIN = np.array([0.60, 1.05, 1.30], np.float32)
"""The same: more orange."""
STRENGTH = (1.35, 0.70)
"""Concentration of both, in parts of the slide's own."""
WHITE = (0.97, 0.95, 0.88)
"""Light through empty glass: yellowish."""
GAMMA, BLUR, SHARPEN = 1.15, 1.6, 1.0
"""Factors of the first two; the unsharp mask's strength, of which training slides have 0 to 0.6."""


def other_laboratory(style: StainStyle) -> StainStyle:
    """How the slide of a style would look from there."""
    hematoxylin, eosin = style.vectors[0] * HEMATOXYLIN, style.vectors[1] * EOSIN
    return replace(
        style,
        vectors=np.stack([hematoxylin, eosin]),
        strength=(style.strength[0] * STRENGTH[0], style.strength[1] * STRENGTH[1]),
        white=(style.white[0] * WHITE[0], style.white[1] * WHITE[1], style.white[2] * WHITE[2]),
        gamma=style.gamma * GAMMA,
        blur_um=style.blur_um * BLUR,
        sharpen=SHARPEN,
    )


def write_slide(path: Path, spec: SlideSpec) -> None:
    """Render it as the other laboratory would have it."""
    world, _ = make_world(spec)
    world = replace(world, style=other_laboratory(world.style))
    strips = render_strips(world, spec.side_px, spec.side_px)
    path.unlink(missing_ok=True)  # it is linked to the dataset's own
    write_pyramid(path, strips, (spec.side_px, spec.side_px), mpp=spec.mpp, quality=world.style.jpeg_quality)


def shift_dataset(folder: Path, dataset_seed: int, subsets: Sequence[int], processes: int) -> None:
    """Evaluate the models that few_labels.py trained on a dataset, on its test slides from the other laboratory."""
    place, shifted = folder / f"{DATASET}-{dataset_seed}", folder / f"{SHIFTED}-{dataset_seed}"
    shutil.rmtree(shifted, ignore_errors=True)
    shutil.copytree(place / "data", shifted / "data", copy_function=os.link)  # nothing is written into a file
    tree = few_labels.write_params(
        shifted,
        DATASET,
        dataset_seed,
        [f"training_seeds={[few_labels.seed_of(dataset_seed, subset) for subset in subsets]}"],
    )
    names = ("seed", "num_slides", "num_test_slides", "slide_side_px", "slide_mpp")
    specs = slide_specs(*(tree["phantom"][name] for name in names))
    slides = shifted / "data/phantom" / DATASET
    jobs = [(write_slide, (slides / path, spec)) for path, spec in specs.items() if path.startswith(TEST)]
    run_jobs(jobs, processes, f"dataset seed {dataset_seed}")
    for subset, number in itertools.product(subsets, FEW_LABELS):
        few_labels.evaluate(folder, SHIFTED, DATASET, dataset_seed, subset, number)


def main() -> None:
    """Shift the test slides of simulated datasets."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dataset-seeds", type=int, nargs="+", default=[10, 11, 12, 13, 14])
    parser.add_argument(
        "--subsets",
        type=int,
        nargs="+",
        default=[1],
        help="random label subsets by number; runs with all labels replace those of subset 0",
    )
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    for dataset_seed in arguments.dataset_seeds:
        shift_dataset(arguments.folder, dataset_seed, arguments.subsets, arguments.processes)


if __name__ == "__main__":
    main()
