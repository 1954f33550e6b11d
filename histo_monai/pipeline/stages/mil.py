"""Stage `mil`: patch features and slide labels -> attention pooling, cross-fitted."""

from __future__ import annotations

import dataclasses
import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import image
from numpy.typing import NDArray

from histo_monai.data.readers.registry import DATASETS
from histo_monai.data.tables.columns import read_whole_slides
from histo_monai.data.tables.folds import assign_folds
from histo_monai.data.tables.slide_classes import (
    NO_FOLD,
    TEST,
    SlideClasses,
    classes_to_learn,
    read_slide_classes,
    slide_classes_table,
)
from histo_monai.data.tables.tasks import patient_or_slide
from histo_monai.evaluation.comparison.rows import ATTENTION, MOMENTS, SLIDE_MODELS
from histo_monai.models.checkpoint import save_model
from histo_monai.pipeline import paths
from histo_monai.pipeline.environment import read_environment
from histo_monai.pipeline.imports import modules_sha256
from histo_monai.pipeline.params import Params, load_params
from histo_monai.pipeline.paths import Run
from histo_monai.pipeline.provenance import made_from, without_ids, write_metrics
from histo_monai.pipeline.skip import leave_empty, why_idle
from histo_monai.reports.maps.mosaic import map_mosaic
from histo_monai.reports.maps.slide_maps import MapStyle, SlidePicture
from histo_monai.reports.slide_figures import roc
from histo_monai.slides.annotations import Frame
from histo_monai.slides.annotations.outlines import read_regions
from histo_monai.training.resume import fingerprint
from histo_monai.utils.randomness import derive_seed, generator
from histo_monai.utils.storage import read_json, whole_folder
from histo_monai.wsi.heatmaps.heatmap import Heatmap, write_heatmap
from histo_monai.wsi.inference.patch_features import FeatureFile
from histo_monai.wsi.mil.bags import Bags
from histo_monai.wsi.mil.estimates import IN_OUTLINES, Estimates, attention_in_outlines, slide_estimates
from histo_monai.wsi.mil.training import CrossFitted, SavedNetworks, Slides, cross_fit

_LOG = logging.getLogger(__name__)

FEW_PATIENTS, NUM_SHOWN = 30, 8
_IN_WORDS = {ATTENTION: "attention", MOMENTS: "slide means"}
WEIGHTS, NETWORKS = "attention", "networks"
NO_SLIDES = "no_slides"
"""Key of the metrics.json of features: the reason why whole slides have no features."""
_FOLDERS = (WEIGHTS, NETWORKS, paths.PLOTS)


def run(method: str, encoder: int, seed: int) -> None:
    """Write data/mil/<run>: slides.csv, networks/, attention/, curves.csv, metrics.json, summary.json, plots/.

    The outputs are empty without slide labels.

    Raises:
        InputError: features are missing or damaged, or the training diverged.
    """
    of_run = Run(method, encoder, seed)
    params = load_params(paths.PARAMS)
    features = paths.features_folder(method, encoder)
    why = why_idle(features) or _no_slides(features)
    if why:
        files, table = (paths.MAPPED_CSV, paths.CURVES), paths.WHOLE_SLIDES_CSV
        leave_empty(of_run.mil, params, why, read=table, files=files, folders=_FOLDERS)
        return
    rows = read_whole_slides(paths.WHOLE_SLIDES_CSV)
    classes, _ = classes_to_learn(rows)
    file_paths = [features / f"{slide_id}.h5" for slide_id in rows["slide_id"]]
    slides, warnings = _slides(rows, classes, Bags(file_paths), params.mil.num_folds, of_run.derived_seed)
    environment = read_environment()
    environment.use_cpus()
    stage = f"mil-{of_run.name}"
    decided_by = [*of_run, dataclasses.asdict(params.mil), rows["content"].tolist()]
    read = [paths.WHOLE_SLIDES_CSV, features / paths.METRICS]
    key = fingerprint(decided_by, read, modules_sha256(cross_fit.__module__))
    found = cross_fit(
        slides,
        params.mil,
        seed=derive_seed(of_run.derived_seed, "mil"),
        device=environment.device,
        saved=SavedNetworks(paths.unfinished_folder(stage), key),
    )
    provenance = made_from(params, [paths.WHOLE_SLIDES_CSV, *file_paths], [rows])
    with whole_folder(of_run.mil) as draft:
        for name in _FOLDERS:
            (draft / name).mkdir()
        scored = slide_classes_table(rows, slides.folds, classes, found.probabilities)
        scored.to_csv(draft / paths.MAPPED_CSV, index=False, float_format="%.6g")
        paths.write_curves(draft / paths.CURVES, found.curves)
        _write_networks(draft / NETWORKS, found, classes, params, without_ids(provenance))
        maps = _write_weights(draft / WEIGHTS, rows, file_paths, found.weights)
        known = read_slide_classes(draft / paths.MAPPED_CSV)
        estimates = slide_estimates(known, seed=params.evaluate.seed)
        metrics = _metrics(known, estimates, found, rows, maps, params, warnings)
        _draw(draft / paths.PLOTS, known, estimates, rows, maps, params)
        write_metrics(draft, metrics, provenance, summary=summarize(metrics))
    shutil.rmtree(paths.unfinished_folder(stage), ignore_errors=True)
    for line in metrics["warnings"]:
        _LOG.warning("%s", line)
    for name, value in summarize(metrics).items():
        _LOG.info("mil: %s: %s", name, " ".join(f"{model}={x:.3f}" for model, x in value.items()))


