"""Stage `report`: results of a run -> one page with charts and a slide viewer."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from histo_monai.data.loaders.reader import PatchReader
from histo_monai.data.tables.columns import SPLITS, read_surveyed_slides, read_whole_slides
from histo_monai.data.tables.patches import read_patches
from histo_monai.data.tables.predictions import Predictions, read_predictions
from histo_monai.data.tables.slide_scores import ID_COLUMNS
from histo_monai.evaluation.baselines.models import MAJORITY
from histo_monai.evaluation.comparison.rows import Row
from histo_monai.evaluation.conformal import read_calibration
from histo_monai.evaluation.doubtful import NEIGHBORS, read_doubtful
from histo_monai.evaluation.metrics.estimate import ESTIMATE_SHAPE
from histo_monai.models.card import CARD_SHAPE
from histo_monai.pipeline import paths
from histo_monai.pipeline.environment import num_cpus
from histo_monai.pipeline.params import Params, load_params
from histo_monai.pipeline.paths import Run, encoder_folder, runs
from histo_monai.pipeline.provenance import (
    PROVENANCE_SHAPE,
    check_diagnoses,
    check_slides,
    made_from,
    write_metrics,
)
from histo_monai.pipeline.skip import REASON, why_idle
from histo_monai.reports.site.about import cards_section, data_section, run_section
from histo_monai.reports.site.answers import answers_section, cases, path_of
from histo_monai.reports.site.assets import PAGE, without_libraries, write_page
from histo_monai.reports.site.blocks import Picture, Section
from histo_monai.reports.site.doubtful import NUM_PICTURES, caption, doubtful_section, strip
from histo_monai.reports.site.doubtful import path_of as strip_path
from histo_monai.reports.site.of_slide import ShownSlide, Tiling, write_shown_slide
from histo_monai.reports.site.results import Majority, comparison_section, results_section
from histo_monai.reports.site.training import of_start, pretraining_section, training_section, why_chosen
from histo_monai.reports.site.vendor import found
from histo_monai.reports.site.whole import in_order_of_interest, slides_section
from histo_monai.reports.tables import SplitTable
from histo_monai.utils.errors import InputError
from histo_monai.utils.files.csv_values import read_varied_csv
from histo_monai.utils.process.processes import map_over_processes
from histo_monai.utils.roles import FINETUNED, MODELS
from histo_monai.utils.storage import read_json, whole_folder
from histo_monai.utils.storage.shapes import COUNT, Rule

_LOG = logging.getLogger(__name__)

PICTURES, SLIDES = "pictures", "slides"
NO_LIBRARIES = without_libraries("charts and the viewer of slides", "dvc repro -s -f report")

_COMPARISON = {"title": str, "about": {str: str}, "warnings": [str], "provenance": PROVENANCE_SHAPE}
_LABELS, _CHECKED = {"warnings?": [str]}, {"data_warnings?": [str]}
_COUNTS = {"patches_train?": COUNT}
_TRAINED = {f"num_{name}?": COUNT for name in ("labeled", "validation", "unlabeled", "diagnoses")}
_CHOICE = {
    "chosen": Rule(" or ".join(MODELS), lambda value: value in tuple(MODELS)),
    "measure?": str,
    "difference?": {**ESTIMATE_SHAPE, "value": float},
    "why?": str,
    "interpolation_weight": float,
}
_DIAGNOSIS = {"test?": {str: {str: (ESTIMATE_SHAPE, float)}}}
"""Shapes of other stages' outputs."""


