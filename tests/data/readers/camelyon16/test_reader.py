from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from skimage.measure import points_in_poly

from histo_monai.data.readers.camelyon16 import reader as camelyon16
from histo_monai.data.readers.camelyon16.release import PARTLY_OUTLINED
from histo_monai.data.readers.shared.lesion_centers import AnnotatedSlide, LabelPlacement, survey_labels
from histo_monai.data.simulated import SimulatedSize, write_simulated
from histo_monai.data.simulated.datasets.camelyon16 import SIMULATED, make_world, slide_specs
from histo_monai.data.tables.patches import LabeledDataset
from histo_monai.slides import open_slide, tissue_mask
from tests.folders import NewFolder

SIZES: dict[str, Any] = {
    "seed": 4,
    "num_slides": 6,
    "num_test_slides": 2,
    "slide_side_px": 704,
    "slide_mpp": 1.0,
}
PATCH_PX = 32
pytestmark = pytest.mark.slow  # A dataset is rendered for them.

WANTED = {
    "train": {"tumor": 61, "normal": 90},
    "validation": {"tumor": 20, "normal": 30},
    "test": {"tumor": 30, "normal": 30},
}


@pytest.fixture(scope="module")
def simulated(module_folder: NewFolder) -> Path:
    root = module_folder("camelyon16")
    write_simulated(root, SIMULATED, SimulatedSize(num_patches=0, **SIZES), processes=1)
    return root


def draw(root: Path, **changes: Any) -> LabeledDataset:
    settings: dict[str, Any] = {
        "num_reserved_normal": 1,
        "num_reserved_tumor": 1,
        "patch_px": PATCH_PX,
        "mpp": 1.0,
        "min_tumor_fraction": 0.5,
        "wanted": WANTED,
        "tissue_mpp": 8.0,
        "min_tissue_fraction": 0.5,
        "validation_fraction": 0.25,
        "seed": 0,
        "skip_bad_slides": False,
        "processes": 1,
    }
    return camelyon16.labeled_patches(root, **(settings | changes))


@pytest.fixture(scope="module")
def drawn(simulated: Path) -> LabeledDataset:
    return draw(simulated)


def tumor_fractions(slide_id: str, centers_yx: np.ndarray, side_px: float) -> np.ndarray:
    """Part of each field that the outlines of the rendering enclose, by points counted one field at a time."""
    specs = {spec.name: spec for spec in slide_specs(*SIZES.values()).values()}
    lesions = make_world(specs[slide_id])[1]
    ticks = (np.arange(48) + 0.5) / 48 * side_px - side_px / 2
    grid = np.stack(np.meshgrid(ticks, ticks, indexing="ij"), axis=-1).reshape(-1, 2)
    fractions = []
    for center in centers_yx:
        points = (center + grid) * SIZES["slide_mpp"]
        inside = np.zeros(len(points), bool)
        for lesion in lesions:
            in_holes = [points_in_poly(points, hole) for hole in lesion.holes]
            inside |= points_in_poly(points, lesion.exterior) & ~np.any(
                [np.zeros(len(points)), *in_holes], axis=0
            )
        fractions.append(inside.mean())
    return np.array(fractions)


def by_slide(table: pd.DataFrame, label: str) -> Iterator[tuple[str, np.ndarray]]:
    for slide_id, rows in table[table["label"] == label].groupby("slide_id"):
        yield str(slide_id), rows[["y", "x"]].to_numpy()


def test_every_tumor_patch_holds_the_tumor_asked_for(drawn: LabeledDataset) -> None:
    result = [tumor_fractions(name, centers, PATCH_PX) for name, centers in by_slide(drawn.table, "tumor")]
    assert len(result) == 3
    fractions = np.concatenate(result)
    assert fractions.min() >= 0.49  # 48 x 48 points count an area to a hundredth
    assert (fractions < 0.75).any()  # up to the border, not only in the middle
    assert (fractions > 0.99).any()


def test_no_normal_patch_holds_any_tumor(drawn: LabeledDataset) -> None:
    result = {
        name: tumor_fractions(name, centers, PATCH_PX) for name, centers in by_slide(drawn.table, "normal")
    }
    assert len(result) == 6
    assert sum(name.startswith("tumor") for name in result) == 2
    assert all((fractions == 0).all() for fractions in result.values())


