"""Slides in DICOM with the identifiers of a hospital, drawn."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.uid import JPEGBaseline8Bit, VLWholeSlideMicroscopyImageStorage

SERIES = "1.2.3.9"
_TILE_PX = 64


def write_dicom_slide(
    folder: Path,
    pixels: NDArray[np.uint8],
    mpp: float,
    steps: Sequence[int] = (1, 4, 8),
    orientation: Sequence[float] = (0, -1, 0, -1, 0, 0),
    origin_mm: tuple[float, float] = (20.0, 45.0),
    *,
    has_middles: bool = False,
    **changed: object,
) -> Path:
    """Level 0 of a series with a level per step.

    Args:
        origin_mm: x and y of the first pixel of level 0.
        has_middles: the origin of each level is the middle of its first pixel; else all levels have one origin.
        changed: attributes of all levels; None removes one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number, step in enumerate(steps):
        height, width = (side // step for side in pixels.shape[:2])
        blocks = pixels[: height * step, : width * step].reshape(height, step, width, step, 3)
        spacing = mpp * step / 1000
        shift = (step - 1) / 2 * mpp / 1000 if has_middles else 0.0
        along_row, along_column = np.array(orientation[:2]), np.array(orientation[3:5])
        first = np.array(origin_mm) + shift * (along_row + along_column)
        level = _level(blocks.mean((1, 3)).astype(np.uint8), spacing, number)
        level.ImageOrientationSlide = list(orientation)
        level.TotalPixelMatrixOriginSequence = [
            _item(XOffsetInSlideCoordinateSystem=first[0], YOffsetInSlideCoordinateSystem=first[1])
        ]
        for name, value in changed.items():
            if value is None:
                delattr(level, name)
            else:
                setattr(level, name, value)
        level.save_as(folder / f"{number}.dcm", enforce_file_format=True)
    return folder / "0.dcm"


def _level(pixels: NDArray[np.uint8], spacing_mm: float, number: int) -> Dataset:
    height, width = pixels.shape[:2]
    frames = [
        _jpeg(pixels[y : y + _TILE_PX, x : x + _TILE_PX])
        for y in range(0, height, _TILE_PX)
        for x in range(0, width, _TILE_PX)
    ]
    uid = f"{SERIES}.{number}"
    level = _item(
        SpecificCharacterSet="ISO_IR 100",
        ImageType=["ORIGINAL", "PRIMARY", "VOLUME", "NONE" if not number else "RESAMPLED"],
        SOPClassUID=VLWholeSlideMicroscopyImageStorage,
        SOPInstanceUID=uid,
        Modality="SM",
        PatientID="P1",
        PatientName="Müller^Jörg",
        PatientBirthDate="19500102",
        PatientSex="F",
        AccessionNumber="A1",
        StudyID="S1",
        StudyDate="20240102",
        StudyTime="101112",
        ContentDate="20240103",
        ContentTime="111213",
        StudyInstanceUID="1.2.3.4",
        SeriesInstanceUID=SERIES,
        SeriesNumber=3,
        InstanceNumber=number + 1,
        FrameOfReferenceUID="1.2.3.7",
        PositionReferenceIndicator="SLIDE_CORNER",
        DimensionOrganizationType="TILED_FULL",
        SamplesPerPixel=3,
        PhotometricInterpretation="YBR_FULL_422",
        PlanarConfiguration=0,
        NumberOfFrames=len(frames),
        Rows=_TILE_PX,
        Columns=_TILE_PX,
        BitsAllocated=8,
        BitsStored=8,
        HighBit=7,
        PixelRepresentation=0,
        TotalPixelMatrixRows=height,
        TotalPixelMatrixColumns=width,
        TotalPixelMatrixFocalPlanes=1,
        ContainerIdentifier="C1",
        LossyImageCompression="01",
        OpticalPathSequence=[_item(OpticalPathIdentifier="1")],
        SpecimenDescriptionSequence=[_item(SpecimenIdentifier="SP1", SpecimenUID="1.2.3.5")],
        SharedFunctionalGroupsSequence=[
            _item(PixelMeasuresSequence=[_item(PixelSpacing=[spacing_mm] * 2, SliceThickness=0.001)])
        ],
        PixelData=encapsulate(frames),
    )
    level["PixelData"].is_undefined_length = True
    level.file_meta = FileMetaDataset()
    level.file_meta.TransferSyntaxUID = JPEGBaseline8Bit
    level.file_meta.MediaStorageSOPClassUID = VLWholeSlideMicroscopyImageStorage
    level.file_meta.MediaStorageSOPInstanceUID = uid
    return level


def _item(**values: object) -> Dataset:
    item = Dataset()
    for name, value in values.items():
        setattr(item, name, value)
    return item


def _jpeg(pixels: NDArray[np.uint8]) -> bytes:
    tile = np.full((_TILE_PX, _TILE_PX, 3), 255, np.uint8)
    tile[: pixels.shape[0], : pixels.shape[1]] = pixels
    content = io.BytesIO()
    Image.fromarray(tile).save(content, "JPEG", quality=95, subsampling=0)
    return content.getvalue()