def run() -> None:
    """Write data/report: index.html, assets/, pictures/, cases/, slides/, metrics.json.

    Raises:
        InputError: an output of an earlier stage is missing or malformed.
    """
    params = load_params(paths.PARAMS)
    comparison = read_json(paths.COMPARISON / paths.METRICS, "run `dvc repro compare` again", _COMPARISON)
    main = _main_run(params)
    for run in runs(params.pretraining_methods, params.semisupervised_methods, params.repeats):
        check_diagnoses(run, params)
    predictions = _predictions(main)
    libraries = found()
    warnings = [] if libraries else [NO_LIBRARIES]
    files = [paths.COMPARISON / paths.METRICS, paths.INDEX / paths.METRICS]
    provenance = made_from(params, files)
    with whole_folder(paths.REPORT) as draft:
        (draft / PICTURES).mkdir()
        sections = [
            _results(comparison, predictions, main, warnings),
            comparison_section(_splits(comparison)),
            _whole_slides(draft, params, main),
            _answers(draft, predictions, main),
            _doubtful(draft, main),
            _training(draft, main),
            _pretraining(draft, params),
            _data(draft),
            cards_section(_cards(main)),
            run_section(paths.PARAMS.read_text(encoding="utf-8"), comparison["provenance"]),
        ]
        write_page(draft, comparison["title"], _subtitle(params, main), sections, libraries)
        write_metrics(draft, {"run": main.name, "warnings": warnings}, provenance)
    for line in warnings:
        _LOG.warning("%s", line)
    _LOG.info("report: page=%s; open it, or run `python -m histo_monai report --serve`", paths.REPORT / PAGE)


def _main_run(params: Params) -> Run:
    """The run shown in detail: the first that maps slides, else the first."""
    mapped = runs(*params.mapping, params.mapped_repeats)
    return (mapped or runs(params.pretraining_methods[-1:], params.semisupervised_methods, params.repeats))[0]


def _subtitle(params: Params, main: Run) -> str:
    kind = "simulated slides" if params.source == "phantom" else "slides of your own"
    num = len(runs(params.pretraining_methods, params.semisupervised_methods, params.repeats))
    return f"{params.dataset}, {kind}. {num} run{'s' * (num > 1)}. Details show the run {main.name}."


def _splits(comparison: Mapping[str, Any]) -> list[SplitTable]:
    """Tables of the comparison, the main split first."""
    if not comparison["about"]:
        return []
    names = ("split", "metric", "method", "training", "first", "second")
    table = read_varied_csv(paths.COMPARISON / "table.csv", names, stage="compare")
    tests = read_varied_csv(paths.COMPARISON / "tests.csv", names, stage="compare")
    table["model"] = [Row(*names).id for names in table[["method", "training"]].itertuples(index=False)]
    parts = [
        SplitTable(split, about, table[table["split"] == split], tests[tests["split"] == split])
        for split, about in comparison["about"].items()
    ]
    order = {"test": 0, "validation": 2}
    return sorted(parts, key=lambda part: order.get(part.split, 1))


def _results(
    comparison: Mapping[str, Any], predictions: Predictions | None, main: Run, warnings: Sequence[str]
) -> Section:
    labels = read_json(paths.LABELS_JSON, "run `dvc repro index` again", _LABELS)
    counts = read_json(paths.INDEX / paths.METRICS, "run `dvc repro index` again", _COUNTS)
    trained = read_json(main.student_folder / paths.METRICS, "run consistency again", _TRAINED)
    used = trained.get("num_labeled", 0)
    unlabeled = trained.get("num_unlabeled", used) - used
    num, of_slides = counts.get("patches_train", 0), _num_slide_labels(comparison)
    of_all = f"{used:,} of {num:,} labels were used" if num else f"{of_slides:,} labels of slides were used"
    if selecting := trained.get("num_validation", 0):
        of_all += f", and {selecting:,} further labels selected the model: {used + selecting:,} labels in all"
    if diagnoses := trained.get("num_diagnoses", 0):
        of_all += f", and the student used {diagnoses:,} diagnoses of slides"
    if num and of_slides:
        of_all += f"; models of slides learned from {of_slides:,} labels of slides"
    beside = f", and {unlabeled:,} patches without labels" if unlabeled else ""
    mapped = read_json(main.heatmaps / paths.METRICS, "run heatmap again", _LABELS)
    of_all_stages = (comparison["warnings"], labels.get("warnings", []), mapped.get("warnings", []))
    known = [*warnings, *(line for lines in of_all_stages for line in lines)]
    return results_section(_splits(comparison), known, f"{of_all}{beside}.", _majority(predictions))


