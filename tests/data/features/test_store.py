"""Features on disk: what others read, what is refused, and what float16 loses."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import h5py
import numpy as np
import pytest

from histo_monai.data.features.store import (
    Provenance,
    coordinates_sha256,
    patch_names,
    read_features,
    stored,
    write_columns,
)
from histo_monai.utils.errors import InputError

VALUES = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
COORDS = np.arange(10, dtype=np.int64).reshape(5, 2)
ABOUT = Provenance("e1", "s1", coordinates_sha256(COORDS), 0.5, 224, 0, "float32", "c1")


def _write(path: Path, num: int = 5) -> None:
    names = patch_names([f"é{row}" for row in range(num)])
    write_columns(
        path,
        {
            "features": (VALUES[:num], dataclasses.asdict(ABOUT)),
            "features_flip": (-VALUES[:num], {"view": "flip"}),
            "coords": (COORDS[:num], {}),
            "patch_id": (names, {}),
        },
    )


@pytest.mark.parametrize("num", [0, 1, 5])
def test_features_come_back_with_their_names_and_provenance(num: int, tmp_path: Path) -> None:
    _write(tmp_path / "a.h5", num)
    read = read_features(tmp_path / "a.h5")
    np.testing.assert_array_equal(read.features, VALUES[:num])
    np.testing.assert_array_equal(read.coords, COORDS[:num])
    assert read.patch_id == tuple(f"é{row}" for row in range(num))
    assert read.provenance == ABOUT
    np.testing.assert_array_equal(read_features(tmp_path / "a.h5", view="flip").features, -VALUES[:num])


def test_features_are_a_read_only_map_of_contiguous_uncompressed_bytes(tmp_path: Path) -> None:
    _write(tmp_path / "a.h5")
    features = read_features(tmp_path / "a.h5").features
    assert isinstance(features, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        features[0] = 0
    with h5py.File(tmp_path / "a.h5") as file:
        assert (file["features"].chunks, file["features"].compression) == (None, None)
        offset = file["features"].id.get_offset()
    assert offset % 64 == 0
    plain = np.frombuffer((tmp_path / "a.h5").read_bytes(), np.float32, VALUES.size, offset)
    np.testing.assert_array_equal(plain.reshape(VALUES.shape), VALUES)


@pytest.mark.parametrize("name", ["encoder_sha256", "slide_sha256", "coordinates_sha256"])
def test_a_file_of_another_encoder_slide_or_set_of_patches_is_refused(name: str, tmp_path: Path) -> None:
    _write(tmp_path / "a.h5")
    assert read_features(tmp_path / "a.h5", **{name: getattr(ABOUT, name)}).provenance == ABOUT
    with pytest.raises(InputError, match=rf"a\.h5: {name} is .*, expected other\. Fix: "):
        read_features(tmp_path / "a.h5", **{name: "other"})


@pytest.mark.parametrize("damage", ["missing", "cut", "text", "bare"])
def test_a_file_that_cannot_be_read_is_one_line(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    _write(path)
    if damage == "missing":
        path.unlink()
    elif damage == "bare":
        with h5py.File(path, "w") as file:
            file["features"] = VALUES
    else:
        path.write_bytes(path.read_bytes()[:-200] if damage == "cut" else b"text")
    with pytest.raises(InputError, match=r"a\.h5: not (found|a features file).*Fix: "):
        read_features(path)


def test_a_view_that_is_not_in_the_file_names_the_param(tmp_path: Path) -> None:
    _write(tmp_path / "a.h5")
    with pytest.raises(InputError, match=r"no view 'rotate_90'. Fix: name it in features.views"):
        read_features(tmp_path / "a.h5", view="rotate_90")


def test_one_changed_place_changes_the_digest() -> None:
    moved = COORDS.copy()
    moved[3, 1] += 1
    digests = {coordinates_sha256(COORDS), coordinates_sha256(moved), coordinates_sha256(COORDS[:4])}
    assert len(digests) == 3
    assert coordinates_sha256(COORDS) == coordinates_sha256(COORDS.copy())


def test_float16_rounds_to_eleven_bits_and_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    half = stored(tmp_path / "a.h5", VALUES, "float16")
    assert half.dtype == np.float16
    assert (np.abs(half - VALUES) <= np.abs(VALUES) * 2.0**-11).all()
    with pytest.raises(InputError, match=r"a feature of 70000 .* Fix: set features.precision: float32"):
        stored(tmp_path / "a.h5", np.array([[1.0, -70000.0]], np.float32), "float16")
