"""Stage `check`: input check before any training, and a page of slides, tissue and labels."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import image

from histo_monai.data.index.preflight import (
    Ahead,
    MapsAhead,
    preflight_warnings,
    problems_ahead,
    slides_too_coarse,
    without_field,
)
from histo_monai.data.readers.settings import IndexSettings
from histo_monai.data.tables.columns import read_centers, read_surveyed_slides, read_whole_slides
from histo_monai.data.tables.manifests import first_five
from histo_monai.data.tables.patches import read_patches
from histo_monai.data.tables.slide_classes import classes_to_learn
from histo_monai.pipeline import paths
from histo_monai.pipeline.environment import num_cpus
from histo_monai.pipeline.params import Params, load_params
from histo_monai.pipeline.paths import Run
from histo_monai.pipeline.provenance import made_from, write_metrics
from histo_monai.reports.check.page import Checked, check_page
from histo_monai.reports.check.survey import SCORED, Survey, class_colors
from histo_monai.slides import open_slide
from histo_monai.slides.tiles.usable import TissueRules
from histo_monai.utils.errors import InputError
from histo_monai.utils.process.processes import map_over_processes
from histo_monai.utils.storage import read_json, whole_folder, write_json

_LOG = logging.getLogger(__name__)

PAGE, PICTURES, PASSED = "index.html", "slides", "passed.json"
CONTROL = "supervised"
"""Method without use of unlabeled patches."""
NO_FEATURES = "or skip slide features (slide_level.pretraining_methods: [])"
NO_LABELS = "no patch is labeled: only pretraining is possible (dvc repro pretrain), no fine-tuning"
_LITTLE_TISSUE = 0.005
"""Minimum tissue fraction; `check` warns about a slide below it and shows its picture."""
_SIDE_PX = 640
"""Maximum side of a slide's picture."""


def run() -> None:
    """Write data/check: index.html, slides/, metrics.json; and passed.json if the input suffices for later stages.

    Raises:
        InputError: the input does not suffice; the page exists nevertheless.
    """
    params = load_params(paths.PARAMS)
    slides, whole = read_surveyed_slides(paths.SLIDES_CSV), read_whole_slides(paths.WHOLE_SLIDES_CSV)
    patches, centers = read_patches(paths.PATCHES_CSV), read_centers(paths.CENTERS_CSV)
    warnings = read_json(paths.LABELS_JSON, "run `dvc repro index` again", {"warnings": [str]})["warnings"]
    tables = [paths.SLIDES_CSV, paths.CENTERS_CSV, paths.WHOLE_SLIDES_CSV, paths.LABELS_JSON]
    tables += [paths.PATCHES_CSV, paths.UNLABELED_CSV]
    provenance = made_from(params, tables, [slides, whole])
    ahead = _ahead(params, len(read_patches(paths.UNLABELED_CSV)))
    every = _every_slide(slides, whole)
    colors = class_colors(sorted(set(patches["label"]) - {""}))
    with whole_folder(paths.CHECK) as draft:
        (draft / PICTURES).mkdir()
        shown = _shown(every, params.check.num_pictures)
        surveys = _surveys(every, centers, patches, params.index, colors)
        pictures = [draft / PICTURES / f"{i}.jpg" for i in range(len(every))]
        in_full = [i in shown for i in range(len(every))]
        processes = num_cpus()
        looks = list(
            map_over_processes(
                _look, surveys, pictures, in_full, processes=processes, title="slides", unit="slide"
            )
        )
        every["mpp"] = [mpp for mpp, *_ in looks]
        every["excluded"] = [excluded for *_, excluded in looks]
        bare = [i for i, (_, tissue, _) in enumerate(looks) if tissue < _LITTLE_TISSUE]
        shown = sorted({*shown, *bare})
        finest = every.set_index("path")["mpp"].reindex(whole["path"]).tolist()
        problems = problems_ahead(patches, whole, finest, ahead) if len(patches) else []
        data_warnings = preflight_warnings(patches, whole, ahead) if len(patches) else []
        too_coarse, about_slides = _learned_from_slides(params, whole, finest, no_patches=patches.empty)
        images = without_field(patches, params.features.field)
        problems, data_warnings = [*problems, *images, *too_coarse], [*data_warnings, *about_slides]
        data_warnings += [*_unmapped(params, whole), *_bare(every.iloc[bare])]
        data_warnings += warnings
        named = {every["slide_id"][i]: f"{PICTURES}/{i}.jpg" for i in shown}
        page = check_page(Checked(problems, data_warnings, every, named, centers, patches, colors))
        (draft / PAGE).write_text(page, encoding="utf-8")
        if not problems:
            write_json(draft / PASSED, {"passed": True})
        write_metrics(draft, {"problems": problems, "data_warnings": data_warnings}, provenance)
    for line in data_warnings:
        _LOG.warning("%s", line)
    if problems:
        more = f" ({len(problems) - 1} more: {paths.CHECK / PAGE})" if len(problems) > 1 else ""
        raise InputError(f"{problems[0]}{more}")
    _LOG.info("check: passed, page=%s", paths.CHECK / PAGE)
    _LOG.info("check: `histo-monai doctor` states time and disk of the encoder on this machine")