def _num_slide_labels(comparison: Mapping[str, Any]) -> int:
    """Labels of slides that models of slides learned from, if there are such models."""
    if not set(comparison["about"]) - set(SPLITS):
        return 0
    slides = read_whole_slides(paths.WHOLE_SLIDES_CSV)
    return int(((slides["split"] != "test") & (slides["label"] != "")).sum())


def _majority(part: Predictions | None) -> Majority | None:
    """Accuracy of the most frequent label."""
    if part is None or part.classes is None or MAJORITY not in part.predictions:
        return None
    always = part.predictions[MAJORITY].argmax(axis=1)
    right = float((always == part.references[""]).mean())
    return Majority(part.classes[always[0]], right, part.splits[0])


def _predictions(main: Run) -> Predictions | None:
    """Predictions of the detailed run on test patches, else validation patches; None without either."""
    if why_idle(main.evaluation):
        return None
    predictions = read_predictions(main.evaluation / paths.PREDICTIONS)
    return predictions.of_split(predictions.splits[-1])


def _answers(draft: Path, part: Predictions | None, main: Run) -> Section:
    if part is None:
        return answers_section(None, main.name, {})
    patches = read_patches(paths.PATCHES_CSV).set_index("patch_id", drop=False)
    params = load_params(paths.PARAMS)
    pictures = {}
    (draft / "cases").mkdir()
    for title, some in cases(part).items():
        rows = patches.loc[part.rows["patch_id"].iloc[[case.row for case in some]]]
        pixels = PatchReader(rows, patch_px=params.patch_px).read(np.arange(len(rows)))
        file_paths = [path_of(title, i) for i in range(len(some))]
        for path, patch in zip(file_paths, pixels, strict=True):
            Image.fromarray(patch.transpose(1, 2, 0)).save(draft / path)
        pictures[title] = [
            Picture(path.as_posix(), f"Patch: {case.caption}", case.caption, pixels=True)
            for path, case in zip(file_paths, some, strict=True)
        ]
    return answers_section(part, main.name, pictures)


def _doubtful(draft: Path, main: Run) -> Section:
    path = main.folds[FINETUNED] / paths.DOUBTFUL
    if not path.is_file():
        return doubtful_section(None, [])
    patches = read_patches(paths.PATCHES_CSV).set_index("patch_id", drop=False)
    table = read_doubtful(path, has_scores=bool(patches["score"].notna().any()))
    params, pictures = load_params(paths.PARAMS), []
    (draft / "doubtful").mkdir()
    for number, row in enumerate(table[:NUM_PICTURES].to_dict("records")):
        near = [row[name] for name in NEIGHBORS if row[name]]
        rows = patches.loc[[row["patch_id"], *near]]
        pixels = PatchReader(rows, patch_px=params.patch_px).read(np.arange(len(rows)))
        file = strip_path(number)
        Image.fromarray(strip(pixels)).save(draft / file)
        given = rows["label"] if "label" in row else rows["score"].map("{:.2f}".format)
        text = caption(row, list(given[1:]))
        pictures.append(Picture(file.as_posix(), f"Patch and its neighbors: {text}", text, pixels=True))
    return doubtful_section(table, pictures, read_calibration(main.models[FINETUNED]))


def _training(draft: Path, main: Run) -> Section:
    if why_idle(main.student_folder):
        return training_section(None, None, main.name, "", [])
    choice = read_json(
        main.student_folder / paths.CHOICE,
        "run consistency again",
        _CHOICE,
    )
    why = why_chosen(choice)
    pairs = _copied(draft, main.student_folder / paths.PAIRS, "pairs.png")
    student, finetuned = (
        read_varied_csv(folder / paths.CURVES, stage=stage)
        for folder, stage in ((main.student_folder, "consistency"), (main.finetuned, "finetune"))
    )
    return training_section(
        student, finetuned, main.name, pairs, [*of_start(choice["interpolation_weight"]), why]
    )


