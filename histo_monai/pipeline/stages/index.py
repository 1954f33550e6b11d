"""Stage `index`: data on disk -> tables of slides, patch centers and labeled patches."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from histo_monai.data.index.candidates import (
    PLENTY,
    Search,
    outlines_by_slide,
    sample_unlabeled,
    slides_to_search,
)
from histo_monai.data.index.corpus import Placement, build_pretraining_index, no_slides
from histo_monai.data.index.data_warnings import label_warnings
from histo_monai.data.index.labels import Labels, build_labels, count_patches, without_labels
from histo_monai.data.leakage.review import Surroundings, with_splits_of_patches
from histo_monai.data.leakage.views import look_at_slides, readable, refuse_unreadable
from histo_monai.data.readers.protocol import Reading
from histo_monai.data.readers.registry import DATASETS
from histo_monai.data.tables.columns import corpus_slides, whole_slide_table
from histo_monai.data.tables.patches import LabeledDataset, empty_table, write_patches
from histo_monai.data.tables.tasks import training_mpp
from histo_monai.pipeline import paths
from histo_monai.pipeline.environment import num_cpus
from histo_monai.pipeline.params import Params, load_params
from histo_monai.pipeline.provenance import made_from, write_metrics
from histo_monai.slides.tiles.usable import TissueRules
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import file_sha256, whole_folder, write_json

_LOG = logging.getLogger(__name__)

_MANIFESTS = (".csv", ".xml", ".geojson", ".h5")


def run() -> None:
    """Write data/index: slides, centers, skipped, patches, unlabeled, whole_slides, near_copies (.csv), counts (.json).

    Raises:
        InputError: slides, images or labels cannot be used, or test data leak into training.
    """
    params = load_params(paths.PARAMS)
    processes = num_cpus()
    for name, key in {params.pretraining_dataset: "pretraining_dataset", params.dataset: "dataset"}.items():
        DATASETS[name].check_files(_existing_folder(params.source, name, key), processes)
    slides, centers, skipped = _to_pretrain_on(params, processes)
    for row in skipped.itertuples():
        _LOG.warning("index: skipped: %s", row.problem)
    labels, whole_slides = _labels_and_whole_slides(params, slides, processes)
    unlabeled = _unlabeled(params, slides, whole_slides, labels.table, processes)
    label_counts = count_patches(labels.table)
    about_labels = {"classes": label_counts.pop("classes"), "warnings": labels.warnings}
    if outlines := outlines_by_slide(whole_slides):  # Later stages run again after a change.
        about_labels["outlines"] = {slide_id: file_sha256(Path(path)) for slide_id, path in outlines.items()}
    counts = {
        **_counts(slides, centers, skipped),
        **label_counts,
        "patches_unlabeled": len(unlabeled),
        "whole_slides": len(whole_slides),
    }
    with whole_folder(paths.INDEX) as folder:
        slides.to_csv(folder / paths.SLIDES_CSV.name, index=False)
        centers.to_csv(folder / paths.CENTERS_CSV.name, index=False)
        skipped.to_csv(folder / paths.SKIPPED_CSV.name, index=False)
        whole_slides.to_csv(folder / paths.WHOLE_SLIDES_CSV.name, index=False)
        write_patches(folder / paths.PATCHES_CSV.name, labels.table)
        write_patches(folder / paths.UNLABELED_CSV.name, unlabeled)
        labels.near_copies.to_csv(folder / paths.NEAR_COPIES_CSV.name, index=False)
        write_json(folder / paths.LABELS_JSON.name, about_labels)
        provenance = made_from(
            params,
            _manifests(params),
            [slides, labels.table, whole_slides],
            labels.table,
            as_indexed=False,
        )
        write_metrics(folder, counts, provenance, summary=counts)
    numbers = ", ".join(f"{name} {n}" for name, n in counts.items())
    _LOG.info("index: output=%s %s", paths.INDEX, numbers)


def _to_pretrain_on(params: Params, processes: int) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Tables of slides, centers and skipped slides; empty for image datasets without pretraining on slides."""
    root, section = (
        _existing_folder(params.source, params.pretraining_dataset, "pretraining_dataset"),
        params.corpus_section,
    )
    missing = DATASETS[params.pretraining_dataset].missing_slides(root)
    learn = [name for name in params.pretraining_methods if params.pretrain.methods[name].needs_slides]
    if missing is not None and learn:
        raise InputError(
            f"{missing}: not found, but {', '.join(learn)} trains on slides. Fix: list your slides there "
            "(slide_id,path[,patient_id,mpp,label,split,exhaustive,sha256]), or set pretraining_methods: [random], or "
            "[pretrained] with a file of weights (docs/encoders.md)"
        )
    if missing is not None:
        return no_slides()
    return build_pretraining_index(
        read_corpus(params),
        num={"train": section.num_train, "validation": section.num_validation},
        placement=Placement(
            patch_px=params.patch_px,
            mpps=section.mpps,
            tissue=TissueRules(params.index.tissue_mpp, params.index.artefacts),
            min_tissue_fraction=params.index.min_tissue_fraction,
        ),
        validation_fraction=params.index.validation_fraction,
        seed=params.index.seed,
        skip_bad_slides=params.index.skip_bad_slides,
        processes=processes,
    )


