from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tifffile
from matplotlib.path import Path as Outlined

from histo_monai.data.index.labels import build_labels, count_patches
from histo_monai.data.leakage.review import Surroundings
from histo_monai.data.leakage.views import look_at_slides
from histo_monai.data.readers.own import reader as own
from histo_monai.data.tables.columns import whole_slide_table
from histo_monai.data.tables.patches import LabeledDataset
from histo_monai.slides import Box, open_slide
from histo_monai.slides.annotations import Point, Region, write_annotations

Take = Callable[..., LabeledDataset]


def box(y: float, x: float, height: float, width: float, label: str = "Tumor") -> Region:
    return Region(np.array([(y, x), (y, x + width), (y + height, x + width), (y + height, x)]), label=label)


def disc(y: float, x: float, radius: float, num: int = 400) -> np.ndarray:
    turn = np.linspace(0, 2 * np.pi, num, endpoint=False)
    return np.array([y, x]) + radius * np.stack([np.sin(turn), np.cos(turn)], axis=1)


@pytest.fixture
def take(folder: Path) -> Take:
    """Patches of 64 µm, after the given regions were written for slide a."""

    def take(*regions: Region, points: tuple[Point, ...] = (), **changes: Any) -> LabeledDataset:
        if regions or points:
            write_annotations(folder / "annotations" / "a.geojson", regions, points)
        settings = {"patch_px": 64, "region_mpp": 1.0, "min_region_fraction": 0.75, "num_per_region": 99}
        return own.labeled_patches(folder, **{**settings, **changes})

    return take


def centers(dataset: LabeledDataset) -> list[tuple[float, float]]:
    return [(y, x) for y, x in dataset.table[["y", "x"]].to_numpy().tolist()]


def test_a_region_of_whole_patches_gives_exactly_these(take: Take, folder: Path) -> None:
    rows = take(box(100.5, 50, 128, 192, "Stroma"))
    assert centers(rows) == [(y, x) for y in (132.5, 196.5) for x in (82, 146, 210)]
    table = rows.table
    assert set(table["label"]) == {"Stroma"}
    assert set(table["slide_id"]) == {"a"}
    assert set(table["path"]) == {str(folder / "a.tif")}
    assert set(table["patient_id"]) == {"anna"}
    assert set(table["split"]) == {"train"}
    assert table[["side_px", "mpp"]].drop_duplicates().to_numpy().tolist() == [[64, 1]]
    assert table["patch_id"].is_unique
    assert table["slide_mpp"].isna().all()
    assert rows.warnings == ()


def test_a_field_is_in_micrometers_also_where_the_manifest_states_the_resolution(
    take: Take, folder: Path
) -> None:
    write_annotations(folder / "annotations" / "b.geojson", [box(0, 0, 512, 640)])
    rows = take(region_mpp=0.5)
    assert len(rows.table) == 8 * 10
    assert set(rows.table["slide_mpp"]) == {0.5}
    assert len(take(region_mpp=1.0).table) == 4 * 5
    assert set(rows.table["split"]) == {"test"}


@pytest.mark.parametrize("least", [0.3, 0.6, 0.75, 0.95])
@pytest.mark.parametrize("seed", range(4))
def test_squares_hold_enough_of_their_region_and_never_overlap_or_leave_the_slide(
    take: Take, seed: int, least: float
) -> None:
    rng = np.random.default_rng(seed)
    turn = np.sort(rng.uniform(0, 2 * np.pi, 12))
    star = np.array([250, 320]) + rng.uniform(150, 380, (12, 1)) * np.stack(
        [np.sin(turn), np.cos(turn)], axis=1
    )
    hole = disc(250, 320, 50)
    places = np.array(
        centers(take(Region(star, (hole,), "Tumor"), min_region_fraction=least, region_mpp=1.03))
    )
    side = 64 * 1.03
    assert len(places) > 5
    assert (places >= side / 2 - 0.01).all()
    assert (places <= np.array([512, 640]) - side / 2 + 0.01).all()
    apart = np.abs(places[:, None] - places[None]).max(axis=2) + 1e9 * np.eye(len(places))
    assert apart.min() > side - 0.02
    grid = (np.indices((40, 40)).reshape(2, -1).T / 39 - 0.5) * side
    for center in places:
        inside = Outlined(star).contains_points(center + grid) & ~Outlined(hole).contains_points(
            center + grid
        )
        assert inside.mean() > least - 0.05


