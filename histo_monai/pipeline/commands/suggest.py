"""Command `suggest`: fine-tuned model and student -> regions to label next, as GeoJSON."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.index.candidates import Search
from histo_monai.evaluation.recommendation import read_recommendation
from histo_monai.pipeline import paths
from histo_monai.pipeline.context import Assembly
from histo_monai.pipeline.params import Params, load_params
from histo_monai.pipeline.paths import Run
from histo_monai.pipeline.provenance import check_slides
from histo_monai.pipeline.suggestions.doubtful import finetuned_run, suggest_doubtful
from histo_monai.pipeline.suggestions.first import encoder_file, suggest_first
from histo_monai.pipeline.suggestions.search import candidates_of, search_of
from histo_monai.pipeline.suggestions.squares import (
    bounds_corners,
    fields,
    folder_of,
    most_per_slide,
    places,
    taken,
    write_suggestions,
)
from histo_monai.pipeline.suggestions.stored import stored_embeddings
from histo_monai.reports.suggestions import MAX_SHOWN
from histo_monai.training.embedding import Embedding, embed
from histo_monai.utils.errors import InputError
from histo_monai.utils.randomness import generator
from histo_monai.utils.roles import FINETUNED, STUDENT
from histo_monai.utils.storage import check_own_folder, claim, own_folder
from histo_monai.wsi.suggestion import Fields, choose_diverse, disagreement, indecision
from histo_monai.wsi.typical import similar_groups

_LOG = logging.getLogger(__name__)


def run(
    method: str | None,
    encoder: int | None,
    student: str | None,
    seed: int | None,
    num: int,
    side_um: float | None,
    folder: str | None,
    first: bool = False,
    doubtful: bool = False,
    num_random: int = 0,
) -> None:
    """Write <slide_id>.geojson of each slide with a suggestion, suggestions.csv, a picture and the provenance.

    Args:
        method: pretraining method; None, with the next three: the run that `compare` recommends.
        encoder: pretraining seed.
        seed: training seed; it also selects candidates on slides with more than 500.
        num: number of regions; a warning states if fewer candidates differ.
        side_um: side of a square, µm; None for the model's patch.
        folder: output; None for data/suggestions/<run>, data/suggestions/first or data/suggestions/doubtful-<run>.
        num_random: number of further regions, sampled at random from all candidates apart from labeled ones.
        first: choose without a model, by the features of the pretraining's encoder; student and seed are not used.
        doubtful: labeled squares that the fine-tuning contradicts; student is not used.

    Raises:
        InputError: models or slides cannot be used, or no candidate qualifies.
        OutputError: the folder holds other files, or is locked by another process.
    """
    _check_options(num, side_um, first=first, doubtful=doubtful, num_random=num_random)
    params = load_params(paths.PARAMS)
    of_run = None
    if doubtful:
        of_run = finetuned_run(params, method, encoder, seed)
    elif not first:
        of_run = _run(method, encoder, student, seed)
    target = Path(folder).absolute() if folder else folder_of(of_run, doubtful=doubtful)
    inputs = _inputs(params)
    check_own_folder(target, inputs)
    with claim(target, target.with_name(f".{target.name}.lock")), own_folder(target, inputs) as draft:
        if doubtful and of_run:
            summary = suggest_doubtful(draft, params, of_run, num)
        elif of_run is None:
            summary = suggest_first(draft, params, encoder_file(params, method, encoder), num, side_um)
        else:
            summary = _suggest(draft, of_run, num, num_random, side_um)
    _LOG.info("suggest: output=%s %s", target, summary)


def _check_options(num: int, side_um: float | None, *, first: bool, doubtful: bool, num_random: int) -> None:
    """Refuse options that are out of range or exclude each other.

    Raises:
        InputError: names the option.
    """
    if num < 1:
        raise InputError(f"--num: {num} is below 1. Fix: give at least 1")
    if first and doubtful:
        raise InputError("--first and --doubtful: both are given. Fix: leave out one")
    if num_random < 0 or ((first or doubtful) and num_random):
        raise InputError(
            "--random: is negative, or stands beside --first or --doubtful. Fix: give 0 or more, or leave it out"
        )
    if doubtful and side_um is not None:
        raise InputError("--side-um: labeled squares have a side. Fix: leave it out with --doubtful")
    if side_um is not None and not 0 < side_um < math.inf:
        raise InputError(f"--side-um: {side_um:g} is not a positive number. Fix: give a side in µm")


def _run(method: str | None, encoder: int | None, student: str | None, seed: int | None) -> Run:
    """The requested run, else the recommended run."""
    given = (method, encoder, seed, student)
    if method is not None and encoder is not None and seed is not None and student is not None:
        return Run(method, encoder, seed, student)
    if given != (None, None, None, None):
        raise InputError(
            "--method and --seed: one is missing. Fix: give both, or neither for the recommended run"
        )
    found = read_recommendation(paths.CHOSEN)
    _LOG.info("suggest: model=%s, recommended by %s", found["model"], paths.CHOSEN)
    return Run(found["method"], found["encoder"], found["seed"], found["student"])


def _inputs(params: Params) -> list[Path]:
    """Paths of tables, outlines and further files of the input folder."""
    roots = {
        paths.dataset_folder(params.source, name) for name in (params.dataset, params.pretraining_dataset)
    }
    return [path for root in sorted(roots) for part in ("*", "annotations/*") for path in root.glob(part)]


def _suggest(draft: Path, run: Run, num: int, num_random: int, side_um: float | None) -> str:
    """Write the files; a one-line summary."""
    assembly = Assembly.read()
    task = assembly.task
    search = search_of(assembly.params, assembly.patches, side_um)
    candidates = candidates_of(
        assembly.params, assembly.patches, search, seed=run.derived_seed, processes=assembly.environment.cpus
    )
    check_slides([candidates, assembly.patches])
    embedding, labeled = _embeddings(assembly, run, search, candidates)
    uncertainty = _uncertainty(embedding)
    squares = fields(candidates.assign(mpp=search.side_um / candidates["side_px"]))
    labeled_squares = fields(taken(assembly.patches, candidates))
    chosen = choose_diverse(
        embedding.features,
        uncertainty,
        num,
        labeled_features=labeled.features,
        fields=squares,
        labeled_fields=labeled_squares,
        most_per_slide=most_per_slide(num, candidates["slide_id"].nunique()),
    )
    if not len(chosen):
        raise InputError(
            f"suggest: none of {len(candidates)} candidates is uncertain and unlike labeled patches. Fix: add slides"
        )
    if len(chosen) < num:
        _LOG.warning(
            "suggest: regions=%d requested=%d; further candidates are certain or similar", len(chosen), num
        )
    at_random = _at_random(squares, labeled_squares, chosen, num_random, run.derived_seed)
    chosen, by = (
        np.concatenate([chosen, at_random]),
        np.repeat(["model", "random"], [len(chosen), len(at_random)]),
    )
    rows = candidates.iloc[chosen].reset_index(drop=True)
    shown, _ = assembly.in_order(rows[:MAX_SHOWN]).some(MAX_SHOWN)
    table = _table(rows, uncertainty[chosen], embedding, chosen, search.side_um, task.classes)
    table = table.assign(chosen_by=by, cluster=similar_groups(embedding.features[chosen]))
    field_um = search.patch_px * search.mpp
    classes = task.classes
    columns = {f"probability {name}": f"{STUDENT}_{name}" for name in classes or ()}
    columns = columns or {"score": STUDENT, "score before consistency training": FINETUNED}
    pictures = (shown.squeeze(1).numpy(), _in_words(table, classes), [field_um] * len(table))
    write_suggestions(draft, table, bounds_corners(rows), {"uncertainty": "uncertainty"} | columns, pictures)
    return (
        f"{len(table)} regions ({len(at_random)} at random) on {table['slide_id'].nunique()} of "
        f"{candidates['slide_id'].nunique()} slides with {len(candidates)} candidates"
    )


def _embeddings(
    assembly: Assembly, run: Run, search: Search, candidates: pd.DataFrame
) -> tuple[Embedding, Embedding]:
    """Features and predictions of the candidates, and of the run's labels: stored ones, else of the encoded patches."""
    labeled = assembly.labeled(run.derived_seed)
    stored = stored_embeddings(assembly, run, search, candidates, labeled)
    if stored is not None:
        return stored
    look = partial(embed, models=assembly.load_run(run), task=assembly.task, features_of=STUDENT)
    field, size = assembly.params.field, assembly.params.evaluate.batch_size
    loaders = (assembly.reading.fields(rows, field, size) for rows in (candidates, labeled))
    of_candidates, of_labels = (look(each.loader) for each in loaders)
    return of_candidates, of_labels


