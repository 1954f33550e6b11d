import csv
import hashlib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import openslide
import pytest
import tifffile

from histo_monai.data.simulated import SimulatedSize, write_simulated
from histo_monai.data.simulated.datasets import breastpathq, camelyon16, kather
from histo_monai.data.simulated.datasets.breastpathq import RATERS, rate
from histo_monai.data.simulated.datasets.camelyon16 import slide_specs
from histo_monai.data.simulated.plans.bowel import CLASSES
from histo_monai.slides.annotations import write_asap_xml
from histo_monai.utils.errors import InputError

SMALL: dict[str, Any] = {
    "seed": 3,
    "num_slides": 4,
    "num_test_slides": 3,
    "num_patches": 20,
    "slide_side_px": 512,
    "slide_mpp": 1.0,
}
SIMULATIONS = {
    "camelyon16": camelyon16.SIMULATED,
    "breastpathq": breastpathq.SIMULATED,
    "kather": kather.SIMULATED,
}


def digests(root: Path) -> dict[str, str]:
    return {
        str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in root.rglob("*")
        if p.is_file()
    }


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    result = {}
    for dataset in SIMULATIONS:
        result[dataset] = tmp_path_factory.mktemp(dataset)
        write_simulated(result[dataset], SIMULATIONS[dataset], SimulatedSize(**SMALL), processes=1)
    return result


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_camelyon16_has_its_published_tree(trees: dict[str, Path]) -> None:
    assert sorted(digests(trees["camelyon16"])) == [
        "testing/images/test_001.tif",
        "testing/images/test_002.tif",
        "testing/images/test_003.tif",
        "testing/lesion_annotations/test_001.xml",
        "testing/lesion_annotations/test_003.xml",
        "testing/reference.csv",
        "training/lesion_annotations/tumor_001.xml",
        "training/lesion_annotations/tumor_002.xml",
        "training/normal/normal_001.tif",
        "training/normal/normal_002.tif",
        "training/tumor/tumor_001.tif",
        "training/tumor/tumor_002.tif",
    ]
    reference = (trees["camelyon16"] / "testing/reference.csv").read_text().split()
    assert reference == ["test_001,Tumor,IDC,Macro", "test_002,Normal,None,None", "test_003,Tumor,IDC,Micro"]


def test_outlines_of_tumor_001_spare_an_island(trees: dict[str, Path]) -> None:
    tree = ElementTree.parse(trees["camelyon16"] / "training/lesion_annotations/tumor_001.xml")
    groups: dict[str, list[np.ndarray]] = {}
    for annotation in tree.findall("./Annotations/Annotation"):
        assert annotation.attrib["Type"] == "Polygon"
        points = [(float(c.attrib["X"]), float(c.attrib["Y"])) for c in annotation.iter("Coordinate")]
        groups.setdefault(annotation.attrib["PartOfGroup"], []).append(np.array(points))
    (hole,) = groups["Exclusion"]
    outer = groups["Tumor"][0]
    assert (outer.min(0) < hole.min(0)).all()
    assert (outer.max(0) > hole.max(0)).all()
    assert outer.min() >= 0
    assert outer.max() <= SMALL["slide_side_px"]


@pytest.mark.parametrize(("seed", "name"), [(22, "tumor_005"), (24, "tumor_001")])
def test_no_metastasis_lies_in_an_island_which_the_annotations_cannot_express(
    seed: int, name: str, tmp_path: Path
) -> None:
    (spec,) = (spec for spec in slide_specs(seed, 48, 48, 2048, 1.0).values() if spec.name == name)
    first, *others = camelyon16.lesion_regions(spec)
    write_asap_xml(tmp_path / "a.xml", [first, *others])
    assert len(first.holes_yx) == 1


def test_half_of_the_training_slides_are_normal_and_numbers_have_no_gap() -> None:
    specs = slide_specs(0, 7, 4, 1000, 0.5)
    assert [p for p in specs if "normal" in p] == [f"training/normal/normal_00{i}.tif" for i in (1, 2, 3, 4)]
    assert [p for p in specs if "tumor" in p] == [f"training/tumor/tumor_00{i}.tif" for i in (1, 2, 3)]
    assert {s.kind for s in specs.values()} == {"normal", "macro", "micro"}
    assert len({s.seed for s in specs.values()}) == 11