def _pretraining(draft: Path, params: Params) -> Section:
    curves, pictures = {}, []
    for method in params.pretraining_methods:
        folder = encoder_folder(method, params.pretraining_seeds[0])
        curves[folder.name] = read_varied_csv(folder / paths.CURVES, stage="pretrain")
        if len(curves[folder.name]) and (folder / paths.ANSWERS).is_file():
            path = _copied(draft, folder / paths.ANSWERS, f"answers-{folder.name}.png")
            pictures.append(Picture(path, f"Tasks and predictions of {folder.name}", folder.name))
    return pretraining_section(curves, pictures)


def _whole_slides(draft: Path, params: Params, main: Run) -> Section:
    counted = read_varied_csv(main.heatmaps / paths.MAPPED_CSV, ["slide_id"], stage="heatmap")
    num_cells = counted.set_index("slide_id")["num_cells"] if len(counted) else pd.Series(dtype=int)
    whole = read_whole_slides(paths.WHOLE_SLIDES_CSV)
    mapped = whole[whole["slide_id"].isin(num_cells.index)]
    mapped = mapped.assign(num_cells=num_cells.reindex(mapped["slide_id"]).to_numpy(int))
    check_slides([mapped])
    scores = read_varied_csv(main.diagnosis / paths.MAPPED_CSV, ID_COLUMNS, stage="aggregate")
    estimates = read_json(main.diagnosis / paths.METRICS, "run aggregate again", _DIAGNOSIS).get("test", {})
    shown = in_order_of_interest(mapped, scores, params.positive_class).head(params.report.num_slides)
    rows: list[dict[str, Any]] = shown.to_dict("records")  # type: ignore[assignment]  # its keys are texts
    radius_um = params.heatmap.detection.radius_um
    jobs = [ShownSlide.of(row, main.heatmaps, radius_um) for row in rows]
    (draft / SLIDES).mkdir()
    tiling = Tiling(draft, paths.REPORT, SLIDES, params.report.slide_mpp, params.report.max_side_px)
    write = partial(write_shown_slide, tiling=tiling)
    made = list(map_over_processes(write, jobs, processes=num_cpus(), title="tiles", unit="slide"))
    entries = [entry for entry, _ in made]
    classes = made[0][1] if made else ()
    why = (
        "slide_level in params.yaml requests maps" if len(whole) else f"{params.dataset} names no whole slide"
    )
    return slides_section(mapped, scores, main.name, entries, classes, estimates, params.positive_class, why)


def _data(draft: Path) -> Section:
    whole = read_whole_slides(paths.WHOLE_SLIDES_CSV)
    corpus = read_surveyed_slides(paths.SLIDES_CSV).assign(label="")
    slides = pd.concat([whole, corpus])[["slide_id", "path", "split", "label"]].drop_duplicates("path")
    counts = read_json(paths.INDEX / paths.METRICS, "run `dvc repro index` again", _COUNTS)
    audit = read_json(paths.LABELS_JSON, "run `dvc repro index` again", _LABELS).get("warnings", [])
    data_warnings = []
    if (paths.CHECK / paths.METRICS).is_file():
        checked = read_json(paths.CHECK / paths.METRICS, "run `dvc repro check` again", _CHECKED)
        data_warnings = checked.get("data_warnings", [])
    surveyed = sorted((paths.CHECK / SLIDES).glob("*.jpg"), key=lambda path: int(path.stem))
    pictures = [
        Picture(_copied(draft, path, f"slide-{path.name}"), "A slide, its tissue and its patches")
        for path in surveyed
    ]
    patches = read_patches(paths.PATCHES_CSV)
    notes = list(dict.fromkeys([*audit, *data_warnings]))
    return data_section(slides, patches, counts, notes, pictures)


def _cards(main: Run) -> dict[str, Mapping[str, Any]]:
    described: dict[str, Mapping[str, Any]] = {}
    for name, path in main.models.items():
        about = read_json(path.with_suffix(".json"), "run its stage again", ({REASON: str}, CARD_SHAPE))
        if REASON not in about:
            described[f"{main.name}, {name}"] = about
    return described


def _copied(draft: Path, path: Path, name: str) -> str:
    """Path on the page of a copied picture."""
    if not path.is_file():
        raise InputError(f"{path}: not found. Fix: run its stage again")
    shutil.copyfile(path, draft / PICTURES / name)
    return f"{PICTURES}/{name}"
