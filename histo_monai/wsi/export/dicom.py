"""Maps as DICOM Segmentation (FRACTIONAL, PROBABILITY), for archives and viewers of DICOM slides.

Why no Parametric Map: a segment has a coded class, more programs read 8-bit segments than float pixels, and Slim leaves
value 0 transparent. A map has the pixels of one of the slide's own levels: a viewer needs no convention for corners and
middles of pixels, and old versions of Slim show no other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from histo_monai import __version__
from histo_monai.slides import SlideError
from histo_monai.slides.tiles.grid import Grid
from histo_monai.utils.errors import check_installed
from histo_monai.utils.escapes import printable
from histo_monai.utils.storage import slide_files, whole_file
from histo_monai.wsi.heatmaps.heatmap import Heatmap

if TYPE_CHECKING:
    from pydicom import Dataset

PRIVATE_SCHEME = "99HISTOMONAI"
"""Coding scheme of classes without a code of SNOMED CT; the class is its own code."""

_ABNORMAL = ("49755003", "SCT", "Morphologically Abnormal Structure")
_NEOPLASM = ("108369006", "SCT", "Neoplasm")
_CODES = {
    **dict.fromkeys(("tumor", "tumour", "neoplasm"), (_ABNORMAL, _NEOPLASM)),
    "necrosis": (_ABNORMAL, ("6574001", "SCT", "Necrosis")),
}
"""Class -> category and type of a segment (CID 7150 and 7151)."""
_TISSUE = ("85756007", "SCT", "Tissue")
"""Category of other classes."""

_HIGHEST = 255
_LONGEST = 64  # characters of DICOM's long string
_MOST_VALUES = 2**28  # 1 GiB of float32
_NO_DATE, _NO_TIME = "19000101", "000000"  # Type 1 attributes, of slides whose dates were removed.
_NEEDED = (
    *(
        "StudyInstanceUID",
        "SeriesInstanceUID",
        "SOPInstanceUID",
        "FrameOfReferenceUID",
        "ContainerIdentifier",
    ),
    *("ImageOrientationSlide", "TotalPixelMatrixOriginSequence", "SharedFunctionalGroupsSequence"),
)
_MAY_BE_EMPTY = (
    *("PatientID", "PatientName", "PatientBirthDate", "PatientSex", "AccessionNumber"),
    *("StudyID", "StudyDate", "StudyTime"),
)
_FIX = "Fix: correct it, or leave out --dicom"


def check_slide(slide: Path, grid: Grid, classes: Sequence[str]) -> None:
    """Refuse a slide whose map `write_segmentation` cannot write, before it is mapped.

    Raises:
        SlideError, InputError: as in `write_segmentation`.
    """
    level, _ = _source_level(slide, grid, len(classes))
    level.TotalPixelMatrixRows = level.TotalPixelMatrixColumns = 1
    _segmentation(slide, level, np.zeros((1, 1, 1, len(classes)), np.float32), classes, ("model", "-"), {})


def write_segmentation(
    path: Path,
    slide: Path,
    heatmap: Heatmap,
    columns: Mapping[str, str],
    model: tuple[str, str],
    settings: Mapping[str, float | str],
) -> None:
    """Write a map as a Segmentation in the slide's study; it appears complete or not at all.

    A pixel has the value of the cell around its middle: 0 without prediction, else 255 times the probability or score,
    at least 1. Equal maps give equal bytes: identifiers derive from the content, and dates are the slide's.

    Args:
        path: its folder is created.
        slide: a DICOM instance of the slide.
        columns: class -> column of the map; one segment each.
        model: name and SHA-256.
        settings: of the map, by name.

    Raises:
        SlideError: the slide is not in DICOM, its header lacks or has wrong values, or no level is small enough.
        InputError: the packages of `dicom` are missing.
    """
    level, downsample_yx = _source_level(slide, heatmap.grid, len(columns))
    values = _on_level(heatmap, columns.values(), _size_yx(level), downsample_yx)
    segmentation = _segmentation(slide, level, values, list(columns), model, settings)
    with whole_file(path) as draft:
        segmentation.save_as(draft)


def _source_level(slide: Path, grid: Grid, num_classes: int) -> tuple[Dataset, tuple[float, float]]:
    """Header and downsample (down, across) of the coarsest level whose pixels are not larger than a cell."""
    check_installed(("highdicom", "pydicom"), "dicom")
    levels = [header for file in slide_files(slide) for header in _volumes(file)]
    base = next((one for one in levels if _size_yx(one) == grid.size_yx), None)
    if base is None:
        raise SlideError(
            slide,
            "no DICOM slide, so its map has no patient and no study. Fix: leave out --dicom, or give a DICOM slide",
        )
    if lacking := [name for name in _NEEDED if not base.get(name)]:
        raise SlideError(slide, f"its DICOM header lacks {', '.join(lacking)}. {_FIX}")
    try:
        nested = [(one, _downsample_yx(one, base)) for one in levels if _has_place_of(one, base)]
    except (AttributeError, IndexError, TypeError) as error:
        raise SlideError(slide, f"its DICOM header is incomplete ({error}). {_FIX}") from None
    fine = [each for each in nested if max(each[1]) <= grid.downsample]
    level, downsample_yx = max(fine, default=(base, (1.0, 1.0)), key=lambda each: each[1])
    height, width = _size_yx(level)
    if height * width * num_classes > _MOST_VALUES:
        raise SlideError(
            slide,
            f"its level for the map has {width} x {height} px, too many. Fix: add coarser levels, or leave out --dicom",
        )
    return level, downsample_yx


def _segmentation(
    slide: Path,
    level: Dataset,
    values: NDArray[np.float32],
    classes: Sequence[str],
    model: tuple[str, str],
    settings: Mapping[str, float | str],
) -> Dataset:
    """The object with values of `_on_level`, whose shape without the last is the level's."""
    import highdicom as hd
    from highdicom.coding_schemes import CodingSchemeIdentificationItem
    from pydicom.uid import generate_uid

    facts = [level.SOPInstanceUID, *classes, *model, str(dict(settings)), __version__, hd.__version__]
    facts.append(hashlib.sha256(values.tobytes()).hexdigest())
    uids = {part: generate_uid(entropy_srcs=[*facts, part]) for part in ("series", "instance", "dimensions")}
    for name in _MAY_BE_EMPTY:
        level.setdefault(name, None)
    segments = _segments(classes, model, settings)
    try:
        segmentation = hd.seg.Segmentation(
            source_images=[level],
            pixel_array=values,
            segmentation_type="FRACTIONAL",
            segment_descriptions=segments,
            series_instance_uid=uids["series"],
            series_number=int(level.get("SeriesNumber") or 0) + 1,
            sop_instance_uid=uids["instance"],
            instance_number=1,
            manufacturer="histo_monai",
            manufacturer_model_name="histo_monai",
            software_versions=__version__,
            device_serial_number=model[1],
            content_label="HEATMAP",
            content_description="probability or score v / 255; 0: no prediction",
            series_description="histo_monai map",
            content_date=level.get("ContentDate") or _NO_DATE,
            content_time=level.get("ContentTime") or _NO_TIME,
            specific_character_set="ISO_IR 192",
            tile_pixel_array=True,
            dimension_organization_type="TILED_FULL",
            omit_empty_frames=False,
            coding_schemes=[CodingSchemeIdentificationItem(PRIVATE_SCHEME, "Classes of histo_monai's users")],
        )
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:  # of values that it checks
        raise SlideError(slide, f"its DICOM header does not fit a Segmentation ({error}). {_FIX}") from error
    # Times of the clock; the last contributor is highdicom.
    del segmentation.InstanceCreationDate, segmentation.InstanceCreationTime
    del segmentation.ContributingEquipmentSequence[-1].ContributionDateTime
    segmentation.DimensionOrganizationSequence[0].DimensionOrganizationUID = uids["dimensions"]
    return segmentation


