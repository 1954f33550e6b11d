"""100 slides drawn at random: size, µm/px, power and patches of each are what was drawn, or the file is refused."""

from __future__ import annotations

import numpy as np
import pytest

from histo_monai.slides import Box, open_slide, reader
from tests.slides.drawn_slides import DrawnSlide, draw_slide

pytestmark = pytest.mark.slow

NUM_SLIDES, NUM_CHUNKS, NUM_PATCHES, SIDE_PX = 100, 4, 100, 16
_MOST_GRAY = 3.0
"""Mean difference of a patch: JPEG, rounding, and a level's means taken once more."""


@pytest.mark.parametrize("chunk", range(NUM_CHUNKS))
def test_a_slide_drawn_at_random_is_read_as_it_was_drawn(chunk, tmp_path, monkeypatch):
    for seed in range(chunk, NUM_SLIDES, NUM_CHUNKS):
        drawn = draw_slide(tmp_path, seed)
        with monkeypatch.context() as patched:
            if seed // NUM_CHUNKS % 3 == 2:
                patched.setattr(reader, "why_not_cucim", lambda path, pages: "the test asks for OpenSlide")
            with open_slide(drawn.path) as slide:
                check(drawn, slide, np.random.default_rng(seed))
        drawn.path.unlink()


def check(drawn: DrawnSlide, slide, rng) -> None:
    what = f"{drawn.path.name} ({drawn.what}; {slide.backend})"
    assert slide.size_yx == drawn.size_yx, what
    assert slide.mpp == pytest.approx(drawn.mpp, rel=1e-3), what
    assert slide.objective_power == drawn.power, what
    # What one pixel of rounding, or the padding to whole tiles, does not tell apart: see `level_downsample`.
    for downsample, size_yx in zip(slide.level_downsamples, slide.level_sizes_yx, strict=True):
        tolerance = 0.001 + 2 / min(size_yx)
        assert min(abs(downsample / one - 1) for one in drawn.downsamples) < tolerance, (
            what,
            slide.level_downsamples,
        )
    assert drawn.num_sure <= len(slide.level_downsamples) <= len(drawn.downsamples), (
        what,
        slide.level_downsamples,
    )
    for factor in (1.0, *sorted(rng.uniform(1.1, 12, 2))):
        of_level = slide.level_downsamples[slide.level_for(slide.mpp * factor)]
        downsample = min(drawn.downsamples, key=lambda one: abs(one / of_level - 1))
        slack = 0.0 if downsample == round(downsample) else 0.7 * downsample
        centers = rng.uniform(0, 1, (NUM_PATCHES, 2)) * np.array(drawn.size_yx)
        patches = slide.read_many([Box(tuple(center), SIDE_PX, slide.mpp * factor) for center in centers])
        for center, patch in zip(centers, patches, strict=True):
            error, most = _error(drawn, tuple(center), patch, factor, slack)
            assert error < _MOST_GRAY + most, (what, factor, tuple(center), error)


def _error(drawn: DrawnSlide, center, patch, factor, slack) -> tuple[float, float]:
    """Mean difference of a patch inside the slide, and of the truth from itself, moved by what a level leaves open."""
    places = [center[axis] + (np.arange(SIDE_PX) - SIDE_PX / 2 + 0.5) * factor for axis in (0, 1)]
    inside = [
        place[(place > 2 * factor) & (place < size - 2 * factor)]
        for place, size in zip(places, drawn.size_yx, strict=True)
    ]
    if not all(map(len, inside)):
        return 0.0, 0.0
    truth = drawn.waves.means(*inside, (factor, factor))
    part = patch.transpose(1, 2, 0)[np.ix_(*(np.isin(a, b) for a, b in zip(places, inside, strict=True)))]
    moved = drawn.waves.means(*(place + slack for place in inside), (factor, factor)) if slack else truth
    return float(np.abs(part - truth).mean()), float(np.abs(moved - truth).mean())