def _uncertainty(embedding: Embedding) -> NDArray[np.float64]:
    """Uncertainty per candidate, (n,).

    Of classes: the student's indecision. Of scores: the difference between student and fine-tuned model.
    """
    student, finetuned = embedding.predictions[STUDENT], embedding.predictions[FINETUNED]
    if student.shape[1] > 1:
        return indecision(student)
    return disagreement(student[:, 0], finetuned[:, 0])


def _at_random(
    squares: Fields, labeled: Fields, chosen: NDArray[np.int64], num: int, seed: int
) -> NDArray[np.int64]:
    """Candidates at random that overlap no labeled or selected square nor each other; fewer if there are no more."""
    is_free = squares.apart_from(labeled)
    for number in chosen:
        is_free &= ~squares.overlapping(squares, int(number))
    selected: list[int] = []
    for number in generator(seed, "random regions", len(labeled.sides_px)).permutation(len(is_free)):
        if len(selected) < num and is_free[number]:
            selected.append(int(number))
            is_free &= ~squares.overlapping(squares, int(number))
    return np.array(selected, np.int64)


def _table(
    rows: pd.DataFrame,
    uncertainty: NDArray[np.float64],
    embedding: Embedding,
    chosen: NDArray[np.int64],
    side_um: float,
    classes: Sequence[str] | None,
) -> pd.DataFrame:
    """suggestions.csv: one row per region by rank; positions in level-0 canvas pixels."""
    predictions = {
        f"{model}_{label}" if label else model: values[chosen, k].astype(np.float64).round(6)
        for model, values in embedding.predictions.items()
        for k, label in enumerate(classes or [""])
    }
    of_squares = places(rows, side_um) | {"uncertainty": uncertainty.round(6)}
    return pd.DataFrame(of_squares | predictions)


def _in_words(table: pd.DataFrame, classes: Sequence[str] | None) -> list[str]:
    if classes is None:
        return [f"{score:.2f}" for score in table[STUDENT]]
    predictions = table[[f"{STUDENT}_{name}" for name in classes]].to_numpy()
    return [
        f"{classes[k]} {row[k]:.2f}" for row, k in zip(predictions, predictions.argmax(axis=1), strict=True)
    ]
