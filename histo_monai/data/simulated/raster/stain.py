"""From stain densities to the pixels of a scanner: Beer-Lambert, white point, gamma, sharpness and noise."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from histo_monai.data.simulated.raster.lattice import F32, periodic_texture, wrap

# Optical density per unit of stain in R, G, B: hematoxylin and eosin of Ruifrok & Johnston (2001), with an eosin
# nearer to the pink of routine slides.
HEMATOXYLIN = np.array([0.65, 0.70, 0.29], np.float32)
EOSIN = np.array([0.10, 0.86, 0.42], np.float32)
# Optical density (natural logarithm) that one unit of each stain adds.
UNIT_DENSITY = np.array([1.62, 1.10], np.float32)
_BAND_PX = 64  # Rows exposed together, within the processor's cache.


@dataclass(frozen=True)
class StainStyle:
    """One laboratory's staining and one scanner's rendering of it.

    Attributes:
        vectors: Optical density per unit of (hematoxylin, eosin), shape (2, 3), natural logarithm.
        strength: Concentration of the two stains, relative to usual ones.
        white: Gray levels of the empty glass, R, G, B.
        gamma: Exponent on the transmitted light.
        blur_um: Width of the optical point spread.
        sharpen: Strength of the scanner's unsharp mask.
        noise: Standard deviation of the sensor noise, gray levels.
        jpeg_quality: 1..100.
    """

    vectors: F32
    strength: tuple[float, float]
    white: tuple[float, float, float]
    gamma: float
    blur_um: float
    sharpen: float
    noise: float
    jpeg_quality: int


def random_style(rng: np.random.Generator) -> StainStyle:
    """Random style of a laboratory and a scanner, within the range of routine slides."""
    hematoxylin = HEMATOXYLIN * np.exp(rng.normal(0, [0.16, 0.10, 0.22])).astype(np.float32)
    eosin = EOSIN * np.exp(rng.normal(0, [0.35, 0.08, 0.18])).astype(np.float32)
    vectors = np.stack([hematoxylin / np.linalg.norm(hematoxylin), eosin / np.linalg.norm(eosin)])
    glass = rng.uniform(234, 250)
    return StainStyle(
        vectors=(vectors * UNIT_DENSITY[:, None]).astype(np.float32),
        strength=tuple(np.exp(np.clip(rng.normal(0, [0.28, 0.30]), -0.6, 0.40)).tolist()),
        white=tuple(float(min(253.0, glass + t)) for t in rng.normal(0, 2.0, 3)),  # type: ignore[arg-type]
        gamma=float(rng.uniform(0.86, 1.16)),
        blur_um=float(rng.uniform(0.18, 0.38)),
        sharpen=float(rng.uniform(0.0, 0.6)),
        noise=float(rng.uniform(0.8, 2.4)),
        jpeg_quality=int(rng.integers(78, 92)),
    )


class Scanner:
    """Densities -> pixels of one slide.

    Args:
        mpp: µm per px.
        seed: Seed of the sensor noise.
    """

    def __init__(self, style: StainStyle, mpp: float, seed: int) -> None:
        self.style = style
        self._sigma_px = style.blur_um / mpp
        self._noise = periodic_texture(512, (0.35, 0.35), seed) * np.float32(style.noise)

    def expose(self, hematoxylin: F32, eosin: F32, top: int, left: int) -> NDArray[np.uint8]:
        """Densities (h, w) to RGB (h, w, 3) uint8; `top`, `left` place the sensor noise on the slide."""
        style = self.style
        if self._sigma_px > 0.25:
            hematoxylin = cv2.GaussianBlur(hematoxylin, (0, 0), self._sigma_px).astype(np.float32, copy=False)
            eosin = cv2.GaussianBlur(eosin, (0, 0), self._sigma_px).astype(np.float32, copy=False)
        noise = wrap(self._noise, top, left, *hematoxylin.shape)
        image = np.empty((*hematoxylin.shape, 3), np.float32)
        bands = [slice(first, first + _BAND_PX) for first in range(0, len(image), _BAND_PX)]
        for rows in bands:
            planes = []
            for channel in range(3):
                weight_h = -style.gamma * style.vectors[0, channel] * style.strength[0]
                weight_e = -style.gamma * style.vectors[1, channel] * style.strength[1]
                light = np.exp(np.float32(weight_h) * hematoxylin[rows] + np.float32(weight_e) * eosin[rows])
                light *= np.float32(style.white[channel])
                planes.append(light)
            image[rows] = cv2.merge(planes)
        if style.sharpen > 0.05:
            soft = cv2.GaussianBlur(image, (0, 0), max(0.7, 0.6 / 0.5 * self._sigma_px))
            cv2.addWeighted(image, 1 + style.sharpen, soft, -style.sharpen, 0, dst=image)
        out = np.empty(image.shape, np.uint8)
        for rows in bands:
            band = image[rows]
            band += cv2.merge([noise[rows]] * 3)
            out[rows] = cv2.convertScaleAbs(np.maximum(band, 0, out=band))  # rounds and saturates
        return out