def test_breastpathq_has_its_published_tree(trees: dict[str, Path]) -> None:
    root = trees["breastpathq"]
    named = {
        "breastpathq/datasets/train": rows(root / "breastpathq/datasets/train_labels.csv"),
        "breastpathq/datasets/validation": rows(root / "breastpathq/datasets/val_labels.csv"),
        "breastpathq-test/test_patches": rows(root / "breastpathq-test/test_labels.csv"),
    }
    assert [len(v) for v in named.values()] == [14, 2, 4]
    for folder, table in named.items():
        files = {p.name for p in (root / folder).iterdir()}
        assert files == {f"{r['slide']}_{r['rid']}.tif" for r in table}
    by_split = [{r["slide"] for r in table} for table in named.values()]
    assert len(set.union(*by_split)) == sum(len(slides) for slides in by_split)
    assert {r["slide"] for r in rows(root / "breastpathq-test/test_patient_ids.csv")} == by_split[2]
    slides = sorted(root.rglob("*.svs"))
    assert len(slides) == 4
    slide = openslide.OpenSlide(str(slides[0]))
    assert slide.properties["openslide.vendor"] == "aperio"
    assert slide.properties["openslide.mpp-x"] == "1"


def test_breastpathq_patches_have_their_size_and_resolution(trees: dict[str, Path]) -> None:
    for path in (trees["breastpathq"] / "breastpathq").rglob("*.tif"):
        with tifffile.TiffFile(path) as tiff:
            assert tiff.pages[0].shape == (512, 512, 3)
            assert tiff.pages[0].tags["XResolution"].value == (20000, 1)


def test_raters_answer_on_the_grid_and_differ_by_bias() -> None:
    rng = np.random.default_rng(0)
    scores = rng.random(4000)
    answers = np.array([[rate(s, r, rng) for r in RATERS] for s in scores])
    assert np.allclose(answers * 20, np.rint(answers * 20))
    assert answers.min() >= 0
    assert answers.max() <= 1
    bias = (answers - scores[:, None]).mean(0)
    assert bias[0] > bias[1] + 0.03
    assert abs(answers - scores[:, None]).mean() < 0.12
    assert rate(0.0, RATERS[0], rng) == 0.0


def test_kather_has_nine_even_classes_in_two_sets(trees: dict[str, Path]) -> None:
    for folder, total in (("NCT-CRC-HE-100K", 20), ("CRC-VAL-HE-7K", 9)):
        counts = {p.name: len(list(p.glob("*.tif"))) for p in (trees["kather"] / folder).iterdir()}
        assert sorted(counts) == sorted(CLASSES)
        assert sum(counts.values()) == total
        assert max(counts.values()) - min(counts.values()) <= 1
    one = next(trees["kather"].rglob("*.tif"))
    assert tifffile.imread(one).shape == (224, 224, 3)


@pytest.mark.slow
@pytest.mark.parametrize("dataset", SIMULATIONS)
def test_two_processes_write_the_same_bytes_as_one(
    trees: dict[str, Path], tmp_path: Path, dataset: Any
) -> None:
    write_simulated(tmp_path, SIMULATIONS[dataset], SimulatedSize(**SMALL), processes=2)
    assert digests(tmp_path) == digests(trees[dataset])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": -1}, "seed: expected 0 or more"),
        ({"num_slides": 1}, "num_slides: expected 2 or more"),
        ({"num_test_slides": -1}, "num_test_slides: expected 0 or more"),
        ({"slide_side_px": 100}, "slide_side_px: expected 512"),
        ({"slide_mpp": 4.0}, r"slide_mpp: expected 0\.2"),
        ({"slide_mpp": float("nan")}, "slide_mpp"),
        ({"processes": 0}, "processes: expected 1 or more"),
        ({"dataset": "kather", "num_patches": 8}, "num_patches: expected 9 or more"),
    ],
)
def test_arguments_out_of_range_are_refused_before_anything_is_written(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    arguments = {"dataset": "camelyon16", "processes": 1, **SMALL, **change}
    simulated, processes = SIMULATIONS[arguments.pop("dataset")], arguments.pop("processes")
    with pytest.raises(InputError, match=message):
        write_simulated(tmp_path / "new", simulated, SimulatedSize(**arguments), processes)
    assert not (tmp_path / "new").exists()