def _labels_and_whole_slides(
    params: Params, corpus: pd.DataFrame, processes: int
) -> tuple[Labels, pd.DataFrame]:
    """Labeled patches, and slides to map and diagnose, audited against each other and the pretraining slides.

    The patches are empty if your own slides have no labels.
    """
    dataset, reading = DATASETS[params.dataset], _reading(params, processes)
    missing = dataset.missing_labels(reading.root)
    labeled = dataset.labeled_patches(reading) if missing is None else LabeledDataset(empty_table())
    _warn(labeled.warnings)  # before later errors
    file_paths = pd.Series(
        {path: _portable(Path(path)) for path in labeled.table["path"].unique()}, dtype=str
    )
    labeled = dataclasses.replace(
        labeled, table=labeled.table.assign(path=labeled.table["path"].map(file_paths).astype(str))
    )
    given = dataset.whole_slides(reading)
    whole_slides, notes = (whole_slide_table([]), []) if given is None else given
    whole_slides = _without_validation(params, whole_slides)
    _warn([line for line in notes if line not in labeled.warnings])
    for column in ("path", "annotation", "outlines"):
        whole_slides[column] = [_portable(Path(path)) if path else "" for path in whole_slides[column]]
    squares = labeled.table[labeled.table["y"].notna()].assign(mpp=lambda rows: rows["slide_mpp"])
    files = pd.concat([some[["path", "mpp"]] for some in (squares, corpus, whole_slides)])
    looks = look_at_slides(files, processes)
    whole_slides, left_out = readable(whole_slides, looks, params.index.skip_bad_slides)
    whole_slides["content"] = looks["content"].reindex(whole_slides["path"]).to_numpy()
    refuse_unreadable(looks, pd.concat([squares["path"], corpus["path"]]))
    around = Surroundings(
        corpus,
        whole_slides,
        looks,
        shared_ids=params.pretraining_dataset == params.dataset,
        within_patients=dataset.validation_within_patients(params.labels_section),
    )
    if missing is not None:
        labels = without_labels(missing, around, processes)
    else:
        labels = build_labels(
            labeled,
            around=around,
            validation_fraction=params.index.validation_fraction if params.is_validation_separate else None,
            seed=params.index.seed,
            processes=processes,
        )
    data_warnings = label_warnings(
        labels.table,
        patch_px=params.patch_px,
        tissue=TissueRules(params.index.tissue_mpp, params.index.artefacts),
        outlines=outlines_by_slide(whole_slides),
        processes=processes,
    )
    more = [line for line in (*notes, *left_out, *data_warnings) if line not in labels.warnings]
    labels = dataclasses.replace(labels, warnings=[*labels.warnings, *more])
    _warn([line for line in labels.warnings if line not in (*labeled.warnings, *notes)])
    if given is None:
        slides = corpus_slides(corpus if params.dataset == params.pretraining_dataset else corpus.iloc[:0])
        return labels, _without_validation(params, slides)
    return labels, with_splits_of_patches(whole_slides, labels.table)


def _without_validation(params: Params, whole_slides: pd.DataFrame) -> pd.DataFrame:
    """Slides with the validation split merged into training, unless validation is separate."""
    if params.is_validation_separate:
        return whole_slides
    return whole_slides.assign(split=whole_slides["split"].replace({"validation": "train"}))


