"""What an autoencoder makes of patches, and of nothing; for TensorBoard and `dvc plots`."""

from __future__ import annotations

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def reconstructions_and_samples(
    patches: np.ndarray, decoded: np.ndarray, samples: np.ndarray, mpp: float
) -> np.ndarray:
    """A row of patches, below each its reconstruction and the mean squared error of the two; a row of samples.

    Args:
        patches: Shape (n, 3, P, P), float32, 0..1.
        decoded: of the same patches.
        samples: Shape (m, 3, P, P), decoded from latents of the prior.
        mpp: µm/px of the patches.

    Returns:
        Shape (H, W, 3), uint8.
    """
    rows = (
        (f"patch, {mpp:g} µm/px", patches),
        ("reconstruction", decoded),
        ("sample of the prior", samples),
    )
    columns = max(len(patches), len(samples))
    figure = Figure(figsize=(columns * 1.25 + 0.3, 4.2), dpi=110, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for row, (name, images) in zip(axes, rows, strict=True):
        row[0].set_ylabel(name, fontsize=7)
        for axis in row[len(images) :]:
            axis.axis("off")
        for axis, image in zip(row, images, strict=False):
            axis.imshow(image.transpose(1, 2, 0).clip(0, 1), interpolation="nearest")
            axis.set(xticks=[], yticks=[])
    for axis, error in zip(axes[1], np.square(patches - decoded).mean(axis=(1, 2, 3)), strict=False):
        axis.set_title(f"error {error:.4f}", fontsize=7)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