def test_few_patches_of_a_region_are_far_from_each_other_and_among_those_of_more(take: Take) -> None:
    region = box(0, 0, 512, 640)
    all_of_it, six, two = (centers(take(region, num_per_region=num)) for num in (99, 6, 2))
    assert len(all_of_it) == 80
    assert set(two) < set(six) < set(all_of_it)
    assert six == sorted(six)
    places = np.array(six)
    gaps = np.linalg.norm(places[:, None] - places[None], axis=2) + 1e9 * np.eye(6)
    assert gaps.min() > 200  # the first six stand 64 apart
    corners = [(y, x) for y in (32, 480) for x in (32, 608)]
    assert sum(corner in six for corner in corners) >= 3


def test_a_region_too_odd_for_a_grid_gives_one_patch_where_it_is_widest(take: Take) -> None:
    """A disc with a thin tail: its middle is a closed form, the middle of its extent is elsewhere."""
    tail = np.array([(300.0, 500), (301, 500)])
    region = Region(np.concatenate([disc(140, 160, 48), tail]), label="Tumor")
    ((y, x),) = centers(take(region, min_region_fraction=0.97))
    assert (y, x) == (pytest.approx(140, abs=3), pytest.approx(160, abs=3))


def test_regions_without_room_are_named_in_one_warning(take: Take) -> None:
    rows = take(
        box(100, 100, 64, 64),
        box(200, 200, 30, 30),
        Region(np.array([(9.0, 9), (9, 9), (9, 9)]), label="Tumor", name="a speck"),
        box(480, 600, 64, 64),  # half of it beyond the slide
        min_region_fraction=0.5,
    )
    assert centers(rows) == [(132, 132)]
    flat, line = rows.warnings
    assert "annotations/a.geojson: 1 outline without area left out: 'feature 3'" in flat
    assert "annotations/a.geojson: no place" in line
    assert "64 px at 1 µm/px, 0.5 of it inside" in line
    assert "region 2 (Tumor, around y 215, x 215); region 3 (Tumor, around y 512" in line
    assert "region 1" not in line


def test_what_has_no_class_or_one_that_qupath_ignores_is_counted_and_left_out(take: Take) -> None:
    rows = take(
        box(0, 0, 64, 64),
        box(200, 200, 64, 64, ""),
        box(200, 200, 64, 64, "Region*"),
        points=(Point((100, 100)), Point((400, 400), "Stroma")),
    )
    assert rows.table["label"].tolist() == ["Tumor", "Stroma"]
    assert len(rows.warnings) == 2
    assert (
        "annotations: 2 regions or points have no class yet and are left out: 2 in a.geojson"
        in (rows.warnings[0])
    )
    assert "1 regions or points have a class that is ignored" in rows.warnings[1]


def test_a_point_with_a_class_is_one_patch_around_it(take: Take) -> None:
    rows = take(points=(Point((100.25, 200), "Mitosis"), Point((500, 200), "Mitosis")))
    assert centers(rows) == [(100.25, 200)]
    assert rows.table["patch_id"].tolist() == ["a-point00001-y100-x200"]
    assert "point 2 (Mitosis, around y 500, x 200)" in rows.warnings[0]


def test_an_island_of_another_class_in_a_hole_gives_its_own_patches(take: Take) -> None:
    whole = box(0, 0, 192, 192)
    with_hole = Region(whole.exterior_yx, (box(64, 64, 64, 64).exterior_yx,), "Tumor")
    table = take(with_hole, box(64, 64, 64, 64, "Necrosis")).table
    assert table["label"].value_counts().to_dict() == {"Tumor": 8, "Necrosis": 1}
    assert centers(take(box(64, 64, 64, 64, "Necrosis"))) == [(96, 96)]


def test_regions_side_by_side_may_have_different_classes_and_overlapping_ones_may_not(take: Take) -> None:
    assert len(take(box(0, 0, 64, 128), box(60, 0, 64, 128, "Stroma")).table) == 4
    with pytest.raises(ValueError, match=r"a\.geojson: region 1 \(Tumor.*and region 2 \(Stroma.* overlap in"):
        take(box(0, 0, 128, 128), box(64, 64, 64, 64, "Stroma"))
    with pytest.raises(
        ValueError, match=r"point 1 \(Stroma.* and region 1 \(Tumor.* overlap in the patch around y 64, x 64"
    ):
        take(box(0, 0, 128, 128), points=(Point((64, 64), "Stroma"),))
    assert len(take(box(0, 0, 128, 128), box(64, 64, 64, 64)).table) == 5


