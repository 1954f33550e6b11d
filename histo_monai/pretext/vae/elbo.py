"""The two terms of the evidence lower bound, per image (Kingma and Welling 2014; paper, appendix C).

They are sums, not means: over channels and pixels, and over latents. Only so is their sum the negative bound (up to
a constant), and a KL weight of 1 the weight of the theory. At least float32, also under bfloat16 autocast.
"""

from __future__ import annotations

import torch


def gaussian_reconstruction(decoded: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """-log N(images; decoded, I) without its constant (d / 2) log 2π: half the squared error of each image.

    Args:
        decoded: Shape (N, ...), what the decoder says, in the same units as `images`.
        images: Shape (N, ...).

    Returns:
        Shape (N,), nats.

    Raises:
        ValueError: the shapes differ.
    """
    if decoded.shape != images.shape:
        raise ValueError(f"decoded {tuple(decoded.shape)} != images {tuple(images.shape)}")
    return 0.5 * (_wide(decoded) - _wide(images)).square().flatten(1).sum(dim=1)


def kl_to_standard_normal(mean: torch.Tensor, log_variance: torch.Tensor) -> torch.Tensor:
    """KL(N(mean, diag(exp(log_variance))) || N(0, I)) of each image, in closed form.

    Nothing is cut: a log-variance above 88 overflows float32, so bound it where it is made.

    Args:
        mean: Shape (N, D).
        log_variance: Shape (N, D), natural logarithm.

    Returns:
        Shape (N,), nats, at least 0.

    Raises:
        ValueError: the shapes differ.
    """
    if mean.shape != log_variance.shape:
        raise ValueError(f"mean {tuple(mean.shape)} != log_variance {tuple(log_variance.shape)}")
    mean, log_variance = _wide(mean), _wide(log_variance)
    # expm1: near the prior exp(x) - 1 - x loses all its digits.
    return 0.5 * (mean.square() + log_variance.expm1() - log_variance).flatten(1).sum(dim=1)


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
