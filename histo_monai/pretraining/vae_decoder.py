"""Decoder from latents to patches: BigGAN's generator without classes (Brock et al. 2019; paper, appendix C)."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

FIRST_PX, SMALLEST_PX = 4, 32
MOST_CHANNELS = 16
"""Channels of the coarsest maps, in units of the width."""


class ResidualUp(nn.Module):
    """Residual block of twice the side: BN, ReLU, nearest up-sampling, 3x3, BN, ReLU, 3x3, beside 1x1 and up-sampling.

    Args:
        channels_in: C of the input.
        channels_out: C of the output, and between the two convolutions.
    """

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(channels_in)
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1)
        self.skip = nn.Conv2d(channels_in, channels_out, 1)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """(N, C, H, W) -> (N, C', 2H, 2W)."""
        hidden = self.conv1(_doubled(F.relu(self.norm1(maps))))
        return self.conv2(F.relu(self.norm2(hidden))) + _doubled(self.skip(maps))


class Decoder(nn.Module):
    """A linear layer to 4 x 4, one residual block for each doubling, then BN, ReLU, 3x3 and tanh.

    Input  (N, D), float32
    Output (N, 3, P, P), float32, -1..1

    Maps of side s have width * min(16, P / s) channels: BigGAN's numbers at 128 px; at 256 px its maps of 16 px have
    half as many. Parts of BigGAN for classes or for the discriminator are left out:
        * class embedding, and latents in the batch-norms: without classes, all D latents enter at the bottom;
        * spectral normalization: a squared error does not need bounded gradients, and the bound would limit contrast;
        * self-attention: the paper names none, and its memory grows with the fourth power of P;
        * orthogonal initialization: its QR differs between machines in the last bits; batch-norms undo its scale.
          Weights have torch's default initialization from `torch.manual_seed`.

    Args:
        num_latents: D.
        patch_px: P, a power of two from 32.
        width: channels of the last maps; BigGAN has 96.

    Raises:
        ValueError: `patch_px` is not a power of two from 32, or `width` is below 1.
    """

    def __init__(self, num_latents: int, patch_px: int, width: int) -> None:
        super().__init__()
        if patch_px < SMALLEST_PX or patch_px & (patch_px - 1):
            raise ValueError(
                f"patch_px: {patch_px} px, but the decoder doubles {FIRST_PX} px. "
                f"Fix: take a power of two from {SMALLEST_PX}."
            )
        if width < 1:
            raise ValueError(f"decoder_width: expected at least 1 channel, got {width}")
        sides = [FIRST_PX << i for i in range((patch_px // FIRST_PX).bit_length())]
        channels = [width * min(MOST_CHANNELS, patch_px // side) for side in sides]
        self.first = nn.Linear(num_latents, channels[0] * FIRST_PX**2)
        self.blocks = nn.Sequential(*(ResidualUp(coarse, fine) for coarse, fine in pairwise(channels)))
        self.norm = nn.BatchNorm2d(channels[-1])
        self.last = nn.Conv2d(channels[-1], 3, 3, padding=1)

    def forward(self, latents: torch.Tensor) -> torch.Tensor:
        """Patches of a batch of latents."""
        maps = self.blocks(self.first(latents).unflatten(1, (-1, FIRST_PX, FIRST_PX)))
        colors = self.last(F.relu(self.norm(maps)))
        # Under autocast the colors are bfloat16, which is coarse near the white of the background.
        return colors.to(self.last.weight.dtype).tanh()


def _doubled(maps: torch.Tensor) -> torch.Tensor:
    return F.interpolate(maps, scale_factor=2, mode="nearest")
