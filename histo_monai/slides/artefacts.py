"""Pen, dark areas and blur on slides stained with hematoxylin and eosin: rules on a low resolution.

The rules are of this package. HistoQC (Janowczyk et al. 2019) and GrandQC (Weng et al. 2024) mark the same artefacts
with trained pixel classifiers and networks.
"""

from __future__ import annotations

from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.tissue import relative_to_glass, shows_image

Artefact = Literal["pen", "dark", "blur"]
FOCUS_MPP = 4.0
"""µm/px of the picture for `blur_mask`."""

_LEAST_ABSORBED, _LEAST_COLOR = 0.6, 0.04
"""Least sum of the optical densities (natural logarithm) of a color, and its least range of transmitted light."""
_LEAST_HE, _LEAST_HE_BESIDE_INK = 0.2, 0.8
"""Least fraction of hematoxylin and eosin of all colored pixels, and of those that absorb more green than red."""
_SPREADS, _NEAREST, _FARTHEST, _FARTHEST_ABOVE = 5.0, -0.09, -0.02, 0.1
"""Hue of ink: so many median absolute deviations above the slide's median, at least and at most these values; at most
the last one above the median, if that is more."""
_DENSE, _DENSE_OF_MEDIAN, _DENSITY_SPAN, _OF_DENSITY = 2.0, 1.5, 2.0, 0.05
"""Sums of densities above the first value and above this multiple of the slide's median add to the hue, up to this
span, by this factor."""
_RED, _RED_OF_DENSITY, _RED_ABSORBED, _RED_DENSEST, _RED_OF_SUM = -0.09, 0.03, 0.8, 4.0, 0.25
"""Of red ink: least redness; weight of the sum of densities in redness; least sum; largest sum that counts; largest
red / sum."""
_RED_QUANTILE, _RED_ABOVE = 0.1, 0.14
"""On bloody slides the least redness is this quantile of (blue - green) / sum plus this value."""
_RED_STROKE_PX = 3
"""Least width of red ink."""
_DENSE_GRAY, _COLORLESS = 1.0, 0.35
"""Least optical density of every color of black, and its largest relative difference between colors."""
_BLURRED, _BLURRED_OF_CONTRAST = 0.22, 0.70
"""Largest sharpness of blur relative to the slide's median: of all detail, and of detail relative to contrast."""
_WINDOW_PX, _CONTRAST_UM = 3, 16.0


