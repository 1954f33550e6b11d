"""Stage `index`: data on disk -> tables of slides, of patch centers and of labeled patches."""

from __future__ import annotations

import dataclasses
import logging
import os
from pathlib import Path
from typing import Any

import pandas as pd

from histo_monai import artifacts
from histo_monai.datasets.corpora import CORPORA
from histo_monai.datasets.own import reader as own
from histo_monai.datasets.own.slides import check_sha256
from histo_monai.datasets.whole_slides import WHOLE_SLIDES, corpus_slides
from histo_monai.environment import read_environment
from histo_monai.errors import InputError
from histo_monai.index.audit.review import Surroundings, with_splits_of_patches
from histo_monai.index.audit.views import look_at_slides, readable, refuse_unreadable
from histo_monai.index.corpus import Placement, build_pretraining_index
from histo_monai.index.labels import LABELED, Labels, build_labels, count_patches, without_labels
from histo_monai.params import Camelyon16Labels, OwnLabels, Params, SlidesCorpus, load_params
from histo_monai.provenance import made_from, write_metrics
from histo_monai.storage import whole_folder, write_json
from histo_monai.tables.columns import SPLITS, whole_slide_table
from histo_monai.tables.patches import LabeledDataset, empty_table, write_patches

_LOG = logging.getLogger(__name__)

_MANIFESTS = (".csv", ".xml", ".geojson")
_SHARED_WITH_CAMELYON16 = (
    *("tissue_mpp", "min_tissue_fraction", "validation_fraction"),
    *("seed", "skip_bad_slides"),
)


def run() -> None:
    """Write data/index: slides, centers, skipped, patches, whole_slides, near_copies (.csv), and their counts (.json).

    Raises:
        InputError: slides, images or labels cannot be used, or what is tested on has a part in training.
    """
    params = load_params(artifacts.PARAMS)
    processes = read_environment().cpus
    corpus = read_corpus(params)
    if "own" in (params.corpus, params.dataset):
        _check_files_of_own(params, processes)
    section = params.corpus_section
    slides, centers, skipped = build_pretraining_index(
        corpus,
        num={"train": section.num_train, "validation": section.num_validation},
        placement=Placement(
            patch_px=params.patch_px,
            mpps=section.mpps,
            tissue_mpp=params.index.tissue_mpp,
            min_tissue_fraction=params.index.min_tissue_fraction,
        ),
        validation_fraction=params.index.validation_fraction,
        seed=params.index.seed,
        skip_bad_slides=params.index.skip_bad_slides,
        processes=processes,
    )
    for row in skipped.itertuples():
        _LOG.warning("left out: %s", row.problem)
    labels, whole_slides = _labels_and_whole_slides(params, slides, processes)
    for warning in labels.warnings:
        _LOG.warning("%s", warning)
    label_counts = count_patches(labels.table)
    about_labels = {"classes": label_counts.pop("classes"), "warnings": labels.warnings}
    counts = _counts(slides, centers, skipped) | label_counts | {"whole_slides": len(whole_slides)}
    with whole_folder(artifacts.INDEX) as folder:
        slides.to_csv(folder / artifacts.SLIDES_CSV.name, index=False)
        centers.to_csv(folder / artifacts.CENTERS_CSV.name, index=False)
        skipped.to_csv(folder / artifacts.SKIPPED_CSV.name, index=False)
        whole_slides.to_csv(folder / artifacts.WHOLE_SLIDES_CSV.name, index=False)
        write_patches(folder / artifacts.PATCHES_CSV.name, labels.table)
        labels.near_copies.to_csv(folder / artifacts.NEAR_COPIES_CSV.name, index=False)
        write_json(folder / artifacts.LABELS_JSON.name, about_labels)
        provenance = made_from(params, _manifests(params), [slides, labels.table, whole_slides], labels.table)
        write_metrics(folder, counts, provenance, summary=counts)
    told = ", ".join(f"{name} {n}" for name, n in counts.items())
    _LOG.info("%s written: %s", artifacts.INDEX, told)


def _labels_and_whole_slides(
    params: Params, corpus: pd.DataFrame, processes: int
) -> tuple[Labels, pd.DataFrame]:
    """Labeled patches, and slides to map and to diagnose, compared with each other and with the corpus.

    Without labels of your own slides there are no patches.
    """
    root = _existing_folder(params.source, params.dataset, "dataset")
    section = params.labels_section
    labeled = LabeledDataset(empty_table())
    if not isinstance(section, OwnLabels) or own.is_labeled(root):
        labeled = LABELED[params.dataset](root, **_label_settings(params, processes))
    paths = pd.Series({path: _portable(Path(path)) for path in labeled.table["path"].unique()}, dtype=str)
    labeled = dataclasses.replace(
        labeled, table=labeled.table.assign(path=labeled.table["path"].map(paths).astype(str))
    )
    whole_slides, notes = _whole_slides(params, root)
    squares = labeled.table[labeled.table["y"].notna()].assign(mpp=lambda rows: rows["slide_mpp"])
    files = pd.concat([some[["path", "mpp"]] for some in (squares, corpus, whole_slides)])
    looks = look_at_slides(files, processes)
    whole_slides, left_out = readable(whole_slides, looks, params.index.skip_bad_slides)
    refuse_unreadable(looks, pd.concat([squares["path"], corpus["path"]]))
    around = Surroundings(
        corpus,
        whole_slides,
        looks,
        shared_ids=params.corpus == params.dataset,
        within_patients=isinstance(section, OwnLabels) and section.validation_within_patients,
    )
    if labeled.table.empty:
        labels = without_labels(root / "patches.csv", around, processes)
    else:
        labels = build_labels(
            labeled,
            around=around,
            validation_fraction=params.index.validation_fraction,
            seed=params.index.seed,
            processes=processes,
        )
    more = [line for line in (*notes, *left_out) if line not in labels.warnings]
    labels = dataclasses.replace(labels, warnings=[*labels.warnings, *more])
    if params.dataset not in WHOLE_SLIDES:
        return labels, corpus_slides(corpus if params.dataset == params.corpus else corpus.iloc[:0])
    return labels, with_splits_of_patches(whole_slides, labels.table)


