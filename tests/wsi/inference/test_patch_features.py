"""HDF5 of features: what CLAM and TRIDENT read in it, and that it comes back."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from histo_monai.slides.tiles.grid import Grid
from histo_monai.wsi.heatmaps.origin import Origin
from histo_monai.wsi.inference.patch_features import (
    FeatureFile,
    PatchFeatures,
    read_made_from,
    write_features,
)

ORIGIN = Origin(3, "ab", 0.25, {"encoder": "cd"}, (), {"mpp": 1.0})


def _found(num: int = 5) -> PatchFeatures:
    drawn = np.random.default_rng(0)
    grid = Grid(48.0, 0.25, (1000, 1600))
    cells = np.argwhere(np.ones(grid.shape, bool))[3 : 3 + num]
    tissue = drawn.random(num).astype(np.float32)
    return PatchFeatures(grid, cells, tissue, drawn.normal(size=(num, 7)).astype(np.float32), 64, 1.0)


def test_others_find_what_they_look_for(tmp_path: Path) -> None:
    found = _found()
    write_features(tmp_path / "a.h5", found, encoder="resnet18", origin=ORIGIN)
    with h5py.File(tmp_path / "a.h5") as file:
        features, coords, about = file["features"][:], file["coords"][:], dict(file["coords"].attrs)
    np.testing.assert_array_equal(features, found.features)
    assert features.dtype == np.float32
    assert coords.dtype == np.int64
    for (row, column), (x, y) in zip(found.cells, coords, strict=True):
        # 48 µm are 192 level-0 pixels, and the 64 µm of a patch 256: it begins 32 before its cell.
        assert (x, y) == (column * 192 - 32, row * 192 - 32)
    assert about["patch_size"] == 64
    assert about["patch_size_level0"] == 256
    assert about["overlap"] == 16
    assert (about["level0_width"], about["level0_height"]) == (1600, 1000)
    assert (about["level0_magnification"], about["target_magnification"]) == (40.0, 10.0)
    assert about["name"] == "a"


@pytest.mark.parametrize("num", [0, 1, 5])
def test_it_comes_back_as_it_was(num: int, tmp_path: Path) -> None:
    found = _found(num)
    write_features(tmp_path / "a.h5", found, encoder="resnet18", origin=ORIGIN)
    with FeatureFile(tmp_path / "a.h5") as file:
        again = file.read()
        assert (file.num_patches, file.num_features) == (num, 7)
    for name in ("cells", "tissue", "features"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))
    assert (again.grid, again.patch_px, again.mpp) == (found.grid, 64, 1.0)
    assert read_made_from(tmp_path / "a.h5") == ORIGIN.as_dict()


def test_equal_features_are_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_features(tmp_path / name / "s.h5", _found(), encoder="resnet18", origin=ORIGIN)
    assert (tmp_path / "a/s.h5").read_bytes() == (tmp_path / "b/s.h5").read_bytes()


def test_what_is_no_such_file_is_refused_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with pytest.raises(ValueError, match=r"a\.h5: not found"):
        FeatureFile(path)
    path.write_bytes(b"no HDF5")
    with pytest.raises(ValueError, match=r"a\.h5: not a features file of histo_monai"):
        FeatureFile(path)
    with h5py.File(path, "w") as file:
        file["features"] = np.zeros((2, 3))
    with pytest.raises(ValueError, match=r"a\.h5: not a features file of histo_monai"):
        FeatureFile(path)
    assert read_made_from(path) is None
    write_features(path, _found(), encoder="resnet18", origin=ORIGIN)
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(ValueError, match=r"a\.h5: "), FeatureFile(path) as file:
        file.read()