def pen_mask(rgb: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Mask of green, blue and red ink, and of thin black ink; empty on slides not mostly hematoxylin and eosin.

    By the law of Beer and Lambert the optical densities of stains add up. Hematoxylin and eosin absorb more green than
    red in any mixture (Ruifrok & Johnston 2001); inks absorb as much red or more. The hue is (red - green) / sum of the
    densities relative to the glass. Ink is above the slide's median hue by five median absolute deviations, and above
    -0.09; every hue above -0.02, and by 0.1 above the median, is ink. Ink on tissue is denser than tissue, so dense
    pixels need less hue. Red ink absorbs blue nearly as much as green, eosin and blood less. Areas narrower than three
    pixels are not red ink. The blue of trichrome and of Alcian blue counts as ink.

    Args:
        rgb: Thumbnail, shape (h, w, 3), uint8; best at 8 to 16 µm per pixel.

    Returns:
        Shape (h, w), bool, one pixel wider than the ink.
    """
    densities, is_he = _densities(rgb)
    if not is_he:
        return np.zeros(rgb.shape[:2], bool)
    total = densities.sum(axis=2)
    hue = (densities[..., 0] - densities[..., 1]) / np.maximum(total, 1e-3)
    is_colored = total > _LEAST_ABSORBED
    is_stain = is_colored & (hue < 0) & shows_image(rgb)
    middle = np.median(hue[is_stain])
    spread = np.median(np.abs(hue[is_stain] - middle))
    farthest = max(_FARTHEST, middle + _FARTHEST_ABOVE)  # Some hematoxylin is blue.
    dense = max(_DENSE, _DENSE_OF_MEDIAN * np.median(total[is_stain]))
    denser = _OF_DENSITY * np.clip(total - dense, 0, _DENSITY_SPAN)
    is_ink = is_colored & (hue + denser > np.clip(middle + _SPREADS * spread, _NEAREST, farthest))
    return _wider(is_ink | _red_ink(densities, is_stain))


def dark_mask(rgb: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Mask of black ink, black borders and dark edges; empty on slides that are not mostly hematoxylin and eosin.

    Black absorbs about equally much of all colors, at least 63 % of each. Dense pigment (carbon in
    anthracosis) is black too.

    Args:
        rgb: As in `pen_mask`.

    Returns:
        Shape (h, w), bool, one pixel wider than the dark area.
    """
    densities, is_he = _densities(rgb)
    if not is_he:
        return np.zeros(rgb.shape[:2], bool)
    least, most = densities.min(axis=2), densities.max(axis=2)
    return _wider((least > _DENSE_GRAY) & (most - least < _COLORLESS * most))


def blur_mask(fine: NDArray[np.uint8], tissue: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mask of tissue out of focus, compared with the slide's other tissue.

    Sharpness is the energy of the Laplacian (Pech-Pacheco et al. 2000) in 3 x 3 pixels of the tissue mask. Blurred
    tissue has little of it, also relative to its contrast (deviations from a Gaussian mean of 16 µm). The second
    condition spares smooth tissue. A slide that is blurred all over is not found.

    Args:
        fine: The slide at `FOCUS_MPP` or its own resolution, shape (H, W, 3), uint8.
        tissue: Tissue mask of the same slide, shape (h, w), bool.

    Returns:
        Shape (h, w), bool.
    """
    if not tissue.any():
        return np.zeros_like(tissue)
    gray = cv2.cvtColor(fine, cv2.COLOR_RGB2GRAY).astype(np.float32)
    px = _CONTRAST_UM / FOCUS_MPP
    details = (cv2.Laplacian(gray, cv2.CV_32F), gray - cv2.GaussianBlur(gray, (0, 0), px))
    weights = tissue.astype(np.float32)
    area = cv2.blur(weights, (_WINDOW_PX, _WINDOW_PX)) + 1e-6
    energies = []
    for detail in details:
        of_px = cv2.resize(detail**2, tissue.shape[::-1], interpolation=cv2.INTER_AREA)
        energies.append(cv2.blur(of_px * weights, (_WINDOW_PX, _WINDOW_PX)) / area)
    sharpness = energies[0]
    of_contrast = sharpness / (energies[1] + 1)  # Of flat areas, noise decides.
    is_blurred = (sharpness < _BLURRED * np.median(sharpness[tissue])) & (
        of_contrast < _BLURRED_OF_CONTRAST * np.median(of_contrast[tissue])
    )
    return np.asarray(is_blurred & tissue)


def _red_ink(densities: NDArray[np.float32], is_stain: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Redness is (blue - green) / sum of the densities, plus a weight times the sum."""
    red, green, blue = np.moveaxis(densities, 2, 0)
    total = red + green + blue
    hue = (blue - green) / np.maximum(total, 1e-3)
    least = max(_RED, np.quantile(hue[is_stain], _RED_QUANTILE) + _RED_ABOVE)
    redness = hue + _RED_OF_DENSITY * np.minimum(total, _RED_DENSEST)
    is_red = (redness > least) & (red < green)
    is_red &= (red < _RED_OF_SUM * total) & (total > _RED_ABSORBED)
    stroke = np.ones((_RED_STROKE_PX, _RED_STROKE_PX), np.uint8)
    return cv2.morphologyEx(is_red.astype(np.uint8), cv2.MORPH_OPEN, stroke) > 0


def _densities(rgb: NDArray[np.uint8]) -> tuple[NDArray[np.float32], bool]:
    """Optical densities relative to the glass, natural logarithm, and whether the slide is mostly H&E."""
    has_image = shows_image(rgb)
    balanced, _ = relative_to_glass(rgb, has_image)
    densities = -np.log(np.maximum(balanced, 1 / 255))
    red, green, blue = np.moveaxis(densities, 2, 0)
    is_colored = (densities.sum(axis=2) > _LEAST_ABSORBED) & has_image
    is_colored &= balanced.max(axis=2) - balanced.min(axis=2) > _LEAST_COLOR
    num_he = (is_colored & (green > np.maximum(red, blue))).sum()
    num_beside_ink = (is_colored & (red <= green)).sum()
    is_he = num_he > max(_LEAST_HE * is_colored.sum(), _LEAST_HE_BESIDE_INK * num_beside_ink)
    return densities, bool(is_he)


def _wider(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return cv2.dilate(mask.astype(np.uint8), np.ones((3, 3), np.uint8)) > 0
