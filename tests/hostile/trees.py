"""Tiny trees of the three public datasets, as they were published."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.hostile.project import write_image, write_slide, write_text

CLASSES = ("ADI", "BACK", "DEB", "LYM", "MUC", "MUS", "NORM", "STR", "TUM")
LESION = ((120, 120), (120, 360), (360, 360), (360, 120))


def asap(*outlines: tuple[str, str, tuple[tuple[float, float], ...]]) -> str:
    """An XML of ASAP: (name, group, corners (y, x)) of each polygon."""
    parts = [
        f'<Annotation Name="{name}" Type="Polygon" PartOfGroup="{group}" Color="#F4FA58"><Coordinates>'
        + "".join(f'<Coordinate Order="{i}" X="{x}" Y="{y}" />' for i, (y, x) in enumerate(corners))
        + "</Coordinates></Annotation>"
        for name, group, corners in outlines
    ]
    return (
        '<?xml version="1.0"?><ASAP_Annotations><Annotations>'
        + "".join(parts)
        + "</Annotations><AnnotationGroups></AnnotationGroups></ASAP_Annotations>"
    )


def write_camelyon16(root: Path) -> None:
    """Four training slides of each kind, two test slides."""
    for number in (1, 2, 3, 4):
        write_slide(root / f"training/normal/normal_{number:03d}.tif", seed=10 + number)
        write_slide(root / f"training/tumor/tumor_{number:03d}.tif", seed=20 + number)
        write_text(root / f"training/lesion_annotations/tumor_{number:03d}.xml", asap(("_0", "_0", LESION)))
    for number in (1, 2):
        write_slide(root / f"testing/images/test_{number:03d}.tif", seed=30 + number)
    write_text(root / "testing/lesion_annotations/test_001.xml", asap(("_0", "Tumor", LESION)))
    write_text(root / "testing/reference.csv", "test_001,Tumor,IDC,Macro\ntest_002,Normal,None,None\n")


def write_kather(root: Path) -> None:
    """Three images of each class in the training folder, one in the test folder."""
    for i, name in enumerate(CLASSES):
        for k in range(3):
            write_image(root / f"NCT-CRC-HE-100K/{name}/{name}-A{k}.tif", seed=100 * i + k, side_px=224)
        write_image(root / f"CRC-VAL-HE-7K/{name}/{name}-T.tif", seed=100 * i + 50, side_px=224)


def write_breastpathq(root: Path) -> None:
    """Three slides, four scored patches of training, two of validation, two of the test."""
    for number in (1, 2, 3):
        write_slide(root / f"slides/{number}_1.svs", seed=40 + number, mpp=0.5)
    datasets, test = root / "breastpathq/datasets", root / "breastpathq-test"
    for slide in (90001, 90002):
        for region in (1, 2):
            write_image(datasets / f"train/{slide}_{region}.tif", seed=slide + 7 * region, side_px=512)
    for slide in (90003, 90004):
        write_image(datasets / f"validation/{slide}_1.tif", seed=slide, side_px=512)
    for slide in (90005, 90006):
        write_image(test / f"test_patches/{slide}_1.tif", seed=slide, side_px=512)
    rows = "".join(f"{slide},{region},0.{region}\n" for slide in (90001, 90002) for region in (1, 2))
    write_text(datasets / "train_labels.csv", "slide,rid,y\n" + rows)
    write_text(datasets / "val_labels.csv", "slide,rid,y\n90003,1,0.3\n90004,1,0.8\n")
    write_text(test / "test_labels.csv", "slide,rid,p1,p2\n90005,1,0.4,0.5\n90006,1,0.9,1\n")


WRITERS: dict[str, Callable[[Path], None]] = {
    "camelyon16": write_camelyon16,
    "kather": write_kather,
    "breastpathq": write_breastpathq,
}
