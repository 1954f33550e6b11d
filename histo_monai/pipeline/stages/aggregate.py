"""Stage `aggregate`: maps -> features, classifiers, slide AUC, FROC."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import image

from histo_monai.data.readers.registry import DATASETS
from histo_monai.data.tables.columns import read_whole_slides
from histo_monai.data.tables.folds import why_no_diagnosis
from histo_monai.data.tables.slide_scores import ID_COLUMNS
from histo_monai.data.tables.tasks import patient_or_slide
from histo_monai.evaluation.metrics import Estimate
from histo_monai.evaluation.metrics.froc import FALSE_POSITIVES_PER_SLIDE, Froc, froc
from histo_monai.pipeline import paths
from histo_monai.pipeline.params import Params, load_params
from histo_monai.pipeline.paths import Run
from histo_monai.pipeline.provenance import made_from, without_ids, write_metrics
from histo_monai.pipeline.skip import has_patches
from histo_monai.reports.slide_figures import froc_curves, roc
from histo_monai.slides.annotations import Frame, Outline, Region
from histo_monai.slides.annotations.outlines import read_regions
from histo_monai.slides.tiles.grid import Grid
from histo_monai.utils.roles import MODELS
from histo_monai.utils.storage import whole_folder
from histo_monai.wsi.diagnosis.detections import find_detections
from histo_monai.wsi.diagnosis.diagnose import Learning, cell_auc, diagnose, shuffled_control, slide_estimates
from histo_monai.wsi.diagnosis.features import FEATURES, slide_features
from histo_monai.wsi.diagnosis.lesions import LesionMask, evaluation_mask, match
from histo_monai.wsi.heatmaps.heatmap import IN_TRAINING, Heatmap, column_of, read_heatmap

_LOG = logging.getLogger(__name__)

FEW_PATIENTS = 30
CLASSIFIERS = "classifiers"
NOT_MAPPED = "this run maps no slide, so it diagnoses none"


def run(method: str, encoder: int, student: str, seed: int) -> None:
    """Write data/diagnosis/<run>: features.csv, slides.csv, metrics.json, classifiers/, plots/.

    Without slide labels of both kinds in training and test it writes features only; metrics.json states the reason.

    Raises:
        InputError: scores are missing, or there are too few training slides.
    """
    of_run = Run(method, encoder, seed, student)
    params = load_params(paths.PARAMS)
    scores = of_run.heatmaps / paths.SCORES
    slides = read_whole_slides(paths.WHOLE_SLIDES_CSV)
    is_left_out = len(slides) > 0 and not (params.is_mapped_by(method, encoder, student) and has_patches())
    if is_left_out:
        slides = slides.iloc[:0]
    files = [scores / f"{slide_id}.csv" for slide_id in slides["slide_id"]]
    files += [Path(name) for name in slides["annotation"] if name]
    provenance = made_from(params, [paths.WHOLE_SLIDES_CSV, *files])
    maps = {slide_id: read_heatmap(scores / f"{slide_id}.csv") for slide_id in slides["slide_id"]}
    slides = slides.set_index("slide_id", drop=False).rename_axis(None)
    features = {
        column: table
        for name in MODELS
        for column, table in _features(maps, name, params.positive_class).items()
    }
    why = NOT_MAPPED if is_left_out else why_no_diagnosis(slides, params.positive_class, _classes(maps))
    why_not = [why] if why else []
    with whole_folder(of_run.diagnosis) as draft:
        (draft / CLASSIFIERS).mkdir()
        (draft / paths.PLOTS).mkdir()
        _write_features(draft / paths.FEATURES_CSV, slides, features)
        rows = slides[list(ID_COLUMNS)]
        metrics: dict[str, Any] = {"warnings": why_not}
        if not why_not:
            more, metrics = _diagnose(draft, slides, maps, features, params, provenance)
            rows = rows.join(more)
        rows.to_csv(draft / paths.MAPPED_CSV, index=False, float_format="%.6g")
        write_metrics(draft, metrics, provenance, summary=summarize(metrics))
    for line in metrics["warnings"]:
        _LOG.log(logging.INFO if is_left_out else logging.WARNING, "%s", line)
    for name, value in summarize(metrics).items():
        _LOG.info("aggregate: %s: %s", name, " ".join(f"{model}={x:.3f}" for model, x in value.items()))


def summarize(metrics: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Main numbers: {"test_slide_auc": {"finetuned": 0.9, "student": 0.9}, ...}."""
    return {
        f"test_{metric}": {model: of_model[metric]["value"] for model, of_model in metrics["test"].items()}
        for metric in metrics.get("test", {}).get(MODELS[0], {})
        if not metric.startswith("sensitivity")
    }


