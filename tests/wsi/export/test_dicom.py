"""Maps in DICOM, read by pydicom and highdicom and held against the slide coordinate system."""

from __future__ import annotations

import sys
from pathlib import Path

import highdicom as hd
import numpy as np
import pydicom
import pytest
from numpy.typing import NDArray

from histo_monai.slides import SlideError, open_slide
from histo_monai.slides.tiles.cells import slide_grid
from histo_monai.utils.errors import InputError
from histo_monai.wsi.export import dicom
from histo_monai.wsi.export.dicom import check_slide, write_segmentation
from histo_monai.wsi.heatmaps.heatmap import Heatmap
from tests.several_files import write_dicom
from tests.slides.drawn_dicom import SERIES, write_dicom_slide

MPP, CELL_PX = 0.5, 20
SQUARE = (slice(80, 160), slice(240, 400))
"""Tumor on level 0: rows, columns; whole cells."""
MODEL = ("models/student/model.safetensors", "ab" * 32)
TURN = np.radians(30)
TURNED = (-np.sin(TURN), -np.cos(TURN), 0, -np.cos(TURN), np.sin(TURN), 0)
ORIENTATIONS = {
    "usual": (0, -1, 0, -1, 0, 0),
    "upright": (1, 0, 0, 0, 1, 0),
    "upside down": (0, 1, 0, 1, 0, 0),
    "turned": TURNED,
}


def _pixels(height: int = 336, width: int = 500) -> NDArray[np.uint8]:
    pixels = np.full((height, width, 3), (225, 180, 210), np.uint8)
    pixels[SQUARE] = (90, 40, 130)
    return pixels


def _map(slide: Path, mpp: float | None = None) -> Heatmap:
    """1 in cells of the dark square, else a random value below one half; no value in the last column."""
    with open_slide(slide, mpp) as opened:
        grid = slide_grid(opened, CELL_PX * opened.mpp)
        cells = np.argwhere(np.ones(grid.shape, bool))
        cells = cells[cells[:, 1] < grid.shape[1] - 1]
        centers = grid.centers_yx(cells).astype(int)
        dark = np.asarray(_pixels(*opened.size_yx))[tuple(centers.T)].mean(-1) < 128
    values = np.where(dark, 1, np.random.default_rng(0).uniform(0, 0.5, len(cells))).astype(np.float32)
    return Heatmap(grid, cells, np.ones(len(cells), np.float32), {"model": values})


def _write(slide: Path, path: Path, heatmap: Heatmap, **columns: str) -> pydicom.Dataset:
    check_slide(slide, heatmap.grid, list(columns))
    write_segmentation(path, slide, heatmap, columns, MODEL, {"stride_um": 10.0})
    return hd.seg.segread(path)


def _slide_mm(slide: Path, points_yx: NDArray[np.float64]) -> NDArray[np.float64]:
    """x, y and z of middles of level-0 pixels (PS3.3 C.7.6.2.1.1)."""
    header = pydicom.dcmread(slide, stop_before_pixels=True)
    first = header.TotalPixelMatrixOriginSequence[0]
    origin = [first.XOffsetInSlideCoordinateSystem, first.YOffsetInSlideCoordinateSystem, 0]
    along_row, along_column = np.array(header.ImageOrientationSlide, float).reshape(2, 3)
    spacing = MPP / 1000
    return origin + spacing * (points_yx[:, 1:] * along_row + points_yx[:, :1] * along_column)