def test_counts_splits_and_columns_are_what_is_asked_for(drawn: LabeledDataset, simulated: Path) -> None:
    table = drawn.table
    counts = table.groupby(["split", "label"]).size().unstack().to_dict("index")
    assert counts == WANTED
    assert drawn.warnings == ()
    assert table["patch_id"].is_unique
    assert (table["patient_id"] == "").all()
    assert table["label_rank"].isna().all()
    assert (table["mpp"] == 1.0).all()
    assert (table["side_px"] == PATCH_PX).all()
    first = table.iloc[0]
    assert first["patch_id"] == f"{first['slide_id']}-y{first['y']:.0f}-x{first['x']:.0f}"
    assert first["path"] == str(simulated / f"training/tumor/{first['slide_id']}.tif")


def test_slides_lie_in_one_split_and_the_reserved_ones_in_none(drawn: LabeledDataset) -> None:
    splits = drawn.table.groupby("slide_id")["split"].unique()
    assert all(len(split) == 1 for split in splits)
    assert sorted(splits.index) == [
        *("normal_002", "normal_003", "test_001", "test_002", "tumor_002", "tumor_003")
    ]
    for split in ("train", "validation"):
        kinds = [name.split("_")[0] for name, result in splits.items() if result[0] == split]
        assert sorted(kinds) == ["normal", "tumor"]


def test_fields_lie_inside_the_slide_and_on_tissue(drawn: LabeledDataset) -> None:
    for path, rows in drawn.table.groupby("path"):
        centers = rows[["y", "x"]].to_numpy()
        assert centers.min() >= PATCH_PX / 2
        assert centers.max() <= SIZES["slide_side_px"] - PATCH_PX / 2
        with open_slide(str(path)) as slide:
            tissue = np.kron(tissue_mask(slide.thumbnail(8.0)), np.ones((8, 8), bool))
        for y, x in centers.astype(int):
            half = PATCH_PX // 2
            assert tissue[y, x]
            assert tissue[y - half : y + half, x - half : x + half].mean() >= 0.5


def test_slides_share_evenly_and_take_turns(drawn: LabeledDataset) -> None:
    test = drawn.table[drawn.table["split"] == "test"]
    assert test.groupby(["slide_id", "label"]).size().to_dict() == {
        ("test_001", "tumor"): 30,
        ("test_001", "normal"): 15,
        ("test_002", "normal"): 15,
    }
    head = list(zip(test["slide_id"], test["label"], strict=True))[:6]
    assert head == [("test_001", "tumor"), ("test_001", "normal"), ("test_002", "normal")] * 2


def test_the_island_in_a_lesion_is_normal_tissue(simulated: Path) -> None:
    side_px = 16
    survey = survey_labels(
        AnnotatedSlide(
            "tumor_001",
            simulated / "training/tumor/tumor_001.tif",
            "train",
            simulated / "training/lesion_annotations/tumor_001.xml",
        ),
        {"tumor": 500, "normal": 4000},
        seed=0,
        placement=LabelPlacement(side_px, 1.0, 0.9, 8.0, 0.5),
        read_lesions=camelyon16.read_lesions,
    )
    specs = {spec.name: spec for spec in slide_specs(*SIZES.values()).values()}
    (hole,) = make_world(specs["tumor_001"])[1][0].holes
    normal, tumor = (survey.centers_yx[label] for label in ("normal", "tumor"))
    in_hole = normal[points_in_poly(normal, hole)]
    assert len(in_hole) > 20
    assert (tumor_fractions("tumor_001", in_hole, side_px) == 0).all()
    assert not points_in_poly(tumor, hole).any()
    assert tumor_fractions("tumor_001", tumor, side_px).min() >= 0.89


def test_the_patches_do_not_depend_on_the_number_of_processes(simulated: Path, drawn: LabeledDataset) -> None:
    pd.testing.assert_frame_equal(drawn.table, draw(simulated, processes=2).table)


def test_another_seed_draws_others(simulated: Path, drawn: LabeledDataset) -> None:
    assert len(set(drawn.table["patch_id"]) & set(draw(simulated, seed=1).table["patch_id"])) < 20


def test_fewer_of_one_label_are_the_first_of_more_and_leave_the_other_as_it_is(
    simulated: Path, drawn: LabeledDataset
) -> None:
    fewer = draw(simulated, wanted=WANTED | {"train": {"tumor": 20, "normal": 90}}).table
    train = drawn.table[drawn.table["split"] == "train"]
    for label, num in (("tumor", 20), ("normal", 90)):
        expected = train[train["label"] == label]["patch_id"].head(num)
        result = fewer[(fewer["split"] == "train") & (fewer["label"] == label)]["patch_id"]
        assert result.tolist() == expected.tolist()


