from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from histo_monai.data.leakage.fingerprints import MAX_DISTANCE, class_words, distances, fingerprint
from histo_monai.data.leakage.ids import similar_ids
from histo_monai.data.leakage.near_copies import NEAR_COLUMNS, near_copies, near_copies_in_words
from histo_monai.utils.files.trees import list_images, read_image

APART = (("train", "test"),)


def _image(seed: int, side: int = 96) -> np.ndarray:
    """Spots of several sizes."""
    grain = np.random.default_rng(seed).integers(0, 256, (12, 12, 3), dtype=np.uint8)
    return cv2.resize(grain, (side, side), interpolation=cv2.INTER_CUBIC)


def _seen(images: dict[str, np.ndarray]) -> pd.DataFrame:
    """Names begin with their split."""
    return pd.DataFrame(
        {
            "name": list(images),
            "split": [name.split("-")[0] for name in images],
            "digest": list(images),
            "fingerprint": [fingerprint(image).hex() for image in images.values()],
        }
    )


def _distance(one: np.ndarray, other: np.ndarray) -> int:
    """Without any of the tricks: the bits of each turned image, counted one by one."""
    turned = [np.rot90(image, k) for image in (other, other[:, ::-1]) for k in range(4)]
    bits = np.unpackbits(np.frombuffer(fingerprint(one), np.uint8))
    result = [np.unpackbits(np.frombuffer(fingerprint(image), np.uint8)) for image in turned]
    return min(int((bits != other_bits).sum()) for other_bits in result)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 2**32), st.sampled_from([31, 32, 96, 117]))
def test_all_eight_orientations_follow_from_the_bits_of_one(first: int, second: int, side: int) -> None:
    one, other = _image(first, side), _image(second, side)
    measured = distances(class_words([fingerprint(one)])[0], class_words([fingerprint(other)]))
    # A coefficient next to nothing may take either sign where a turned image is resized in another order of sums.
    assert abs(int(measured[0, 0]) - _distance(one, other)) <= 2


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("is_mirrored", [False, True])
def test_a_copy_that_was_turned_mirrored_resized_and_encoded_again_is_found(
    turns: int, is_mirrored: bool
) -> None:
    copy = np.rot90(_image(1)[:, ::-1] if is_mirrored else _image(1), turns)
    copy = cv2.resize(copy, (61, 61), interpolation=cv2.INTER_AREA)
    copy = cv2.imdecode(cv2.imencode(".jpg", copy, [cv2.IMWRITE_JPEG_QUALITY, 60])[1], cv2.IMREAD_COLOR)
    images = {"train-1": _image(1), "train-2": _image(2), "test-1": copy, "test-3": _image(3)}
    table = near_copies(_seen(images), APART, "image", processes=1)
    assert tuple(table.columns) == NEAR_COLUMNS
    assert table[["kind", "first", "second"]].to_numpy().tolist() == [["image", "train-1", "test-1"]]
    assert table["distance"][0] <= 12
    (warning,) = near_copies_in_words(table, "image")
    assert warning.startswith("1 pair of images looks like copies of one another")
    assert "train-1 in train and test-1 in test" in warning


def test_blocks_and_processes_change_nothing_and_pairs_of_one_split_or_one_digest_are_left_out() -> None:
    rng = np.random.default_rng(0)
    rows = [(f"train-{i}", "train", str(i), rng.bytes(18).hex()) for i in range(4200)]
    rows += [(f"test-{i}", "test", f"t{i}", rows[i][3]) for i in (0, 1030, 4150)]
    rows += [("test-same", "test", "7", rows[7][3]), ("test-none", "test", "n", "")]
    seen = pd.DataFrame(rows, columns=["name", "split", "digest", "fingerprint"])
    one, two = (near_copies(seen, APART, "image", processes) for processes in (1, 2))
    pd.testing.assert_frame_equal(one, two)
    assert one[["first", "second", "distance"]].to_numpy().tolist() == [
        ["train-0", "test-0", 0],
        ["train-1030", "test-1030", 0],
        ["train-4150", "test-4150", 0],
    ]
    assert near_copies(seen[seen["split"] == "test"], APART, "image", 1).empty


def test_glass_and_glass_with_a_corner_of_tissue_have_no_fingerprint() -> None:
    glass = np.full((64, 64, 3), 240, np.uint8)
    assert fingerprint(glass) == b""
    glass[:24, :24] = 90
    assert fingerprint(glass) == b""
    glass[:40, :40] = 90
    assert len(fingerprint(glass)) == 18


def test_no_two_of_the_real_patches_of_two_patients_are_taken_for_copies(real_slides: Path) -> None:
    archive = real_slides / "idc-patches.zip"
    names = list_images(archive)[::2]
    seen = pd.DataFrame(
        {
            "name": names,
            "split": np.where(pd.Series(names).str.contains("/14306/"), "test", "train"),
            "digest": names,
            "fingerprint": [fingerprint(read_image(archive / name)).hex() for name in names],
        }
    )
    assert (seen["fingerprint"] != "").mean() > 0.9
    assert seen["split"].value_counts().min() > 200
    assert near_copies(seen, APART, "image", processes=1).empty
    assert near_copies_in_words(pd.DataFrame(columns=list(NEAR_COLUMNS)), "image") == []
    assert 0 < MAX_DISTANCE < 143 / 4


def test_ids_that_differ_by_case_blanks_or_the_way_a_letter_is_written_are_a_warning() -> None:
    ids = ["P1", "p1", "P 1", "", "Ö2", "O\u03082", "ö3", "Q1", "Q1"]
    (warning,) = similar_ids(ids, "patients", "use one spelling")
    assert warning.startswith("patients that look alike: 'P 1' and 'P1' and 'p1'; ")
    assert warning.count(" and ") == 3
    assert warning.endswith("use one spelling")
    assert similar_ids(["a", "b", "a", "", ""], "patients", "x") == []