@pytest.mark.parametrize("has_middles", [False, True], ids=["one origin", "middles"])
@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_a_cell_has_its_value_at_its_place_on_the_slide(
    orientation: str, has_middles: bool, tmp_path: Path
) -> None:
    slide = write_dicom_slide(
        tmp_path / "s", _pixels(), MPP, orientation=ORIENTATIONS[orientation], has_middles=has_middles
    )
    heatmap = _map(slide)
    segmentation = _write(slide, tmp_path / "m.dcm", heatmap, tumor="model")
    matrix = segmentation.get_total_pixel_matrix(rescale_fractional=False)[..., 0].astype(float)
    assert matrix.shape == (336 // 8, 500 // 8)
    to_pixel = hd.spatial.ReferenceToPixelTransformer.for_image(segmentation, for_total_pixel_matrix=True)
    middles_yx = heatmap.grid.centers_yx(heatmap.cells) - 0.5
    columns, rows = to_pixel(_slide_mm(slide, middles_yx))[:, :2].T
    expected = np.maximum(heatmap.values["model"], 1 / 255) * 255
    np.testing.assert_allclose(matrix[rows, columns], expected, atol=0.5 + 1e-3)

    every = np.argwhere(np.ones(matrix.shape, bool))
    to_slide = hd.spatial.PixelToReferenceTransformer.for_image(segmentation, for_total_pixel_matrix=True)
    header = pydicom.dcmread(slide.with_name("2.dcm"), stop_before_pixels=True)
    of_level = hd.spatial.PixelToReferenceTransformer.for_image(header, for_total_pixel_matrix=True)
    np.testing.assert_allclose(to_slide(every[:, ::-1]), of_level(every[:, ::-1]), atol=1e-9)
    inside = np.zeros((336, 500), bool)
    inside[SQUARE] = True
    truth = inside[: 42 * 8, : 62 * 8].reshape(42, 8, 62, 8).mean((1, 3)) > 0.5
    assert ((matrix == 255) == truth).all()
    assert (matrix[:, 480 // 8 :] == 0).all()
    assert (matrix[:, : 480 // 8] > 0).all()


def test_the_level_is_the_coarsest_that_is_not_coarser_than_a_cell(tmp_path: Path) -> None:
    slide = write_dicom_slide(tmp_path / "s", _pixels(), MPP, steps=(1, 4, 25))
    segmentation = _write(slide, tmp_path / "m.dcm", _map(slide), tumor="model")
    assert segmentation.SourceImageSequence[0].ReferencedSOPInstanceUID == f"{SERIES}.1"
    assert (segmentation.TotalPixelMatrixRows, segmentation.TotalPixelMatrixColumns) == (84, 125)
    measures = segmentation.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence[0]
    assert list(measures.PixelSpacing) == [0.002, 0.002]


def test_the_resolution_that_a_user_states_moves_nothing(tmp_path: Path) -> None:
    slide = write_dicom_slide(tmp_path / "s", _pixels(), MPP)
    one, other = (
        _write(slide, tmp_path / f"{mpp}.dcm", _map(slide, mpp), tumor="model").pixel_array
        for mpp in (None, 0.25)
    )
    np.testing.assert_array_equal(one, other)


def test_the_object_belongs_to_the_patient_and_names_model_and_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slide = write_dicom_slide(tmp_path / "s", _pixels(), MPP)
    heatmap = _map(slide)
    classes = {"Tumor": "model", "Drüse \\ x": "model", "a" * 80: "model"}
    segmentation = _write(slide, tmp_path / "m.dcm", heatmap, **classes)
    monkeypatch.setattr(pydicom.config.settings, "reading_validation_mode", pydicom.config.RAISE)
    again = pydicom.dcmread(tmp_path / "m.dcm")
    assert len([element.value for element in again.iterall()]) > 100
    assert str(again.PatientName) == "Müller^Jörg"
    assert (again.PatientID, again.StudyInstanceUID, again.FrameOfReferenceUID) == (
        "P1",
        "1.2.3.4",
        "1.2.3.7",
    )
    assert (again.Modality, again.ContentDate, again.ContentTime) == ("SEG", "20240103", "111213")
    assert again.ReferencedSeriesSequence[0].SeriesInstanceUID == SERIES != again.SeriesInstanceUID
    types = [segmentation.get_segment_description(number).segmented_property_type for number in (1, 2, 3)]
    assert types[0] == hd.sr.CodedConcept("108369006", "SCT", "Neoplasm")
    assert (types[1].value, types[1].scheme_designator) == ("Drüse / x", "99HISTOMONAI")
    assert (types[2].value, types[2].meaning) == ("a" * 80, "a" * 64)
    algorithm = again.SegmentSequence[0].SegmentationAlgorithmIdentificationSequence[0]
    assert (algorithm.AlgorithmName, algorithm.AlgorithmVersion) == MODEL
    assert algorithm.AlgorithmParameters == "stride_um=10.0"


def test_equal_maps_are_equal_bytes_and_others_are_other_objects(tmp_path: Path) -> None:
    slide = write_dicom_slide(tmp_path / "s", _pixels(), MPP)
    heatmap = _map(slide)
    other = Heatmap(heatmap.grid, heatmap.cells, heatmap.tissue, {"model": heatmap.values["model"] / 2})
    uids = [
        _write(slide, tmp_path / name, a_map, tumor="model").SOPInstanceUID
        for name, a_map in (("a.dcm", heatmap), ("b.dcm", heatmap), ("c.dcm", other))
    ]
    assert (tmp_path / "a.dcm").read_bytes() == (tmp_path / "b.dcm").read_bytes()
    assert uids[0] == uids[1] != uids[2]


def test_a_slide_without_names_and_dates_is_written(tmp_path: Path) -> None:
    removed = ("PatientName", "PatientID", "PatientBirthDate", "PatientSex", "AccessionNumber", "StudyID")
    removed += (
        "StudyDate",
        "StudyTime",
        "ContentDate",
        "ContentTime",
        "SeriesNumber",
        "SpecimenDescriptionSequence",
    )
    slide = write_dicom_slide(tmp_path / "s", _pixels(), MPP, **dict.fromkeys(removed))
    segmentation = _write(slide, tmp_path / "m.dcm", _map(slide), tumor="model")
    assert segmentation.ContentDate == "19000101"
    assert not segmentation.PatientID


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"FrameOfReferenceUID": None}, "header lacks FrameOfReferenceUID. Fix: "),
        ({"PatientSex": "X"}, "does not fit a Segmentation .*PatientSex.* Fix: "),
        ({"SeriesNumber": -3}, "does not fit a Segmentation .*series_number.* Fix: "),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_wrong_header_is_refused_before_the_slide_is_mapped(
    changed: dict[str, object], message: str, tmp_path: Path
) -> None:
    slide = write_dicom_slide(tmp_path / "s", _pixels(), MPP, **changed)
    with pytest.raises(SlideError, match=message):
        check_slide(slide, _map(slide).grid, ["tumor"])


def test_slides_without_identifiers_or_a_level_of_bearable_size_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = write_dicom(tmp_path, _pixels(512, 512), MPP)[0]
    with pytest.raises(SlideError, match=r"header lacks FrameOfReferenceUID, .* Fix: correct it"):
        check_slide(bare, _map(bare).grid, ["tumor"])
    slide = write_dicom_slide(tmp_path / "s", _pixels(), MPP, steps=(1, 25))
    monkeypatch.setattr(dicom, "_MOST_VALUES", 2 * 336 * 500)
    grid = _map(slide).grid
    check_slide(slide, grid, ["gland", "tumor"])
    with pytest.raises(SlideError, match=r"500 x 336 px, too many\. Fix: "):
        check_slide(slide, grid, ["gland", "stroma", "tumor"])


@pytest.mark.parametrize("package", ["highdicom", "pydicom"])
def test_a_missing_package_is_named(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slide = write_dicom_slide(tmp_path / "s", _pixels(), MPP)
    grid = _map(slide).grid
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        InputError, match=rf"{package}: not installed\. Fix: pip install '\./histo_monai\[dicom\]'"
    ):
        check_slide(slide, grid, ["tumor"])