@pytest.mark.parametrize("label", ["tumor", "normal"])
def test_no_room_names_split_label_and_what_to_lower(simulated: Path, label: str) -> None:
    wanted = WANTED | {"train": {"tumor": 1, "normal": 1, label: 3_000_000}}
    with pytest.raises(ValueError, match=rf"train: .* \d+ {label} places .* 3000000") as caught:
        draw(simulated, wanted=wanted)
    assert f"labels.camelyon16.train.num_{label}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_too_few_slides_after_the_reserved_ones_are_named(simulated: Path) -> None:
    with pytest.raises(ValueError, match=r"training/tumor: 1 slides remain .*corpora\.camelyon16\.num_tumor"):
        draw(simulated, num_reserved_tumor=2)


def test_a_resolution_that_the_slide_has_not_is_named(simulated: Path) -> None:
    with pytest.raises(ValueError, match=r"normal_002\.tif: 0\.25 µm/px requested"):
        draw(simulated, mpp=0.25)


@pytest.fixture
def copy(simulated: Path, tmp_path: Path) -> Path:
    """A simulated to spoil."""
    return Path(shutil.copytree(simulated, tmp_path / "spoilt"))


def test_names_may_be_of_either_case_and_annotations_lie_in_their_zip(
    copy: Path, drawn: LabeledDataset
) -> None:
    folder = copy / "training/lesion_annotations"
    with zipfile.ZipFile(copy / "training/lesion_annotations.zip", "w") as archive:
        for path in folder.iterdir():
            archive.write(path, path.name.replace("tumor", "Tumor"))
    shutil.rmtree(folder)
    for path in [*(copy / "training/tumor").iterdir(), *(copy / "testing/lesion_annotations").iterdir()]:
        path.rename(path.with_name(path.name.capitalize().replace(".xml", ".XML")))
    table = draw(copy, processes=2).table
    columns = ["patch_id", "label", "split"]
    pd.testing.assert_frame_equal(table[columns], drawn.table[columns])


def test_known_dirt_is_left_out_and_reported(copy: Path, drawn: LabeledDataset) -> None:
    normal, images = copy / "training/normal", copy / "testing/images"
    shutil.copy(normal / "normal_003.tif", normal / "normal_086.tif")
    for name in ("test_049", "test_114"):
        shutil.copy(images / "test_001.tif", images / f"{name}.tif")
    xml = copy / "testing/lesion_annotations/test_001.xml"
    shutil.copy(xml, xml.with_name("test_114.xml"))
    with (copy / "testing/reference.csv").open("a") as file:
        file.write("test_114,Tumor,IDC,Macro\ntest_049,Tumor,IDC,Micro\n")
    dirty = draw(copy)
    assert dirty.table["patch_id"].tolist() == drawn.table["patch_id"].tolist()
    assert [note.split("/")[-1].split(".tif")[0] for note in dirty.warnings] == [
        *("normal_086", "test_049", "test_114")
    ]


def remove(name: str) -> Callable[[Path], None]:
    return lambda root: (root / name).unlink()