def test_asap_groups_are_classes_and_its_holes_are_left_out(take: Take, folder: Path) -> None:
    hole = box(64, 64, 64, 64).exterior_yx
    regions = [Region(box(0, 0, 192, 192).exterior_yx, (hole,), "Tumor"), box(300, 300, 64, 64, "")]
    write_annotations(folder / "annotations" / "a.xml", regions)
    rows = take()
    assert len(rows.table) == 8
    assert (96, 96) not in centers(rows)
    assert "1 regions or points have no class yet" in rows.warnings[0]


def test_patches_csv_and_annotations_are_read_together(take: Take, folder: Path) -> None:
    (folder / "patches.csv").write_text("slide_id,y,x,mpp,label\nb,100,100,0.5,Stroma\n")
    table = take(box(0, 0, 64, 64)).table
    assert table[["slide_id", "label", "split"]].to_numpy().tolist() == [
        ["b", "Stroma", "test"],
        ["a", "Tumor", "train"],
    ]
    assert own.is_labeled(folder)
    (folder / "patches.csv").write_text("slide_id,y,x,mpp,score\nb,100,100,0.5,0.5\n")
    with pytest.raises(ValueError, match=r"patches\.csv: holds scores, but .*annotations gives labels"):
        take()


def test_a_split_is_given_for_all_or_for_none(take: Take, folder: Path) -> None:
    (folder / "slides.csv").write_text("slide_id,path\na,a.tif\nb,b.tif\n")
    (folder / "patches.csv").write_text("path,label,split\n1.png,Stroma,train\n")
    with pytest.raises(ValueError, match=r"slides\.csv, slide 'a': no split, while other rows"):
        take(box(0, 0, 64, 64))
    (folder / "patches.csv").write_text("path,label,split\n1.png,Stroma,test\n")
    assert take().table["split"].tolist() == ["test", ""]


def test_annotations_alone_make_a_folder_labeled(take: Take, folder: Path) -> None:
    assert not own.is_labeled(folder)
    take(box(0, 0, 64, 64))
    assert own.is_labeled(folder)


def _rename(name: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / "annotations/a.geojson").rename(folder / "annotations" / name)


def _write(name: str, text: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / "annotations" / name).write_text(text)


