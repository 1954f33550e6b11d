from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from histo_monai.data.index.images import survey_images
from histo_monai.data.tables.patches import labeled_table

WriteImage = Callable[..., Path]


def _table(paths: list[Path], side_px: int = 0) -> pd.DataFrame:
    return labeled_table(
        [{"patch_id": str(i), "path": path, "side_px": side_px} for i, path in enumerate(paths)]
    )


def test_images_have_one_digest_if_and_only_if_they_have_the_same_pixels(
    tmp_path: Path, write_image: WriteImage
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (30, 30, 3), dtype=np.uint8)
    almost = pixels.copy()
    almost[29, 29, 2] ^= 1
    paths = [
        write_image(tmp_path / name, pixels=image)
        for name, image in (
            ("a.png", pixels),
            ("b.tif", pixels),
            ("c.png", almost),
            ("d.png", pixels[:28, :28]),
        )
    ]
    facts = survey_images(_table(paths), processes=1)
    a, b, c, d = facts["digest"]
    assert a == b != ""
    assert len({a, c, d}) == 3
    assert facts["side_px"].tolist() == [30, 30, 30, 28]


def test_an_image_of_one_color_is_like_no_other(tmp_path: Path, write_image: WriteImage) -> None:
    white = np.full((8, 8, 3), 255, np.uint8)
    paths = [write_image(tmp_path / f"{i}.png", pixels=white) for i in range(2)]
    assert survey_images(_table(paths), processes=1)["digest"].tolist() == ["", ""]


def test_processes_change_nothing_and_squares_of_slides_are_left_alone(
    tmp_path: Path, write_image: WriteImage
) -> None:
    table = _table([write_image(tmp_path / f"{i}.png", i) for i in range(130)])
    table.loc[[3, 70], ["y", "x"]] = 5.0
    table.loc[[3, 70], ["path", "side_px"]] = ["no/slide.tif", 99]
    one, two = (survey_images(table, processes) for processes in (1, 2))
    pd.testing.assert_frame_equal(one, two)
    assert one.loc[[3, 70]].to_numpy().tolist() == [[99, "", ""]] * 2
    assert one["digest"].nunique() == 129


def test_all_unusable_images_are_counted_and_the_first_are_named(
    tmp_path: Path, write_image: WriteImage
) -> None:
    good = write_image(tmp_path / "good.png")
    cut = write_image(tmp_path / "cut.tif", 1)
    cut.write_bytes(cut.read_bytes()[:100])
    long = write_image(tmp_path / "long.png", pixels=np.zeros((20, 23, 3), np.uint8))
    with pytest.raises(ValueError, match="3 of 4 images cannot be used") as caught:
        survey_images(_table([good, cut, tmp_path / "none.png", long]), processes=1)
    message = str(caught.value)
    for part in ("cut.tif: damaged", "none.png: no such file", "long.png: 20 × 23 px. Fix: use a square"):
        assert part in message
    assert "good.png" not in message
    assert "\n" not in message


def test_an_image_of_another_size_than_published_is_named(tmp_path: Path, write_image: WriteImage) -> None:
    with pytest.raises(ValueError, match=r"a\.png: 24 × 24 px.*224 × 224"):
        survey_images(_table([write_image(tmp_path / "a.png")], side_px=224), processes=1)


@pytest.mark.parametrize("side", [1, 7])
def test_an_image_of_a_few_pixels_is_named(tmp_path: Path, write_image: WriteImage, side: int) -> None:
    path = write_image(tmp_path / "dot.png", pixels=np.zeros((side, side, 3), np.uint8))
    with pytest.raises(ValueError, match=rf"dot\.png: {side} × {side} px.*8 px a side or more"):
        survey_images(_table([path]), processes=1)
