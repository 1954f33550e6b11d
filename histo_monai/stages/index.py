"""Stage `index`: slides on disk -> tables of slides and of patch centers."""

from __future__ import annotations

import dataclasses
import logging
import os
from pathlib import Path

import pandas as pd

from histo_monai import artifacts
from histo_monai.datasets.corpora import CORPORA
from histo_monai.datasets.survey import Placement, build_pretraining_index
from histo_monai.environment import read_environment
from histo_monai.params import Params, SlidesCorpus, load_params

_LOG = logging.getLogger(__name__)


def run() -> None:
    """Write data/index: slides.csv, centers.csv, skipped.csv and metrics.json."""
    params = load_params(artifacts.PARAMS)
    corpus = read_corpus(params)
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
        processes=read_environment().cpus,
    )
    for row in skipped.itertuples():
        _LOG.warning("left out: %s", row.problem)
    with artifacts.whole_folder(artifacts.INDEX) as folder:
        slides.to_csv(folder / artifacts.SLIDES_CSV.name, index=False)
        centers.to_csv(folder / artifacts.CENTERS_CSV.name, index=False)
        skipped.to_csv(folder / artifacts.SKIPPED_CSV.name, index=False)
        counts = _counts(slides, centers, skipped)
        artifacts.write_json(folder / artifacts.INDEX_METRICS.name, counts)
    _LOG.info("%s written: %s", artifacts.INDEX, ", ".join(f"{name} {n}" for name, n in counts.items()))


def read_corpus(params: Params) -> pd.DataFrame:
    """The slides of the corpus that params name, with paths relative to the project's root where they lie inside it.

    Raises:
        ValueError: the corpus's folder is missing or is not what its layout says.
    """
    root = artifacts.dataset_folder(params.source, params.corpus)
    if not root.is_dir():
        raise ValueError(
            f"{root}: not found; put or link the {params.corpus} data there, or set `corpus` in params.yaml"
        )
    section = params.corpus_section
    shared = {field.name for field in dataclasses.fields(SlidesCorpus)}
    own = {field.name for field in dataclasses.fields(section) if field.name not in shared}
    table = CORPORA[params.corpus](root, **{name: getattr(section, name) for name in own})
    return table.assign(path=[_portable(path) for path in table["path"]])


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