def _whole_slides(params: Params, root: Path) -> tuple[pd.DataFrame, list[str]]:
    """Slides of the dataset to map and to diagnose, and warnings; none where it has patches only."""
    if params.dataset not in WHOLE_SLIDES:
        return whole_slide_table([]), []
    settings: dict[str, Any] = {}
    if params.dataset == "camelyon16":
        settings = {
            "num_reserved_normal": params.corpora.camelyon16.num_normal,
            "num_reserved_tumor": params.corpora.camelyon16.num_tumor,
            **{
                name: getattr(params.index, name)
                for name in ("validation_fraction", "seed", "skip_bad_slides")
            },
        }
    table, warnings = WHOLE_SLIDES[params.dataset](root, **settings)
    for column in ("path", "annotation"):
        table[column] = [_portable(Path(path)) if path else "" for path in table[column]]
    return table, warnings


def _label_settings(params: Params, processes: int) -> dict[str, Any]:
    """What the reader of the dataset takes beside the folder."""
    section = params.labels_section
    if isinstance(section, OwnLabels):
        return {
            "patch_px": params.patch_px,
            "region_mpp": section.regions.mpp,
            "min_region_fraction": section.regions.min_fraction,
            "num_per_region": section.regions.num_per_region,
            "processes": processes,
        }
    if not isinstance(section, Camelyon16Labels):
        return {field.name: getattr(section, field.name) for field in dataclasses.fields(section)}
    counts = {split: getattr(section, split) for split in SPLITS}
    return {
        "num_reserved_normal": params.corpora.camelyon16.num_normal,
        "num_reserved_tumor": params.corpora.camelyon16.num_tumor,
        "patch_px": params.patch_px,
        "mpp": section.mpp,
        "min_tumor_fraction": section.min_tumor_fraction,
        "wanted": {split: {"tumor": n.num_tumor, "normal": n.num_normal} for split, n in counts.items()},
        **{name: getattr(params.index, name) for name in _SHARED_WITH_CAMELYON16},
        "processes": processes,
    }


def read_corpus(params: Params) -> pd.DataFrame:
    """The slides of the corpus that params name, with paths relative to the project's root where they lie inside it.

    Raises:
        InputError: the corpus's folder is missing or is not what its layout says.
    """
    root = _existing_folder(params.source, params.corpus, "corpus")
    section = params.corpus_section
    shared = {field.name for field in dataclasses.fields(SlidesCorpus)}
    particular = {field.name for field in dataclasses.fields(section) if field.name not in shared}
    table = CORPORA[params.corpus](root, **{name: getattr(section, name) for name in particular})
    return table.assign(path=[_portable(path) for path in table["path"]])


def _check_files_of_own(params: Params, processes: int) -> None:
    root = _existing_folder(params.source, "own", "dataset")
    if (root / "slides.csv").exists():  # images alone need none
        check_sha256(root, processes)


def _manifests(params: Params) -> list[Path]:
    """Tables and outlines that came with the data."""
    roots = {artifacts.dataset_folder(params.source, name) for name in (params.corpus, params.dataset)}
    found = (path for root in roots for path in root.rglob("*") if path.suffix.lower() in _MANIFESTS)
    return sorted(path for path in found if path.is_file())


def _existing_folder(source: str, name: str, key: str) -> Path:
    root = artifacts.dataset_folder(source, name)
    if not root.is_dir():
        raise InputError(
            f"{root}: not found; put or link the {name} data there, or set `{key}` in params.yaml"
        )
    return root


def _portable(path: Path) -> str:
    plain = Path(os.path.normpath(path))
    here = Path.cwd()
    return str(plain.relative_to(here) if plain.is_absolute() and plain.is_relative_to(here) else plain)


def _counts(slides: pd.DataFrame, centers: pd.DataFrame, skipped: pd.DataFrame) -> dict[str, int]:
    return {
        **{f"slides_{split}": int((slides["split"] == split).sum()) for split in ("train", "validation")},
        **{f"centers_{split}": int((centers["split"] == split).sum()) for split in ("train", "validation")},
        "slides_skipped": len(skipped),
    }
