"""Stage `heatmap`: models and slides -> maps, overlays, detections."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import image
from numpy.typing import NDArray

from histo_monai.data.tables.columns import read_whole_slides
from histo_monai.data.tables.label_folds import read_folds
from histo_monai.models.task_model import describe_file
from histo_monai.pipeline import paths
from histo_monai.pipeline.context import Assembly
from histo_monai.pipeline.environment import torchrun_rank
from histo_monai.pipeline.imports import modules_sha256
from histo_monai.pipeline.params import Params, load_params
from histo_monai.pipeline.paths import Run
from histo_monai.pipeline.provenance import check_diagnoses, check_slides, made_from, write_metrics
from histo_monai.pipeline.skip import has_patches
from histo_monai.pipeline.stored_features import StoredRows
from histo_monai.reports.maps.mosaic import map_mosaic
from histo_monai.reports.maps.of_slide import row_title, write_maps_of_slide
from histo_monai.reports.maps.slide_maps import MapStyle
from histo_monai.slides.tiles.usable import TissueRules
from histo_monai.training.resume import fingerprint
from histo_monai.utils.errors import InputError
from histo_monai.utils.process.processes import map_over_processes
from histo_monai.utils.roles import FINETUNED, MODELS, STUDENT
from histo_monai.utils.storage import read_json, whole_folder
from histo_monai.wsi.heatmaps.heatmap import IN_TRAINING, UNLIKE, unlike_slides
from histo_monai.wsi.inference.head_maps import HeadMapWork, other_places
from histo_monai.wsi.inference.heatmaps import MapWork
from histo_monai.wsi.inference.jobs import SlideJob
from histo_monai.wsi.inference.models import MapPlan, mapped_classes, patches_mpp
from histo_monai.wsi.inference.slides import over_slides

_LOG = logging.getLogger(__name__)

TUMOR = "tumor"
MOSAIC, NUM_IN_MOSAIC = "mosaic.png", 8
SLIDES_PER_PROCESS = 4
"""Loading the libraries takes a process as long as the files of so many slides."""


def run(method: str, encoder: int, student: str, seed: int) -> None:
    """Write data/heatmaps/<run>: slides.csv, scores/, finetuned/, student/, plots/, metrics.

    Fold models map the slides of training patients; with `heatmap.seen`, columns that end in `_seen` hold scores of the
    models trained on them. Heads read stored features (`finetune.mode: head`). An interrupted run resumes after its
    last slide.

    Raises:
        InputError: a model or slide cannot be used, or the patches have no common µm/px.
    """
    of_run = Run(method, encoder, seed, student)
    params = load_params(paths.PARAMS)
    slides = read_whole_slides(paths.WHOLE_SLIDES_CSV)
    folder = of_run.heatmaps
    if not params.is_mapped_by(method, encoder, student) or slides.empty or not has_patches():
        with whole_folder(folder) as draft:
            _make_folders(draft)
            (draft / paths.SCORES).mkdir()
            slides.iloc[:0].to_csv(draft / paths.MAPPED_CSV, index=False)
            counts = {"slides": 0, "cells": 0}
            write_metrics(draft, counts, made_from(params, [paths.WHOLE_SLIDES_CSV]), summary=counts)
        _LOG.info("heatmap: output=%s slides=0", folder)
        return
    assembly = Assembly.of(params)
    environment = assembly.environment
    folds_csv = of_run.folds[STUDENT] / paths.FOLDS_CSV
    fold_of = read_folds(folds_csv).of_slides(slides)
    jobs = _jobs(of_run, slides, fold_of, params.heatmap.seen)
    settings, classes = _settings(of_run, assembly)
    check_diagnoses(of_run, params)
    stage = f"heatmap-{of_run.name}"
    files = sorted({path for job in jobs for path in job.models.values()})
    decided_by = [settings.settings, classes]
    work = _work(of_run, params, settings, classes)
    key = fingerprint(decided_by, [paths.WHOLE_SLIDES_CSV, *files], modules_sha256(type(work).__module__))
    done = paths.unfinished_folder(stage) / key[:16]
    check_slides([slides])
    over_slides(jobs, work, done, **environment.sharing)
    if torchrun_rank() > 0:  # under torchrun, process 0 writes
        return
    outlines = [Path(name) for name in slides["annotation"] if name]
    tables = [paths.PATCHES_CSV, paths.WHOLE_SLIDES_CSV]
    provenance = made_from(params, [*tables, folds_csv, *files, *outlines], [slides])
    with whole_folder(folder) as draft:
        _make_folders(draft)
        (draft / paths.SCORES).mkdir()
        for job, suffix in itertools.product(jobs, (".csv", ".json")):
            shutil.copy(done / f"{job.slide_id}{suffix}", draft / paths.SCORES)
        mapped = _write_maps(draft, slides, params, classes, environment.cpus)
        mapped.to_csv(draft / paths.MAPPED_CSV, index=False)
        counts = {"slides": len(mapped), "cells": int(mapped["num_cells"].sum())}
        warnings = _unlike_training(mapped)
        write_metrics(draft, {**counts, "warnings": warnings}, provenance, summary=counts)
    for line in warnings:
        _LOG.warning("heatmap: %s", line)
    shutil.rmtree(paths.unfinished_folder(stage), ignore_errors=True)
    _LOG.info("heatmap: output=%s slides=%d cells=%d", folder, counts["slides"], counts["cells"])


def _make_folders(folder: Path) -> None:
    for name in (*MODELS, paths.PLOTS):
        (folder / name).mkdir()


def _jobs(
    run: Run, slides: pd.DataFrame, fold_of: NDArray[np.int64], maps_in_training: bool
) -> list[SlideJob]:
    """Slides with the models that map them; `fold_of`: fold per slide, -1 for slides outside training."""
    last, folds = run.models, run.folds
    columns = (*(slides[name] for name in ("slide_id", "path", "mpp", "outlines")), fold_of.tolist())
    jobs = []
    for slide_id, path, mpp, outlines, fold in zip(*columns, strict=True):
        models = dict(last)
        if fold >= 0:
            models = {name: folds[name] / paths.fold_model(fold) for name in MODELS}
            lacking = [(name, path) for name, path in models.items() if not path.is_file()]
            if lacking:
                name, missing = lacking[0]
                stage = "finetune" if name == FINETUNED else "consistency"
                raise InputError(
                    f"{folds[STUDENT] / paths.FOLDS_CSV}: slide {slide_id} needs fold {fold}, but {missing} is "
                    f"missing. Fix: run `dvc repro {stage}`"
                )
            models |= {f"{name}{IN_TRAINING}": path for name, path in last.items() if maps_in_training}
        given = None if np.isnan(mpp) else float(mpp)
        jobs.append(SlideJob(slide_id, Path(path), given, models, outlines=outlines))
    return jobs


def _settings(run: Run, assembly: Assembly) -> tuple[MapPlan, tuple[str, ...]]:
    """Map settings, and the mapped classes: the positive one of two, else all."""
    params, section = assembly.params, assembly.params.heatmap_section
    assert section is not None
    path = run.models[FINETUNED]
    description = describe_file(path)
    assembly.task.check_fits(description, path)
    mpp = patches_mpp(description, path)
    settings = MapPlan(
        patch_px=params.input_px,
        mpp=mpp,
        stride_um=params.patch_px * mpp if section.stride_um is None else section.stride_um,
        tissue=TissueRules(params.index.tissue_mpp, params.index.artefacts),
        min_tissue_fraction=params.heatmap.min_tissue_fraction,
        batch_size=params.evaluate.batch_size,
    )
    known = description["classes"]
    try:
        mapped = mapped_classes(known, section.positive_class if known else None)
    except InputError as error:
        raise InputError(f"heatmap.{params.dataset}.positive_class: {error}") from None
    return settings, mapped if len(known or ()) < 3 else tuple(known)


def _work(run: Run, params: Params, settings: MapPlan, classes: tuple[str, ...]) -> MapWork | HeadMapWork:
    """Work that maps a slide: heads read stored features where these have the cells of the map."""
    if params.finetune.mode != "head":
        return MapWork(settings, classes)
    stored = StoredRows.of_encoder(params, run.method, run.encoder)
    folder = paths.features_folder(run.method, run.encoder)
    has = read_json(folder / paths.METRICS, "run the stage features again", {"settings": {str: object}})[
        "settings"
    ]
    if differing := other_places(has, settings):
        _LOG.info("heatmap: encoding patches, as of the features %s", differing)
        return MapWork(settings, classes)
    for path in run.models.values():
        stored.check_model(path)
    return HeadMapWork(settings, classes, folder, stored.encoder_sha256, stored.depths[-1])


def _write_maps(
    folder: Path, slides: pd.DataFrame, params: Params, classes: tuple[str, ...], processes: int
) -> pd.DataFrame:
    """Write maps, overlays and outlines; slide table with the number of cells."""
    section = params.heatmap
    style = MapStyle(
        classes, section.overlay_mpp, section.region_threshold, **dataclasses.asdict(section.detection)
    )
    shown = _for_mosaic(slides)
    rows: list[dict[str, Any]] = slides.to_dict("records")  # type: ignore[assignment]
    work = partial(write_maps_of_slide, folder=folder, scores=folder / paths.SCORES, style=style)
    jobs = (rows, [i in shown for i in range(len(rows))])
    processes = max(1, min(processes, len(rows) // SLIDES_PER_PROCESS))
    done = list(
        map_over_processes(work, *jobs, processes=processes, title="maps", unit="slide", start="spawn")
    )
    titles = ["slide", "reference", *MODELS]
    shown_columns = list(range(len(titles)))
    if not (slides["annotation"] != "").any() and not slides["exhaustive"].any():  # the slide has no outlines
        shown_columns = [0, *range(2, len(titles))]
    pictures = [(row_title(rows[i]), [done[i][1][column] for column in shown_columns]) for i in shown]
    titles = [titles[column] for column in shown_columns]
    picture = map_mosaic(pictures, titles, quantity=style.quantity, classes=style.classes)
    image.imsave(folder / paths.PLOTS / MOSAIC, picture)
    mapped = slides.assign(num_cells=[num for num, *_ in done])
    unlike = pd.DataFrame([fractions for *_, fractions in done]).add_prefix(f"{UNLIKE}_").round(4)
    return mapped.join(unlike.dropna(axis=1, how="all").set_index(mapped.index))


def _unlike_training(mapped: pd.DataFrame) -> list[str]:
    """Warning, if any, about slides unlike the labeled patches of a model; a line in the log without such patches."""
    unlike = mapped.filter(regex=f"^{UNLIKE}_")
    if unlike.shape[1] == 0:
        _LOG.info("heatmap: models hold no labeled patches, so maps have no distance to them")
        return []
    return unlike_slides(dict(zip(mapped["slide_id"], unlike.max(axis=1).tolist(), strict=True)))


def _for_mosaic(slides: pd.DataFrame) -> list[int]:
    """Indices for the mosaic: test slides first; per split macrometastases, micrometastases, normal."""
    order = pd.DataFrame(
        {
            "split": slides["split"].map({"test": 0, "validation": 1, "train": 2}),
            "label": slides["label"] != TUMOR,
            "size": slides["size"].map({"macro": 0, "micro": 1}).fillna(2),
        }
    ).sort_values(["split", "label", "size"], kind="stable")
    return [int(i) for i in order.index[:NUM_IN_MOSAIC]]