def _volumes(file: Path) -> Iterator[Dataset]:
    """Header of a level of a slide; nothing for labels, overviews and other files."""
    import pydicom

    try:
        header = pydicom.dcmread(file, stop_before_pixels=True)
    except pydicom.errors.InvalidDicomError:  # no DICOM
        return
    except Exception as error:  # pydicom raises errors of many kinds for a damaged header
        raise SlideError(file, f"its DICOM header is damaged ({error}). {_FIX}") from None
    if list(header.get("ImageType", []))[2:3] == ["VOLUME"] and "TotalPixelMatrixRows" in header:
        yield header


def _size_yx(level: Dataset) -> tuple[int, int]:
    return level.TotalPixelMatrixRows, level.TotalPixelMatrixColumns


def _spacing_yx(level: Dataset) -> NDArray[np.float64]:
    """Side of a pixel (down, across), mm."""
    measures = level.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence[0]
    return np.array(measures.PixelSpacing, np.float64)


def _downsample_yx(level: Dataset, base: Dataset) -> tuple[float, float]:
    down, across = (_spacing_yx(level) / _spacing_yx(base)).tolist()
    return down, across


def _has_place_of(level: Dataset, base: Dataset) -> bool:
    """Whether both levels begin at one place; origins are corners or middles of pixels, by the writer."""
    alike = ("FrameOfReferenceUID", "ImageOrientationSlide")
    if any(level.get(name) != base.get(name) for name in alike):
        return False
    apart_mm = _origin_mm(level) - _origin_mm(base)
    return bool((np.abs(apart_mm) <= _spacing_yx(level).max()).all())