def _features(maps: Mapping[str, Heatmap], model: str, positive: str) -> dict[str, pd.DataFrame]:
    """Features of every slide per map column: a model's own, and its `_seen` column if a slide has one.

    With several classes: features of the positive class; without it features of each class, and no diagnosis.
    """
    columns = list(FEATURES)
    classes = _classes(maps)
    if classes and positive not in classes:
        return {
            column_of(model, label): pd.DataFrame.from_dict(
                {name: slide_features(heatmap, column_of(model, label)) for name, heatmap in maps.items()},
                orient="index",
                columns=columns,
            )
            for label in classes
        }
    own = {
        slide_id: slide_features(heatmap, heatmap.column(model, positive))
        for slide_id, heatmap in maps.items()
    }
    in_training = {
        slide_id: slide_features(heatmap, heatmap.column(f"{model}{IN_TRAINING}", positive))
        for slide_id, heatmap in maps.items()
        if heatmap.column(f"{model}{IN_TRAINING}", positive) in heatmap.values
    }
    tables = {model: own, f"{model}{IN_TRAINING}": own | in_training} if in_training else {model: own}
    return {
        name: pd.DataFrame.from_dict(rows, orient="index", columns=columns) for name, rows in tables.items()
    }


def _classes(maps: Mapping[str, Heatmap]) -> list[str]:
    """Mapped classes, if several."""
    columns = {column: None for heatmap in maps.values() for column in heatmap.values}
    return list(
        dict.fromkeys(label for _, separator, label in (name.partition(":") for name in columns) if separator)
    )


def _write_features(path: Path, slides: pd.DataFrame, features: Mapping[str, pd.DataFrame]) -> None:
    """Write one row per slide and map."""
    parts = [slides[list(ID_COLUMNS)].assign(map=name).join(table) for name, table in features.items()]
    pd.concat(parts).to_csv(path, index=False, float_format="%.9g")


