from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from skimage.measure import points_in_poly

from histo_monai.data.readers.shared import lesion_centers as label_survey
from histo_monai.data.readers.shared.lesion_centers import (
    AnnotatedSlide,
    LabelPlacement,
    LabelSurvey,
    Lesions,
    survey_labels,
)
from histo_monai.data.readers.shared.lesion_patches import sample_labeled_patches
from histo_monai.slides import open_slide
from histo_monai.slides.annotations import Outline

GLASS, TISSUE = (240, 240, 240), (190, 110, 170)
SIDE_PX, MPP = 2000, 0.243
PLACEMENT = LabelPlacement(
    patch_px=64, mpp=0.5, min_tumor_fraction=0.6, tissue_mpp=8.0, min_tissue_fraction=0.5
)
FIELD_PX = PLACEMENT.field_um / MPP
DIAMOND = np.array([(1900, 1200), (1300, 1700), (1500, 1100)], float)
HOLE = np.array([(1480, 1220), (1480, 1480), (1610, 1350)], float)
LESIONS = Lesions([Outline("tumor", "", DIAMOND)], [Outline("hole", "", HOLE)])


def read_lesions(path: Path) -> Lesions:
    """What all annotations of these tests say."""
    return LESIONS


@pytest.fixture
def slide_with(tmp_path: Path) -> Callable[[NDArray[np.bool_]], Path]:
    """A function that writes a slide with tissue where it is asked for, its second level padded to whole tiles."""

    def write(tissue: NDArray[np.bool_]) -> Path:
        image = np.where(tissue[..., None], TISSUE, GLASS).astype(np.uint8)
        side = SIDE_PX // 8
        small = np.full((256, 256, 3), 255, np.uint8)
        small[:side, :side] = image.reshape(side, 8, side, 8, 3).mean((1, 3))
        with tifffile.TiffWriter(tmp_path / "slide.tif") as writer:
            for number, level in enumerate((image, small)):
                writer.write(
                    level,
                    tile=(256, 256),
                    subfiletype=min(number, 1),
                    photometric="rgb",
                    resolution=(10_000 / MPP, 10_000 / MPP),
                    resolutionunit="CENTIMETER",
                )
        return tmp_path / "slide.tif"

    return write


def survey(path: Path, placement: LabelPlacement = PLACEMENT, num: int = 400) -> LabelSurvey:
    slide = AnnotatedSlide("tumor_001", path, "train", path.with_suffix(".xml"))
    wanted = {"tumor": num, "normal": num}
    return survey_labels(slide, wanted, seed=0, placement=placement, read_lesions=read_lesions)


def fractions(centers_yx: NDArray[np.int64]) -> NDArray[np.float64]:
    """Part of each field inside the outline and outside its hole, by points counted one field at a time."""
    ticks = ((np.arange(60) + 0.5) / 60 - 0.5) * FIELD_PX
    grid = np.stack(np.meshgrid(ticks, ticks, indexing="ij"), axis=-1).reshape(-1, 2)
    fields: Sequence[NDArray[np.float64]] = [center + grid for center in centers_yx]
    return np.array([(points_in_poly(f, DIAMOND) & ~points_in_poly(f, HOLE)).mean() for f in fields])


@pytest.mark.parametrize("most_mask_px", [2**26, 10_000])
def test_labels_hold_at_any_resolution_of_slide_patch_and_mask(
    slide_with: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, most_mask_px: int
) -> None:
    monkeypatch.setattr(label_survey, "_MOST_MASK_PX", most_mask_px)
    surveyed = survey(slide_with(np.ones((SIDE_PX, SIDE_PX), bool)))
    assert surveyed.problem == ""
    tumor, normal = (fractions(surveyed.centers_yx[label]) for label in ("tumor", "normal"))
    assert (len(tumor), len(normal)) == (400, 400)
    assert tumor.min() >= 0.595
    assert normal.max() == 0
    for centers in surveyed.centers_yx.values():
        assert centers.min() >= FIELD_PX / 2
        assert centers.max() <= SIDE_PX - FIELD_PX / 2


def test_outlines_lie_on_what_they_outline_at_the_far_edge_of_a_padded_level(
    slide_with: Callable[..., Path],
) -> None:
    """Tissue only where the lesion is: tumor fields find it, normal ones do not."""
    middles = np.stack(np.meshgrid(*[np.arange(SIDE_PX) + 0.5] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    tissue = (points_in_poly(middles, DIAMOND) & ~points_in_poly(middles, HOLE)).reshape(SIDE_PX, SIDE_PX)
    path = slide_with(tissue)
    with open_slide(path) as slide:
        assert slide.level_downsamples == (1.0, 8.0)
    whole = LabelPlacement(16, 0.5, min_tumor_fraction=0.97, tissue_mpp=2.0, min_tissue_fraction=0.97)
    assert survey(path, whole).room("tumor") == 400
    some = LabelPlacement(16, 0.5, min_tumor_fraction=0.97, tissue_mpp=2.0, min_tissue_fraction=0.2)
    assert survey(path, some).room("normal") == 0


def test_no_tissue_and_a_field_larger_than_the_slide_give_nothing(slide_with: Callable[..., Path]) -> None:
    everywhere = slide_with(np.ones((SIDE_PX, SIDE_PX), bool))
    wide = LabelPlacement(1024, 0.5, 0.5, 8.0, 0.5)
    surveyed = survey(everywhere, wide)
    assert (surveyed.room("tumor"), surveyed.room("normal")) == (0, 0)
    bare = slide_with(np.zeros((SIDE_PX, SIDE_PX), bool))
    assert survey(bare).problem.startswith(f"{bare}: no tissue")


def test_a_slide_without_room_is_made_up_for_by_the_others_and_none_draws_alike(
    slide_with: Callable[..., Path],
) -> None:
    path = slide_with(np.ones((SIDE_PX, SIDE_PX), bool))
    slides = [AnnotatedSlide("normal_001", path, "train")]
    slides += [AnnotatedSlide(f"tumor_00{i}", path, "train", path.with_suffix(".xml")) for i in (1, 2)]
    rows, _, problems = sample_labeled_patches(
        slides,
        {"train": {"tumor": 30, "normal": 31}},
        placement=PLACEMENT,
        read_lesions=read_lesions,
        section="labels.here",
        seed=0,
        skip_bad_slides=False,
        processes=1,
    )
    counts = rows.groupby(["label", "slide_id"]).size()
    assert counts["tumor"].to_dict() == {"tumor_001": 15, "tumor_002": 15}
    assert counts["normal"].to_dict() == {"normal_001": 11, "tumor_001": 10, "tumor_002": 10}
    places = {name: set(zip(some["y"], some["x"], strict=True)) for name, some in rows.groupby("slide_id")}
    assert not places["tumor_001"] & places["tumor_002"]
    assert problems == []
