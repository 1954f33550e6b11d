from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from histo_monai.data.index.corpus import Placement, build_pretraining_index
from histo_monai.data.readers.own import reader as own
from histo_monai.data.readers.shared.quotas import even_quotas
from histo_monai.data.tables.columns import CENTER_COLUMNS, SLIDE_COLUMNS
from histo_monai.slides import open_slide, tissue_mask
from histo_monai.slides.tiles.usable import TissueRules

PLACEMENT = Placement(patch_px=64, mpps=(1.0, 2.0, 4.0), tissue=TissueRules(), min_tissue_fraction=0.5)


def _naive_quotas(room: list[int], wanted: int) -> list[int]:
    """One at a time, to the place that has least so far and room left; the earlier one if they are equal."""
    quotas = [0] * len(room)
    for _ in range(wanted):
        free = [i for i in range(len(room)) if quotas[i] < room[i]]
        quotas[min(free, key=lambda i: (quotas[i], i))] += 1
    return quotas


def test_quotas_are_what_dealing_one_at_a_time_gives() -> None:
    generator = np.random.default_rng(0)
    for _ in range(200):
        room = generator.integers(0, 30, generator.integers(1, 8))
        wanted = int(generator.integers(0, room.sum() + 1))
        assert even_quotas(room, wanted).tolist() == _naive_quotas(room.tolist(), wanted)


@pytest.fixture
def real_corpus(real_slides: Path, tmp_path: Path) -> pd.DataFrame:
    rows = [
        ("skin", "cmu-1-small-region.svs", "", "validation"),
        ("head-neck", "tcga-cr-7395-01a-01-ts1.svs", "1.0", "train"),
        ("lymph-node", "lymph-node.tif", "0.25", "train"),
        ("breast", "breast-lobular.tif", "", "train"),
    ]
    table = pd.DataFrame(rows, columns=["slide_id", "path", "mpp", "split"])
    table["path"] = [str(real_slides / name) for name in table["path"]]
    table.to_csv(tmp_path / "slides.csv", index=False)
    return own.pretraining_slides(tmp_path)


def _build(
    corpus: pd.DataFrame, processes: int = 1, **num: int
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    return build_pretraining_index(
        corpus,
        num=num or {"train": 61, "validation": 20},
        placement=PLACEMENT,
        validation_fraction=0.25,
        seed=0,
        skip_bad_slides=False,
        processes=processes,
    )


def test_centers_of_real_slides_lie_on_tissue_and_are_shared_out_evenly(real_corpus: pd.DataFrame) -> None:
    slides, centers, bad = _build(real_corpus)
    assert tuple(slides.columns) == SLIDE_COLUMNS
    assert tuple(centers.columns) == CENTER_COLUMNS
    assert bad.empty
    assert centers["slide_id"].value_counts().to_dict() == {
        "head-neck": 21,
        "lymph-node": 20,
        "breast": 20,
        "skin": 20,
    }
    assert not centers.duplicated(["slide_id", "y", "x"]).any()
    for row in slides.itertuples():
        with open_slide(row.path, row.mpp) as slide:
            mask = tissue_mask(slide.thumbnail(16.0))
        own_centers = centers[centers["slide_id"] == row.slide_id]
        assert (own_centers["split"] == row.split).all()
        half = 64 / 16 / 2  # half a field of the finest patch, in pixels of the mask
        fractions = []
        for y, x in own_centers[["y", "x"]].to_numpy() * row.mpp / 16.0:
            field = mask[max(0, round(y - half)) : round(y + half), max(0, round(x - half)) : round(x + half)]
            fractions.append(field.mean())
        assert min(fractions) >= 0.5 - 0.26  # a row and a column of 16 pixels may be off by rounding
        assert np.mean(fractions) > 0.7


def test_the_index_does_not_depend_on_the_number_of_processes(real_corpus: pd.DataFrame) -> None:
    for one, two in zip(_build(real_corpus), _build(real_corpus, processes=2), strict=True):
        pd.testing.assert_frame_equal(one, two)


def test_fewer_samples_are_the_first_of_more(real_corpus: pd.DataFrame) -> None:
    few, more = (_build(real_corpus, train=n, validation=n // 3)[1] for n in (30, 60))
    for slide_id, rows in few.groupby("slide_id"):
        same = more[more["slide_id"] == slide_id].head(len(rows))
        assert rows[["y", "x"]].to_numpy().tolist() == same[["y", "x"]].to_numpy().tolist()


def test_the_two_slides_without_a_resolution_are_named_with_the_column_to_fill(
    real_corpus: pd.DataFrame, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    with pytest.raises(ValueError, match="2 of 4 slides to pretrain on cannot be used") as caught:
        _build(real_corpus.assign(mpp=np.nan))
    message = str(caught.value)
    assert "tcga-cr-7395-01a-01-ts1.svs" in message
    assert "lymph-node.tif" in message
    assert "column mpp" in message
    assert "breast" not in message
    assert "\n" not in message


def test_few_slides_of_a_split_give_as_many_centers_as_their_tissue_holds(real_corpus: pd.DataFrame) -> None:
    """Eight slides share the training centers evenly; the one of validation gives all of its own."""
    train = real_corpus[real_corpus["split"] == "train"]
    copies = [train.assign(slide_id=train["slide_id"] + str(i)) for i in range(3)]
    corpus = pd.concat([*copies, real_corpus[real_corpus["split"] == "validation"]], ignore_index=True)
    slides, centers, _ = _build(corpus, train=90, validation=200)
    of_split = centers["split"].value_counts()
    assert of_split.to_dict() == {"validation": 200, "train": 90}
    assert len(slides) == 10
