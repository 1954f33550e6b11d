from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tifffile
import torch

from histo_monai.data.index.candidates import Search, sample_candidates, sample_unlabeled, slides_to_search
from histo_monai.data.tables.patches import labeled_table
from histo_monai.data.tables.splits import labeled_rows
from histo_monai.models.encoder import build_encoder
from histo_monai.models.task_model import TaskModel
from histo_monai.slides.tiles.usable import TissueRules
from histo_monai.training.embedding import embed
from histo_monai.training.prediction import predict
from histo_monai.utils.errors import InputError
from tests.waves import WaveTask

GLASS, TISSUE = (240, 240, 240), (190, 110, 170)
SEARCH = Search(
    patch_px=32, mpp=1.0, side_um=32.0, tissue=TissueRules(8.0), min_tissue_fraction=0.9, per_slide=1000
)


@pytest.fixture
def slides(tmp_path: Path) -> pd.DataFrame:
    """Two slides of 600 × 900 µm whose tissue is a band, 0.5 and 0.25 µm/px."""
    rows = []
    for name, mpp, band in (("a", 0.5, (96, 320)), ("b", 0.25, (320, 512))):
        pixels = np.full((round(600 / mpp), round(900 / mpp), 3), GLASS, np.uint8)
        pixels[round(band[0] / mpp) : round(band[1] / mpp), : round(640 / mpp)] = TISSUE
        resolution = (10_000 / mpp, 10_000 / mpp)
        settings = {"tile": (256, 256), "photometric": "rgb", "resolutionunit": "CENTIMETER"}
        tifffile.imwrite(tmp_path / f"{name}.tif", pixels, resolution=resolution, **settings)
        rows.append({"slide_id": name, "path": str(tmp_path / f"{name}.tif"), "patient_id": f"of {name}"})
    return pd.DataFrame(rows).assign(slide_mpp=np.nan)


def test_candidates_are_the_tissue_cells_of_a_grid_of_the_patch_s_own_field(slides: pd.DataFrame) -> None:
    table = sample_candidates(slides, SEARCH, seed=0, processes=1)
    a, b = (table[table["slide_id"] == name] for name in "ab")
    assert len(a) == 7 * 20  # a band of 224 × 640 µm in cells of 32 µm
    assert len(b) == 6 * 20
    assert sorted(a["y"].unique()) == [2 * (96 + 32 * i + 16) for i in range(7)]
    assert sorted(b["x"].unique()) == [4 * (32 * i + 16) for i in range(20)]
    assert a["slide_mpp"].unique() == pytest.approx([0.5], rel=1e-4)
    assert set(table["mpp"]) == {1.0}
    assert set(table["side_px"]) == {32}
    assert table["patch_id"].is_unique


def test_unlabeled_patches_are_candidates_of_every_slide_in_equal_numbers(slides: pd.DataFrame) -> None:
    every = sample_candidates(slides, SEARCH, seed=0, processes=1)
    table = sample_unlabeled(slides, 200, SEARCH, seed=0, processes=1)
    assert table["patch_id"].is_unique
    assert set(table["patch_id"]) < set(every["patch_id"])
    assert table["slide_id"].value_counts().to_dict() == {"a": 100, "b": 100}
    assert table["slide_id"].tolist() == ["a", "b"] * 100  # they take turns
    assert set(table["label"]) == set(table["split"]) == {""}
    other = sample_unlabeled(slides, 200, SEARCH, seed=1, processes=1)
    assert set(other["patch_id"]) != set(table["patch_id"])
    pd.testing.assert_frame_equal(sample_unlabeled(slides, 200, SEARCH, seed=0, processes=2), table)


def test_what_one_slide_lacks_of_unlabeled_patches_the_other_makes_up(slides: pd.DataFrame) -> None:
    table = sample_unlabeled(slides, 250, SEARCH, seed=0, processes=1)
    assert table["slide_id"].value_counts().to_dict() == {"a": 130, "b": 120}  # b has no more
    with pytest.raises(InputError, match=r"261 .* are requested, .* holds 260"):
        sample_unlabeled(slides, 261, SEARCH, seed=0, processes=1)


def test_a_square_larger_than_the_patch_stays_inside_the_slide(slides: pd.DataFrame) -> None:
    table = sample_candidates(slides, replace(SEARCH, side_um=200.0), seed=0, processes=1)
    size = np.array([600, 900]) / table[["slide_mpp"]].to_numpy()
    half = 100 / table[["slide_mpp"]].to_numpy()
    centers = table[["y", "x"]].to_numpy()
    assert len(table)
    assert (centers >= half).all()
    assert (centers <= size - half).all()


