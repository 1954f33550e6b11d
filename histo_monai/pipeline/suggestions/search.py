"""Where regions to label may lie: tissue of the slides of training, in squares of the model's patches."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd

from histo_monai.data.index.candidates import Search, sample_candidates, slides_to_search
from histo_monai.data.readers.registry import DATASETS
from histo_monai.data.tables.columns import read_surveyed_slides, read_whole_slides
from histo_monai.data.tables.tasks import training_mpp
from histo_monai.pipeline import paths
from histo_monai.pipeline.params import Params
from histo_monai.pipeline.suggestions.squares import files_of
from histo_monai.slides.tiles.usable import TissueRules
from histo_monai.utils.errors import InputError

PER_SLIDE = 500
"""Most candidates of a slide."""


def search_of(params: Params, patches: pd.DataFrame, side_um: float | None) -> Search:
    """Squares of the training patches' µm/px; before there is one, of outlines' or the finest of the pretraining.

    Args:
        patches: data/index/patches.csv.
        side_um: Side of a square; None: of a patch.

    Raises:
        InputError: The training patches have no common µm/px, or the side is too small.
    """
    if (patches["split"] == "train").any():
        mpp = training_mpp(patches, params.patch_px)
    else:
        regions = getattr(params.labels_section, "regions", None)
        mpp = min(params.corpus_section.mpps) if regions is None else regions.mpp
    if mpp is None:
        raise InputError(
            f"{paths.PATCHES_CSV}: the training patches have no common µm/px. Fix: give all one field in µm "
            "(column mpp)"
        )
    field_um = params.patch_px * mpp
    side_um = field_um if side_um is None else side_um
    least = {"of the model's patch": field_um}
    least |= DATASETS[params.dataset].least_outline_um(params.labels_section, params.patch_px)
    for what, least_um in least.items():
        if side_um < least_um * (1 - 1e-6):
            raise InputError(
                f"--side-um: {side_um:g} µm is below the {least_um:g} µm {what}. Fix: give at least {least_um:g}"
            )
    return Search(
        patch_px=params.patch_px,
        mpp=mpp,
        side_um=side_um,
        tissue=TissueRules(params.index.tissue_mpp, params.index.artefacts),
        min_tissue_fraction=params.index.min_tissue_fraction,
        per_slide=PER_SLIDE,
    )


def candidates_of(
    params: Params,
    patches: pd.DataFrame,
    search: Search,
    *,
    seed: int,
    processes: int,
    most: float = math.inf,
) -> pd.DataFrame:
    """Squares on the slides of the training split.

    Args:
        most: Of all slides together; with many slides each offers fewer.
    """
    slides = read_surveyed_slides(paths.SLIDES_CSV)
    within_patients = DATASETS[params.dataset].validation_within_patients(params.labels_section)
    others = ("test",) if within_patients else ("validation", "test")
    held_out = patches[patches["split"].isin(others)]
    root = paths.dataset_folder(params.source, params.pretraining_dataset)
    manifest = DATASETS[params.pretraining_dataset].pretraining_slides(root, params.corpus_section)
    if params.is_validation_separate:
        held_out = pd.concat([held_out, manifest[manifest["split"] == "validation"]])
    shared_ids = params.pretraining_dataset == params.dataset
    searched = slides_to_search(slides, patches, held_out, shared_ids=shared_ids)
    known = pd.concat([manifest, read_whole_slides(paths.WHOLE_SLIDES_CSV)])
    search = replace(search, outlines=_outlines_of(searched, known))
    if most < math.inf:
        search = replace(search, per_slide=min(search.per_slide, math.ceil(most / len(searched))))
    return sample_candidates(searched, search, seed=seed, processes=processes)


def _outlines_of(slides: pd.DataFrame, known: pd.DataFrame) -> dict[str, str]:
    """slide_id -> file of the user's outlines of tissue and artefacts; a slide is known by its file.

    Args:
        known: Slides with the columns `path` and `outlines`; two collections may use one id for two slides.
    """
    files, named = files_of(slides), files_of(known)
    outlines = {file: name for file, name in zip(named, known["outlines"], strict=True) if name}
    return {
        slide_id: outlines[file]
        for slide_id, file in zip(slides["slide_id"], files, strict=True)
        if file in outlines
    }