@pytest.mark.parametrize(
    ("spoil", "changes", "message"),
    [
        (_rename("c.geojson"), {}, r"c\.geojson: slides\.csv has no slide_id 'c'"),
        (_rename("a.json"), {}, r"annotations: 1 file without the ending .* left out: 'a\.json'"),
        (_write("a.xml", ""), {}, r"a\.xml: a second file for slide 'a', beside a\.geojson"),
        (_write("a.geojson", "{"), {}, r"a\.geojson: not JSON"),
        (_write("a.geojson", "[]"), {}, "annotations: gives no patch"),
        (_write("b.geojson", "{"), {}, r"b\.geojson: not JSON"),
        (lambda folder: (folder / "a.tif").write_bytes(b""), {}, r"a\.geojson: .*a\.tif: the file is empty"),
        (lambda folder: None, {"region_mpp": 0.25}, r"a\.geojson: .*0\.25 µm/px requested, finer"),
        (lambda folder: (folder / "slides.csv").unlink(), {}, r"slides\.csv: not found"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    take: Take, folder: Path, spoil: Callable[[Path], Any], changes: dict[str, Any], message: str
) -> None:
    take(box(0, 0, 64, 64))
    spoil(folder)
    with pytest.raises(ValueError, match=message) as caught:
        take(**changes)
    assert "\n" not in str(caught.value)


def test_regions_of_another_slide_are_recognized_by_their_place(take: Take) -> None:
    with pytest.raises(
        ValueError, match=r"a\.geojson: no region or point lies on the slide \(640 × 512 px\)"
    ):
        take(box(5000, 0, 100, 100), box(0, 640, 100, 100))


def test_processes_change_nothing(take: Take, folder: Path) -> None:
    write_annotations(folder / "annotations" / "b.geojson", [box(10, 10, 300, 300, "Stroma")])
    regions = [Region(disc(200, 200, 150), label="Tumor"), box(0, 0, 9, 9)]
    one, two = (take(*regions, processes=num) for num in (1, 2))
    pd.testing.assert_frame_equal(one.table, two.table)
    assert one.warnings == two.warnings


def test_an_annotation_as_qupath_writes_it_becomes_training_patches_of_what_it_outlines(
    tmp_path: Path,
) -> None:
    """Each slide has a dark half, outlined as Tumor, and a bright one, as Stroma."""
    features = [
        {
            "type": "Feature",
            "geometry": {
                "type": "Polygon",
                "coordinates": [[[x, 20], [x + 250, 20], [x + 250, 480], [x, 480], [x, 20]]],
            },
            "properties": {"objectType": "annotation", "classification": {"name": label, "color": [1, 2, 3]}},
        }
        for label, x in (("Tumor", 3.5), ("Stroma", 259))
    ]
    (tmp_path / "annotations").mkdir()
    resolution = {"resolution": (10_000, 10_000), "resolutionunit": "CENTIMETER"}
    for number, name in enumerate("pqrs"):
        pixels = np.random.default_rng(number).integers(0, 100, (512, 512, 3), dtype=np.uint8)
        pixels[:, 256:] += 150
        tifffile.imwrite(tmp_path / f"{name}.tif", pixels, tile=(128, 128), photometric="rgb", **resolution)
        text = json.dumps({"type": "FeatureCollection", "features": features})
        (tmp_path / "annotations" / f"{name}.geojson").write_text(text)
    rows = "".join(
        f"{name},{name}.tif,{split}\n"
        for name, split in zip("pqrs", ("train", "train", "validation", "test"), strict=True)
    )
    (tmp_path / "slides.csv").write_text("slide_id,path,split\n" + rows)
    dataset = own.labeled_patches(
        tmp_path, patch_px=64, region_mpp=1.0, min_region_fraction=0.9, num_per_region=5
    )
    no_slides = pd.DataFrame(columns=["slide_id", "path", "patient_id", "split"], dtype=str).assign(mpp=1.0)
    files = dataset.table[["path"]].assign(mpp=dataset.table["slide_mpp"])
    around = Surroundings(
        no_slides,
        whole_slide_table([]),
        look_at_slides(files, processes=1),
        shared_ids=False,
        within_patients=False,
    )
    labels = build_labels(dataset, around=around, validation_fraction=0.25, seed=0, processes=1)
    table, counts = labels.table, count_patches(labels.table)
    assert counts["classes"] == {
        label: {"train": 10, "validation": 5, "test": 5} for label in ("Stroma", "Tumor")
    }
    assert [line.split(":")[0] for line in labels.warnings] == ["no patient ids"]
    for slide_id, rows_of in table.groupby("slide_id"):
        with open_slide(tmp_path / f"{slide_id}.tif") as slide:
            for row in rows_of.itertuples():
                is_dark = slide.read(Box((row.y, row.x), 64, row.mpp)) < 125
                assert is_dark.mean() > 0.85 if row.label == "Tumor" else is_dark.mean() < 0.15


def test_cells_too_small_for_a_patch_are_known_to_be_so_without_looking_for_their_poles(
    take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("histo_monai.data.readers.own.region_squares._deepest", None)
    cells = [
        Region(disc(12 * row + 8, 12 * column + 8, 5, 16), label="AB"[row % 2])
        for row in range(40)
        for column in range(50)
    ]
    rows = take(box(0, 0, 64, 64, "Tumor"), *cells[::-1], min_region_fraction=0.5)
    assert centers(rows) == [(32, 32)]
    (line,) = rows.warnings
    assert "and 1995 more" in line


def test_a_cell_of_another_class_within_a_patch_does_no_harm_and_half_a_patch_does(take: Take) -> None:
    region = box(0, 0, 512, 640, "Stroma")
    cells = [Region(disc(32 + 64 * n, 32 + 64 * n, 20), label="Tumor") for n in range(8)]
    assert len(take(region, *cells, min_region_fraction=0.5).table) == 80
    message = r"region 1 \(Stroma.* and region 9 \(Tumor.* overlap in the patch around y 480, x 480"
    with pytest.raises(ValueError, match=message):
        take(region, *cells[:7], Region(disc(480, 480, 31), label="Tumor"), min_region_fraction=0.5)
