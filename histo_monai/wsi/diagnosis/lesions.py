"""Camelyon16 evaluation mask, and matches of detections with lesions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from histo_monai.evaluation.metrics import SlideDetections
from histo_monai.slides.annotations import Outline, Point, rasterize
from histo_monai.utils.errors import InputError
from histo_monai.utils.process.garbage import lasting
from histo_monai.utils.process.quiet import quiet_library

MERGE_UM = 75.0
"""Maximum gap between outlines of one lesion, µm: about five tumor cells."""
ISOLATED_UM = 200.0
"""Minimum long axis of a lesion, µm; shorter ones are isolated tumor cells."""
MASK_MPP = 0.243 * 2**5
"""Resolution of the challenge's masks, µm/px."""


@dataclass(frozen=True)
class LesionMask:
    """Mask of a slide's lesions.

    Attributes:
        labels: (h, w), int: 0 outside lesions, 1..L inside.
        isolated: labels of isolated tumor cells, neither lesions nor false positives.
        downsample: level-0 pixels per mask pixel.
    """

    labels: NDArray[np.int64]
    isolated: tuple[int, ...]
    downsample: float

    @property
    def num_lesions(self) -> int:
        """Number of lesions without isolated tumor cells."""
        return int(self.labels.max()) - len(self.isolated)


def evaluation_mask(
    outlines: Iterable[Outline],
    holes: Iterable[Outline] = (),
    *,
    slide_mpp: float,
    size_yx: tuple[int, int],
    mask_mpp: float = MASK_MPP,
) -> LesionMask:
    """Camelyon16 evaluation mask: outlines grown by half of `MERGE_UM`, holes closed, touching areas merged.

    A lesion is isolated tumor cells if the long axis of the ellipse with its second moments is below `ISOLATED_UM` +
    `MERGE_UM` (after growing). MONAI computes it as in Camelyon16's evaluation, but at a stated µm/px; the challenge
    assumes 7.776 µm/px for level 5 of any slide. An outline without a mask pixel's center is lost.

    Args:
        outlines: tumor outlines of a slide; empty for a normal slide.
        holes: normal tissue inside them.
        slide_mpp: µm per level-0 pixel.
        size_yx: height and width of the slide, level-0 pixels.
        mask_mpp: µm per mask pixel.

    Raises:
        InputError: a length is not positive.
    """
    if not (slide_mpp > 0 and mask_mpp > 0 and min(size_yx) > 0):
        raise InputError(
            f"slide_mpp {slide_mpp}, mask_mpp {mask_mpp}, size {size_yx}: not all positive. Fix: give lengths > 0"
        )
    downsample = mask_mpp / slide_mpp
    height, width = (math.ceil(side / downsample - 1e-6) for side in size_yx)
    tumor = rasterize(outlines, holes, downsample=downsample, shape=(height, width))
    labels = np.zeros((height, width), np.int64)
    if not tumor.any():
        return LesionMask(labels, (), downsample)
    with quiet_library(), lasting():  # MONAI loads nvImageCodec, which prints warnings where there is no GPU.
        from monai.apps.pathology.utils import compute_isolated_tumor_cells, compute_multi_instance_mask
    reach = MERGE_UM / 2 / mask_mpp
    window = _around(tumor, math.ceil(reach) + 1)
    labels[window] = compute_multi_instance_mask(tumor[window], reach)
    with warnings.catch_warnings():  # MONAI 1.6.1 asks scikit-image for the axis by its old name.
        warnings.simplefilter("ignore", FutureWarning)
        isolated = compute_isolated_tumor_cells(labels[window], (ISOLATED_UM + MERGE_UM) / mask_mpp)
    return LesionMask(labels, tuple(isolated), downsample)


def match(points: Sequence[Point], mask: LesionMask, *, measurement: str = "probability") -> SlideDetections:
    """Matches of detections with lesions: maximum score per lesion, and all scores outside.

    Detections in isolated tumor cells are ignored, as are all but the highest in a lesion. Points beyond the lower or
    right edge count at the edge.

    Args:
        points: detections in level-0 pixels.
        mask: mask of the slide.
        measurement: name of the points' score, above 0.

    Raises:
        InputError: a coordinate is negative, or a score is missing or not above 0.
    """
    for point in points:
        if not point.measurements.get(measurement, 0) > 0 or min(point.yx) < 0:
            raise InputError(
                f"detection at (y, x) {point.yx} with {dict(point.measurements)}. "
                f"Fix: give a position on the slide and {measurement!r} above 0"
            )
    scores = np.array(
        [point.measurements[measurement] for point in points], np.float32
    )  # MONAI's type for hits.
    places = np.array([point.yx for point in points], np.float64).reshape(-1, 2)
    pixels = np.minimum(places / mask.downsample, np.array(mask.labels.shape) - 1).astype(np.int64)
    with quiet_library(), lasting():  # as above
        from monai.metrics.froc import compute_fp_tp_probs_nd
    false, hits, _ = compute_fp_tp_probs_nd(scores, pixels, mask.labels, list(mask.isolated))
    return SlideDetections(false, np.delete(hits, np.array(mask.isolated, np.int64) - 1))


def _around(mask: NDArray[np.bool_], margin: int) -> tuple[slice, slice]:
    """Slices of the bounding box of a mask, with a margin."""
    spans = []
    for axis in (0, 1):
        places = np.flatnonzero(mask.any(axis=1 - axis))
        spans.append(slice(max(0, int(places[0]) - margin), int(places[-1]) + margin + 1))
    return spans[0], spans[1]