def _diagnose(
    folder: Path,
    slides: pd.DataFrame,
    maps: Mapping[str, Heatmap],
    features: Mapping[str, pd.DataFrame],
    params: Params,
    provenance: Mapping[str, Any],
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Slide scores and metrics; writes classifiers and plots."""
    section = params.aggregate
    learning = Learning(section.kernel, section.C, section.gamma, section.num_folds, section.seed)
    slides = slides[slides["label"] != ""]
    features = {column: table.loc[slides.index] for column, table in features.items()}
    is_tumor = (slides["label"] == params.positive_class).to_numpy()
    test = (slides["split"] == "test").to_numpy()
    groups = patient_or_slide(slides).to_numpy(dtype=object)
    truth = _truth(slides, maps, params)
    outlined = slides[test & slides["exhaustive"].to_numpy()]
    masks = {slide_id: _lesion_mask(maps[slide_id].grid, truth[slide_id]) for slide_id in outlined.index}
    estimates: dict[str, dict[str, Estimate]] = {}
    scores: dict[str, pd.DataFrame] = {}
    curves: dict[str, Froc | None] = {}
    classifiers = {}
    for name in MODELS:
        held_out, in_training = features[name], features.get(f"{name}{IN_TRAINING}")
        classifier, scores[name] = diagnose(
            held_out, in_training, is_tumor, slides["split"], learning, groups
        )
        classifier.save(folder / CLASSIFIERS / f"{name}.safetensors", without_ids(provenance))
        cv_auc = round(classifier.cv_auc, 6) if np.isfinite(classifier.cv_auc) else None
        classifiers[name] = {"chosen": dict(classifier.chosen), "cv_auc": cv_auc}
        estimates[name] = slide_estimates(
            is_tumor[test], slides.loc[test, "size"], scores[name][test], groups[test]
        )
        if section.num_permutations:
            control = shuffled_control(
                held_out, is_tumor, slides["split"], learning, groups, section.num_permutations
            )
            estimates[name]["slide_auc_of_shuffled_labels"] = control
        curves[name] = curve = _lesions(outlined, maps, masks, name, params)
        if curve is not None:
            estimates[name] |= {"froc": curve.score} | {
                f"sensitivity_at_{x:g}": y for x, y in curve.sensitivities.items()
            }
    _draw(
        folder / paths.PLOTS,
        is_tumor[test],
        {n: table[test] for n, table in scores.items()},
        estimates,
        curves,
    )
    metrics = {
        "test": {
            name: {metric: x.as_dict() for metric, x in some.items()} for name, some in estimates.items()
        },
        "cell_auc": {name: _map_quality(slides, maps, truth, name, params.positive_class) for name in MODELS},
        "classifiers": classifiers,
        "num_lesions": next((curve.num_lesions for curve in curves.values() if curve is not None), 0),
        "warnings": _warnings(groups[test], classifiers),
    }
    return pd.concat([table.add_prefix(f"{name}_") for name, table in scores.items()], axis=1), metrics


def _truth(slides: pd.DataFrame, maps: Mapping[str, Heatmap], params: Params) -> dict[str, list[Region]]:
    """Lesion outlines of each slide."""
    dataset = DATASETS[params.dataset]
    files = zip(slides["slide_id"], slides["annotation"], slides["annotation_origin"], strict=True)
    return {
        slide_id: dataset.lesions(
            read_regions(file, Frame(maps[slide_id].grid.bounds_yx, origin)), params.positive_class
        )
        if file
        else []
        for slide_id, file, origin in files
    }


def _lesion_mask(grid: Grid, regions: list[Region]) -> LesionMask:
    outlines = [Outline(region.name, region.label, region.exterior_yx) for region in regions]
    holes = [Outline("", "", hole) for region in regions for hole in region.holes_yx]
    return evaluation_mask(outlines, holes, slide_mpp=grid.slide_mpp, size_yx=grid.size_yx)


def _lesions(
    slides: pd.DataFrame,
    maps: Mapping[str, Heatmap],
    masks: Mapping[str, LesionMask],
    model: str,
    params: Params,
) -> Froc | None:
    """FROC curve over slides with all lesions outlined; None without such slides or lesions."""
    if slides.empty:
        return None
    matches = []
    for slide_id in slides.index:
        heatmap, positive = maps[slide_id], params.positive_class
        column = heatmap.column(model, positive)
        points = find_detections(heatmap, column, **asdict(params.heatmap.detection), label=positive)
        matches.append(match(points, masks[slide_id]))
    curve = froc(matches, groups=patient_or_slide(slides).to_numpy(dtype=object), seed=params.aggregate.seed)
    return curve if curve.num_lesions else None


def _map_quality(
    slides: pd.DataFrame,
    maps: Mapping[str, Heatmap],
    truth: Mapping[str, list[Region]],
    model: str,
    positive: str,
) -> dict[str, float | None]:
    """AUC of cells against outlines, separately for slides held out from training and used in training."""
    aucs = {}
    for split in ("train", "validation", "test"):
        ids = list(slides.index[(slides["split"] == split) & slides["exhaustive"]])
        if not ids:
            continue
        some = {slide_id: maps[slide_id] for slide_id in ids}
        for name, end in ((model, ""), (f"{model}{IN_TRAINING}", IN_TRAINING)):
            columns = {slide_id: heatmap.column(name, positive) for slide_id, heatmap in some.items()}
            if all(columns[slide_id] in heatmap.values for slide_id, heatmap in some.items()):
                aucs[f"{split}{end}"] = cell_auc(some, columns, truth)
    return {name: round(value, 6) if np.isfinite(value) else None for name, value in aucs.items()}


def _warnings(test_groups: np.ndarray, classifiers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    warnings = []
    if any(classifier["cv_auc"] is None for classifier in classifiers.values()):
        warnings.append(
            "a class has slides of one training patient: C and gamma are the smallest values, not selected"
        )
    num_patients = len(set(test_groups))
    if num_patients < FEW_PATIENTS:
        of_patients = f" of {num_patients} patients" if num_patients < len(test_groups) else ""
        counted = f"{len(test_groups)} test slides{of_patients}"
        warnings.append(f"only {counted}: intervals are wide")
    return warnings


def _draw(
    folder: Path,
    is_tumor: np.ndarray,
    scores: Mapping[str, pd.DataFrame],
    estimates: Mapping[str, Mapping[str, Estimate]],
    curves: Mapping[str, Froc | None],
) -> None:
    """Plot the slide ROC curve, and the lesion FROC curve if there are lesions."""
    areas = {name: metrics["slide_auc"] for name, metrics in estimates.items()}
    image.imsave(
        folder / "roc.png", roc(is_tumor, {name: table["score"] for name, table in scores.items()}, areas)
    )
    known = {name: curve for name, curve in curves.items() if curve is not None}
    if known:
        lines = {name: (curve.fps_per_slide, curve.sensitivity) for name, curve in known.items()}
        picture = froc_curves(lines, {name: c.score for name, c in known.items()}, FALSE_POSITIVES_PER_SLIDE)
        image.imsave(folder / "froc.png", picture)