def _origin_mm(level: Dataset) -> NDArray[np.float64]:
    origin = level.TotalPixelMatrixOriginSequence[0]
    return np.array(
        [origin.XOffsetInSlideCoordinateSystem, origin.YOffsetInSlideCoordinateSystem], np.float64
    )


def _on_level(
    heatmap: Heatmap, columns: Collection[str], size_yx: tuple[int, int], downsample_yx: tuple[float, float]
) -> NDArray[np.float32]:
    """Values of the cells around the middles of a level's pixels, (1, *size_yx, columns), 0..1."""
    rows, places = (
        np.minimum((np.arange(size) + 0.5) * step / heatmap.grid.downsample, most - 1).astype(np.int64)
        for size, step, most in zip(size_yx, downsample_yx, heatmap.grid.shape, strict=True)
    )
    values = np.zeros((1, *size_yx, len(columns)), np.float32)
    for number, column in enumerate(columns):
        raster = heatmap.raster(column)
        raster = np.where(np.isnan(raster), 0, np.maximum(raster, 1 / _HIGHEST))
        values[0, ..., number] = raster[np.ix_(rows, places)]
    return values


def _segments(
    classes: Sequence[str], model: tuple[str, str], settings: Mapping[str, float | str]
) -> list[Dataset]:
    """A segment per class, with the model."""
    import highdicom as hd
    from pydicom.sr.codedict import codes

    algorithm = hd.AlgorithmIdentificationSequence(
        name=_text(model[0])[-_LONGEST:],
        family=codes.DCM.ArtificialIntelligence,
        version=model[1],
        source=f"histo_monai {__version__}",
        parameters={name: _text(str(value)) for name, value in settings.items()},
    )
    segments = []
    for number, label in enumerate(classes, 1):
        text = _text(label)
        private = (text, PRIVATE_SCHEME, text[:_LONGEST])
        category, kind = _CODES.get(label.casefold(), (_TISSUE, private))
        segments.append(
            hd.seg.SegmentDescription(
                number,
                text[:_LONGEST],
                hd.sr.CodedConcept(*category),
                hd.sr.CodedConcept(*kind),
                "AUTOMATIC",
                algorithm,
            )
        )
    return segments


def _text(text: str) -> str:
    """A text without what DICOM's strings interpret."""
    return printable(text).replace("\\", "/")
