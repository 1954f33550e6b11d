"""Coordinates of CLAM, of TRIDENT and of this project's own features, as centers to pretrain on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest

from histo_monai.data.readers.coordinates import read_patch_centers
from histo_monai.pipeline.cli import main
from histo_monai.utils.errors import InputError
from tests.hostile.project import OWN, SIDE_PX, write_own_project

CORNERS_XY = np.array([(100, 200), (132, 200), (300, 40)])
SIDES: dict[str, tuple[dict[str, Any], float]] = {
    "TRIDENT": ({"patch_size": 256, "patch_size_level0": 512, "overlap": 0}, 512),
    "CLAM, level 0": ({"patch_size": 256, "patch_level": 0, "downsample": np.array([1.0, 1.0])}, 256),
    "CLAM, level 2": ({"patch_size": 256, "patch_level": 2, "downsample": np.array([16.0, 16.0])}, 4096),
}


def _write(path: Path, corners_xy: np.ndarray, about: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file["coords"] = corners_xy
        file["coords"].attrs.update(about)


@pytest.mark.parametrize("writer", SIDES)
def test_a_center_is_half_a_side_from_the_corner(writer: str, tmp_path: Path) -> None:
    about, side = SIDES[writer]
    _write(tmp_path / "a.h5", CORNERS_XY, about)
    for (x, y), center in zip(CORNERS_XY, read_patch_centers(tmp_path / "a.h5"), strict=True):
        assert tuple(center) == (y + side / 2, x + side / 2)


def test_what_is_no_such_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    path.write_bytes(b"not HDF5")
    with pytest.raises(InputError, match=r"a\.h5: cannot be read as HDF5"):
        read_patch_centers(path)
    _write(path, CORNERS_XY, {"patch_level": 1})
    with pytest.raises(InputError, match=r"\['patch_level'\].* no side of a patch"):
        read_patch_centers(path)
    _write(path, CORNERS_XY, {"patch_size": 256, "patch_level": 1})
    with pytest.raises(InputError, match="no side of a patch"):
        read_patch_centers(path)
    _write(path, np.zeros((0, 2)), {"patch_size": 256})
    with pytest.raises(InputError, match="holds no patch"):
        read_patch_centers(path)
    _write(path, np.zeros((4, 3)), {"patch_size": 256})
    with pytest.raises(InputError, match="has no dataset coords of two columns"):
        read_patch_centers(path)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_own_project()


def _centers() -> pd.DataFrame:
    assert main(["index"]) == 0
    return pd.read_csv("data/index/centers.csv")


@pytest.mark.usefixtures("project")
def test_a_slide_with_coordinates_is_pretrained_on_at_these_places_and_others_as_before() -> None:
    before = _centers()
    places = [(x, y) for x in range(96, SIDE_PX - 128, 40) for y in range(96, SIDE_PX - 128, 40)]
    _write(OWN / "coordinates/s0.h5", np.array(places), {"patch_size": 64, "patch_level": 0})
    after = _centers()
    known = {(y + 32, x + 32) for x, y in places}
    of_slide = after[after["slide_id"] == "s0"]
    assert len(of_slide) > 0
    assert set(zip(of_slide["y"], of_slide["x"], strict=True)) <= known
    assert not of_slide.duplicated(["y", "x"]).any()
    rest, same = (table[table["slide_id"] != "s0"].reset_index(drop=True) for table in (after, before))
    pd.testing.assert_frame_equal(rest, same)


@pytest.mark.usefixtures("project")
def test_coordinates_of_another_slide_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    _write(OWN / "coordinates/s0.h5", CORNERS_XY + 10_000, {"patch_size": 64})
    assert main(["index"]) == 1
    assert "none of its 3 patches has a field of" in capsys.readouterr().err
    (OWN / "coordinates/s0.h5").rename(OWN / "coordinates/other.h5")
    assert main(["index"]) == 1
    assert "slides.csv has no slide_id 'other'" in capsys.readouterr().err