def _warn(lines: Sequence[str]) -> None:
    for line in lines:
        _LOG.warning("%s", line)


def _unlabeled(
    params: Params, corpus: pd.DataFrame, whole_slides: pd.DataFrame, table: pd.DataFrame, processes: int
) -> pd.DataFrame:
    """Unlabeled patches at the labeled patches' µm/px, from slides of the dataset."""
    num = DATASETS[params.dataset].num_unlabeled(params.labels_section)
    if num == 0 or table.empty:
        return empty_table()
    section, mpp = f"labels.{params.dataset}", training_mpp(table, params.patch_px)
    if mpp is None and num is None:
        return empty_table()
    if mpp is None:
        raise InputError(
            f"{section}.unlabeled: the labeled training patches have no common µm/px; they are images "
            "or squares of several mpp. Fix: set it to 0"
        )
    wanted = PLENTY if num is None else num
    same = corpus if params.pretraining_dataset == params.dataset else corpus.iloc[:0]
    search = Search(
        patch_px=params.patch_px,
        mpp=mpp,
        side_um=params.patch_px * mpp,
        tissue=TissueRules(params.index.tissue_mpp, params.index.artefacts),
        min_tissue_fraction=params.index.min_tissue_fraction,
        per_slide=wanted,
        outlines=outlines_by_slide(whole_slides),
    )
    parts = [some[["slide_id", "path", "patient_id", "split"]] for some in (whole_slides, table)]
    held_out = pd.concat([some[some["split"].isin(("validation", "test"))] for some in parts])
    slides = pd.concat([same, whole_slides[whole_slides["split"] == "train"]])
    try:
        slides = slides_to_search(slides, table, held_out, shared_ids=True)
        return sample_unlabeled(
            slides, wanted, search, seed=params.index.seed, processes=processes, or_fewer=num is None
        )
    except InputError as error:
        if num is None:
            _LOG.warning("index: unlabeled patches=0: %s", error)
            return empty_table()
        raise InputError(f"{section}.unlabeled: {error}") from None


def _reading(params: Params, processes: int) -> Reading:
    return Reading(
        _existing_folder(params.source, params.dataset, "dataset"),
        labels=params.labels_section,
        corpus=params.corpora.get(params.dataset),
        index=params.index,
        patch_px=params.patch_px,
        processes=processes,
        is_simulated=params.source == "phantom",
    )


def read_corpus(params: Params) -> pd.DataFrame:
    """Pretraining slides, with paths relative to the project's root if inside it.

    Raises:
        InputError: the dataset folder is missing or has another layout.
    """
    root = _existing_folder(params.source, params.pretraining_dataset, "pretraining_dataset")
    table = DATASETS[params.pretraining_dataset].pretraining_slides(root, params.corpus_section)
    return table.assign(path=[_portable(path) for path in table["path"]])


def _manifests(params: Params) -> list[Path]:
    """Tables and outlines of a dataset's folder."""
    roots = {
        paths.dataset_folder(params.source, name) for name in (params.pretraining_dataset, params.dataset)
    }
    file_paths = (path for root in roots for path in root.rglob("*") if path.suffix.lower() in _MANIFESTS)
    return sorted(path for path in file_paths if path.is_file())


def _existing_folder(source: str, name: str, key: str) -> Path:
    root = paths.dataset_folder(source, name)
    if not root.is_dir():
        raise InputError(
            f"{root}: not found. Fix: copy or link the {name} data there, or set `{key}` in params.yaml"
        )
    return root


def _portable(path: Path) -> str:
    plain = paths.plain_path(path)
    here = Path.cwd()
    return str(plain.relative_to(here) if plain.is_absolute() and plain.is_relative_to(here) else plain)


def _counts(slides: pd.DataFrame, centers: pd.DataFrame, skipped: pd.DataFrame) -> dict[str, int]:
    return {
        **{f"slides_{split}": int((slides["split"] == split).sum()) for split in ("train", "validation")},
        **{f"centers_{split}": int((centers["split"] == split).sum()) for split in ("train", "validation")},
        "slides_skipped": len(skipped),
    }