def rewrite(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        text = (root / name).read_text()
        assert old in text
        (root / name).write_text(text.replace(old, new))

    return change


XML = "training/lesion_annotations/tumor_002.xml"
DAMAGES = {
    "no annotation": (remove(XML), "tumor_002.tif: no annotation tumor_002.xml in"),
    "no slide": (remove("training/tumor/tumor_003.tif"), "tumor_003.xml: there is no slide tumor_003"),
    "no row": (rewrite("testing/reference.csv", "test_001,", "test_114,"), "reference.csv has no row for it"),
    "no image": (remove("testing/images/test_002.tif"), "reference.csv: test_002 has no slide in"),
    "a normal slide outlined": (
        rewrite("testing/reference.csv", "test_001,Tumor", "test_001,Normal"),
        "test_001.xml: outlines lesions on test_001, a normal slide",
    ),
    "a group": (
        rewrite(XML, 'Group="Tumor"', 'Group="Stroma"'),
        "annotation 'Annotation 0': group 'Stroma'",
    ),
    "no group": (rewrite(XML, 'Group="Tumor"', 'Group="None"'), "tumor_002.xml: outlines no tumor"),
    "holes only": (rewrite(XML, 'Group="Tumor"', 'Group="_2"'), "tumor_002.xml: outlines holes only"),
    "another slide's": (rewrite(XML, ' X="', ' X="9'), "tumor_002.xml: no outline lies on"),
    "not XML": (rewrite(XML, "</Annotations>", ""), "tumor_002.xml: not XML"),
    "no slide file": (
        lambda root: (root / "training/tumor/tumor_002.tif").write_bytes(b"II*\0"),
        "tumor_002.tif",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damage_is_one_line_and_with_skip_bad_slides_a_warning(copy: Path, damage: str) -> None:
    spoil, message = DAMAGES[damage]
    spoil(copy)
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the message is what is tested
        draw(copy, num_reserved_tumor=0)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    few = {split: {"tumor": 0, "normal": 1} for split in WANTED} | {"train": {"tumor": 1, "normal": 1}}
    left = draw(copy, num_reserved_tumor=0, wanted=few, skip_bad_slides=True)
    assert any(message in warning for warning in left.warnings)


def test_without_test_patches_no_test_folder_is_needed(copy: Path) -> None:
    shutil.rmtree(copy / "testing")
    without = draw(copy, wanted=WANTED | {"test": {"tumor": 0, "normal": 0}}).table
    assert set(without["split"]) == {"train", "validation"}
    with pytest.raises(ValueError, match=r"testing/reference\.csv: no such file"):
        draw(copy)


def _whole_slides(root: Path, **changes: Any) -> pd.DataFrame:
    table, _ = camelyon16.whole_slides(
        root,
        num_reserved_normal=1,
        num_reserved_tumor=1,
        validation_fraction=0.25,
        seed=0,
        skip_bad_slides=False,
        **changes,
    )
    return table.set_index("slide_id")


def test_slides_to_diagnose_have_the_splits_of_their_patches(simulated: Path, drawn: LabeledDataset) -> None:
    slides = _whole_slides(simulated)
    of_patches = drawn.table.drop_duplicates("slide_id").set_index("slide_id")["split"]
    assert slides["split"].to_dict() == of_patches.to_dict()
    assert "normal_001" not in slides.index
    assert "tumor_001" not in slides.index
    is_tumor = slides["label"] == "tumor"
    assert (slides["annotation"] != "").equals(is_tumor)
    labels = slides.loc[["test_001", "test_002"], ["label", "size"]].to_numpy().tolist()
    assert labels == [["tumor", "macro"], ["normal", ""]]
    assert slides["exhaustive"].all()


def test_a_slide_that_is_not_outlined_throughout_is_diagnosed_all_the_same(
    simulated: Path, tmp_path: Path
) -> None:
    root = tmp_path / "camelyon16"
    shutil.copytree(simulated, root)
    for name in ("images/test_{}.tif", "lesion_annotations/test_{}.xml"):
        (root / "testing" / name.format("001")).rename(root / "testing" / name.format("114"))
    reference = root / "testing/reference.csv"
    reference.write_text(reference.read_text().replace("test_001", "test_114"))
    slides = _whole_slides(root)
    assert slides.loc["test_114", "label"] == "tumor"
    assert not slides.loc["test_114", "exhaustive"]
    assert slides["exhaustive"].sum() == len(slides) - 1


def test_without_test_slides_the_others_are_still_mapped(simulated: Path, tmp_path: Path) -> None:
    shutil.copytree(simulated / "training", tmp_path / "training")
    assert set(_whole_slides(tmp_path)["split"]) == {"train", "validation"}


def test_slides_that_are_outlined_in_part_give_no_normal_patch_and_no_wrong_detection(
    simulated: Path,
) -> None:
    few = {"train": {"tumor": 20, "normal": 20}}
    wanted = few | {"validation": {"tumor": 0, "normal": 0}, "test": {"tumor": 0, "normal": 0}}
    settings: dict[str, Any] = {"wanted": wanted, "validation_fraction": None}
    before = draw(simulated, **settings).table
    on_tumor_slides = before[before["slide_id"].str.startswith("tumor")]
    assert set(on_tumor_slides["label"]) == {"tumor", "normal"}
    partly = tuple(on_tumor_slides["slide_id"].unique())
    after = draw(simulated, **settings, partly_outlined=partly).table
    assert set(after.loc[after["slide_id"].isin(partly), "label"]) == {"tumor"}
    assert (after["label"] == "normal").sum() == 20
    slides = _whole_slides(simulated, partly_outlined=partly)["exhaustive"]
    assert set(slides.index[~slides]) == set(partly)


def test_the_readme_of_the_release_names_twenty_slides() -> None:
    """20 of the 111 tumor slides for training."""
    numbers = [int(name.removeprefix("tumor_")) for name in PARTLY_OUTLINED]
    assert len(set(numbers)) == len(numbers) == 20
    assert 1 <= min(numbers) <= max(numbers) <= 111