def _no_slides(features: Path) -> str:
    """The reason why slides have no features; empty if they have."""
    about = read_json(features / paths.METRICS, "run its stage again", {f"{NO_SLIDES}?": str})
    return str(about.get(NO_SLIDES, ""))


def summarize(metrics: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Main numbers: {"test_macro_auc": {"attention": 0.9, "moments": 0.8}, ...}."""
    return {
        f"{part}_{metric}": {model: of_model[metric]["value"] for model, of_model in metrics[part].items()}
        for part in ("test", "cross_fitted")
        if part in metrics
        for metric in ("accuracy", "macro_auc")
    }


def _slides(
    rows: pd.DataFrame, classes: Sequence[str], bags: Bags, num_folds: int, seed: int
) -> tuple[Slides, list[str]]:
    """Training and test slides, and data warnings."""
    labels = pd.Index(classes).get_indexer(pd.Index(rows["label"])).astype(np.int64)
    bare = np.array([size == 0 for size in bags.sizes])
    teaches = (rows["split"] != "test").to_numpy() & (labels >= 0) & ~bare
    folds = np.full(len(rows), NO_FOLD, np.int64)
    folds[teaches] = assign_folds(rows[teaches], num_folds, generator(seed, "mil folds"))
    groups = patient_or_slide(rows).to_numpy(dtype=object)
    labels = np.where(teaches, labels, -1)  # labels of test slides are not used
    names = rows.loc[bare, "slide_id"].tolist()
    warnings = (
        [f"no tissue found on {', '.join(names[:5])}: predicted as the most frequent class"] if names else []
    )
    return Slides(bags, labels, folds, groups, len(classes)), warnings


def _write_networks(
    folder: Path, found: CrossFitted, classes: Sequence[str], params: Params, provenance: Mapping[str, Any]
) -> None:
    for fold, network in found.networks.items():
        about = {
            "kind": "attention pooling",
            "classes": list(classes),
            "num_features": network.head.in_features,
            "params": dataclasses.asdict(params.mil),
            "fold": fold,
            "provenance": provenance,
        }
        save_model(folder / f"{ATTENTION}-{fold}.safetensors", network.state_dict(), about)


def _write_weights(
    folder: Path, rows: pd.DataFrame, file_paths: Sequence[Path], weights: Sequence[NDArray[np.float32]]
) -> dict[str, Heatmap]:
    """Attention map of each slide, relative to its maximum."""
    maps = {}
    for slide_id, path, of_slide in zip(rows["slide_id"], file_paths, weights, strict=True):
        with FeatureFile(path) as file:
            features = file.read()
        largest = of_slide.max(initial=np.float32(1e-30))
        maps[slide_id] = Heatmap(
            features.grid, features.cells, features.tissue, {ATTENTION: of_slide / largest}
        )
        write_heatmap(folder / f"{slide_id}.csv", maps[slide_id])
    return maps


def _metrics(
    read: SlideClasses,
    estimates: Estimates,
    found: CrossFitted,
    rows: pd.DataFrame,
    maps: Mapping[str, Heatmap],
    params: Params,
    warnings: Sequence[str],
) -> dict[str, Any]:
    part = "test" if read.part == TEST else "cross_fitted"
    metrics_of_models = {
        model: {metric: x.as_dict() for metric, x in of_model.items()}
        for model, of_model in estimates.items()
    }
    metrics: dict[str, Any] = {
        part: metrics_of_models,
        "classes": list(read.classes),
        "moments": found.moments,
    }
    lesions = rows[
        rows["exhaustive"] & (rows["annotation"] != "") & rows["slide_id"].isin(read.rows["slide_id"])
    ]
    dataset = DATASETS[params.dataset]
    truth = {
        slide_id: dataset.lesions(
            read_regions(file, Frame(maps[slide_id].grid.bounds_yx, origin)), params.positive_class
        )
        for slide_id, file, origin in zip(
            lesions["slide_id"], lesions["annotation"], lesions["annotation_origin"], strict=True
        )
    }
    areas = attention_in_outlines({name: maps[name] for name in truth}, ATTENTION, truth)
    if areas:
        metrics[IN_OUTLINES] = {"mean_auc": round(float(np.mean(areas)), 6), "num_slides": len(areas)}
    about = []
    if read.part != TEST:
        about = ["no test slide has a label: each slide is scored by a network trained without it"]
    num_patients = len(set(read.groups))
    if num_patients < FEW_PATIENTS:
        of_patients = f" of {num_patients} patients" if num_patients < len(read.rows) else ""
        about += [f"{len(read.rows)} labeled {read.part}{of_patients}: intervals are wide"]
    return metrics | {"warnings": [*warnings, *about]}


def _draw(
    folder: Path,
    read: SlideClasses,
    estimates: Estimates,
    rows: pd.DataFrame,
    maps: Mapping[str, Heatmap],
    params: Params,
) -> None:
    """Plot the ROC curve of two classes, and the attention of some slides."""
    if len(read.classes) == 2 and len(set(read.rows["label"])) == 2:
        second = read.labels == 1
        scores = {_IN_WORDS[model]: read.predictions[model][:, 1] for model in SLIDE_MODELS}
        areas = {_IN_WORDS[model]: estimates[model]["slide_auc"] for model in SLIDE_MODELS}
        negative, positive = read.classes
        image.imsave(folder / "roc.png", roc(second, scores, areas, (negative, positive)))
    section = params.heatmap
    style = MapStyle(
        (), section.overlay_mpp, section.region_threshold, **dataclasses.asdict(section.detection)
    )
    shown = read.rows.assign(turn=read.rows.groupby("label").cumcount()).sort_values("turn", kind="stable")
    pictures = []
    of_slide = rows.set_index("slide_id")
    is_outlined = bool((rows["annotation"] != "").any())
    for slide_id, label in zip(shown["slide_id"][:NUM_SHOWN], shown["label"], strict=False):
        about, heatmap = of_slide.loc[slide_id], maps[slide_id]
        frame = Frame(heatmap.grid.bounds_yx, about["annotation_origin"])
        reference = read_regions(about["annotation"], frame) if about["annotation"] else []
        picture = SlidePicture.read(
            Path(about["path"]), heatmap, style, reference, is_exhaustive=bool(about["exhaustive"])
        )
        reference_or_none = [picture.truth()] if is_outlined else []
        columns_of_slide = [picture.thumbnail, *reference_or_none, picture.blended(heatmap, ATTENTION, ())]
        pictures.append((f"{slide_id} {label}", columns_of_slide))
    columns = ["slide", *["reference"] * is_outlined, ATTENTION]
    quantity = "attention / maximum"
    image.imsave(folder / "attention.png", map_mosaic(pictures, columns, quantity=quantity))