def test_candidates_of_a_slide_do_not_depend_on_other_slides_or_processes(
    slides: pd.DataFrame,
) -> None:
    few = replace(SEARCH, per_slide=15)
    both = sample_candidates(slides, few, seed=3, processes=1)
    assert both["slide_id"].value_counts().to_dict() == {"a": 15, "b": 15}
    pd.testing.assert_frame_equal(sample_candidates(slides, few, seed=3, processes=2), both)
    alone = sample_candidates(slides[1:].reset_index(drop=True), few, seed=3, processes=1)
    pd.testing.assert_frame_equal(alone, both[15:].reset_index(drop=True))
    assert set(sample_candidates(slides, few, seed=4, processes=1)["patch_id"]) != set(both["patch_id"])


def test_slides_without_a_candidate_are_an_error_that_states_what_to_change(slides: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match=r"no tissue of the 2 slides holds a field of 700 µm.*lower --side"):
        sample_candidates(slides, replace(SEARCH, side_um=700.0), seed=0, processes=1)


def _patch(slide_id: str, split: str, patient_id: str = "", y: float = 1.0) -> dict[str, object]:
    about = {"slide_id": slide_id, "path": f"{slide_id}.tif", "patient_id": patient_id, "split": split}
    return about | {"patch_id": f"{slide_id}-{y}-{split}", "y": y, "x": 1.0, "mpp": 1.0, "side_px": 8}


def _searched(patches: list[dict[str, object]], shared_ids: bool = True) -> list[str]:
    corpus = pd.DataFrame(
        [(f"{name}", f"{name}.tif", f"of {name}", 0.5) for name in "abc"],
        columns=["slide_id", "path", "patient_id", "mpp"],
    )
    table = labeled_table(patches)
    held = table[table["split"] != "train"]
    return slides_to_search(corpus, table, held, shared_ids=shared_ids)["slide_id"].tolist()


def test_slides_of_training_patches_are_searched_beside_the_corpus_each_once() -> None:
    assert _searched([_patch("z", "train"), _patch("z", "train", y=2.0), _patch("a", "train")]) == list(
        "abcz"
    )


def test_nothing_of_a_validation_or_test_slide_or_patient_is_searched() -> None:
    assert _searched([_patch("a", "validation"), _patch("z", "test"), _patch("y", "train")]) == list("bcy")
    assert _searched([_patch("z", "test", "of b"), _patch("y", "train", "of b")]) == list("ac")


def test_ids_of_another_collection_mean_nothing_but_files_do() -> None:
    patches = [_patch("a", "validation", "of b"), _patch("y", "train", "q")]
    assert _searched(patches, shared_ids=False) == list("bcy")


def test_no_slide_left_and_two_files_of_one_id_are_errors() -> None:
    with pytest.raises(ValueError, match="every slide is used for validation or test"):
        _searched([_patch(name, "test") for name in "abc"])
    twice = _patch("a", "train") | {"path": "elsewhere/a.tif"}
    with pytest.raises(ValueError, match=r"slide_id 'a' names a\.tif and elsewhere/a\.tif"):
        _searched([twice])


def test_a_look_gives_the_predictions_of_each_model_and_the_features_of_the_trunk(
    wave_task: Callable[..., WaveTask],
) -> None:
    task = wave_task()
    torch.manual_seed(0)
    models = {name: TaskModel(build_encoder(), "pair", 2) for name in ("finetuned", "student")}
    models["student"].encoder.load_state_dict(models["finetuned"].encoder.state_dict())
    rows = labeled_rows(task.patches, 0.5)
    loader = task.in_order(rows, 5)
    embedding = embed(loader.loader, models, task, features_of="student")
    for name, model in models.items():
        np.testing.assert_allclose(
            embedding.predictions[name], predict(model, task, loader.loader), atol=1e-5
        )
    pixels = torch.cat([patches.squeeze(1) for patches, _ in loader.loader]) / 255
    with torch.no_grad():
        np.testing.assert_allclose(embedding.features, models["student"].encoder(pixels), atol=1e-4)


def test_slides_too_coarse_for_the_patches_are_counted_and_left_out(
    slides: pd.DataFrame, caplog: pytest.LogCaptureFixture
) -> None:
    fine = replace(SEARCH, mpp=0.25, side_um=8.0)
    table = sample_unlabeled(slides, 40, fine, seed=0, processes=1)
    assert set(table["slide_id"]) == {"b"}
    assert "1 of 2 slides are coarser than 0.25 µm/px and give no patch (the first: a)" in caplog.text
    with pytest.raises(InputError, match="all 1 slides are coarser than the patches"):
        sample_candidates(slides[:1], fine, seed=0, processes=1)