def _ahead(params: Params, num_unlabeled: int) -> Ahead:
    section, mapping = params.heatmap_section, params.mapping
    seeds = {Run("", encoder, seed).derived_seed: None for encoder, seed in params.repeats}
    maps = None
    if section is not None and all(mapping):
        where, folds = f"heatmap.{params.dataset}", params.cross_validation.num_folds
        maps = MapsAhead(where, section.positive_class, section.stride_um, folds)
    teaches = any(student != CONTROL for student in params.semisupervised_methods)
    ignore = tuple(
        name for name in params.pretraining_methods if params.pretrain.methods[name].ignores_stains
    )
    return Ahead(params.patch_px, params.alpha, tuple(seeds), maps, teaches, num_unlabeled, ignore)


def _learned_from_slides(
    params: Params, whole: pd.DataFrame, finest: Sequence[float], *, no_patches: bool
) -> tuple[list[str], list[str]]:
    """Problems of slide features, and data warnings about slide labels."""
    methods = [method for method in params.pretraining_methods if params.learns_from_slides(method)]
    classes, why = classes_to_learn(whole)
    if why or not methods:
        reasons = [why] if why and methods and (whole["label"] != "").any() else []
        return [], reasons + [NO_LABELS] * no_patches
    mpp = params.features.mpp or min(params.corpus_section.mpps)
    problems = slides_too_coarse(whole, finest, mpp, "features of slides (features.mpp)", NO_FEATURES)
    if not no_patches:
        return problems, []
    known = whole[whole["label"] != ""]
    tested = int((known["split"] == "test").sum())
    use_in_test = f"tested on {tested} of them" if tested else "no slide is for testing (column split)"
    return problems, [
        f"no patch is labeled: the labels of {len(known)} slides ({', '.join(classes)}) are used for training, and "
        f"{use_in_test}"
    ]


def _unmapped(params: Params, whole: pd.DataFrame) -> list[str]:
    """Data warning about maps that `slide_level` requests of models that no run trains."""
    asked = params.slide_level
    if (
        whole.empty
        or params.dataset not in params.heatmap.datasets
        or not (asked.pretraining_methods and asked.semisupervised_methods)
    ):
        return []
    if all(params.mapping):
        return []
    return [
        f"no slide will be mapped: slide_level asks for {', '.join(asked.pretraining_methods)} with "
        f"{', '.join(asked.semisupervised_methods)}, "
        f"and methods are {', '.join(params.pretraining_methods)}, students {', '.join(params.semisupervised_methods)}"
    ]


def _every_slide(slides: pd.DataFrame, whole: pd.DataFrame) -> pd.DataFrame:
    """Slides of pretraining and dataset, each file once; `label` may be empty."""
    columns = ["slide_id", "path", "patient_id", "mpp", "split", "label", "outlines"]
    every = pd.concat([whole, slides.assign(label="", outlines="")])[columns]
    return every.drop_duplicates("path", ignore_index=True)


def _shown(every: pd.DataFrame, num: int) -> list[int]:
    """Indices of the shown slides, alternating over the splits."""
    turn = every.groupby("split").cumcount()
    return sorted(turn.sort_values(kind="stable").index[:num].tolist())


def _surveys(
    every: pd.DataFrame,
    centers: pd.DataFrame,
    patches: pd.DataFrame,
    index: IndexSettings,
    colors: Mapping[str, str],
) -> list[Survey]:
    of_slide = dict(iter(centers.groupby("slide_id")))
    squares = patches[patches["y"].notna()]
    labeled = dict(iter(squares.groupby("path")))
    surveys = []
    columns = every[["slide_id", "path", "mpp", "outlines"]]
    for slide_id, path, mpp, outlines in columns.itertuples(index=False, name=None):
        patches_of_slide = labeled.get(path, squares.iloc[:0])
        of_labels = [
            (
                colors.get(str(label), SCORED),
                rows[["y", "x"]].to_numpy(np.float64),
                float((rows["side_px"] * rows["mpp"]).median()),
            )
            for label, rows in patches_of_slide.groupby("label")
        ]
        places = of_slide.get(slide_id, centers.iloc[:0])[["y", "x"]].to_numpy(np.float64)
        given = None if np.isnan(mpp) else float(mpp)
        rules = TissueRules(index.tissue_mpp, index.artefacts)
        surveys.append(Survey(Path(path), given, rules, outlines, places, of_labels))
    return surveys


def _look(survey: Survey, picture: Path, is_shown: bool) -> tuple[float, float, float]:
    """µm/px of a slide, its tissue fraction, and the excluded fraction of its tissue.

    Saves its picture if it is shown or has little tissue.
    """
    with open_slide(survey.path, survey.mpp) as slide:
        tissue = survey.tissue(slide)
        fraction = float(tissue.mask.mean())
        if is_shown or fraction < _LITTLE_TISSUE:
            image.imsave(picture, survey.drawn(slide, slide.thumbnail_mpp(_SIDE_PX), tissue))
        return slide.mpp, fraction, tissue.excluded_fraction


def _bare(slides: pd.DataFrame) -> list[str]:
    if slides.empty:
        return []
    names = first_five([str(name) for name in slides["slide_id"]])
    return [
        f"{len(slides)} slides have less than {_LITTLE_TISSUE:.1%} tissue: {names}. Check their "
        "pictures: only marked tissue is mapped"
    ]
