from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from histo_monai.pretraining.vae_decoder import Decoder, ResidualUp


def _sizes(decoder: Decoder) -> list[tuple[int, ...]]:
    """(C, H) of what goes into each block, and of what comes out of the last."""
    result: list[tuple[int, ...]] = []

    def note(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        result.append(tuple(inputs[0].shape[1:3]))

    for module in (*decoder.blocks, decoder.norm):
        module.register_forward_pre_hook(note)
    decoder(torch.randn(2, 512))
    return result


@pytest.mark.parametrize("patch_px", [32, 64, 128, 256])
def test_latents_become_patches_of_that_side_within_the_range_of_tanh(patch_px: int) -> None:
    torch.manual_seed(0)
    patches = Decoder(512, patch_px, width=2)(10 * torch.randn(3, 512))
    assert patches.shape == (3, 3, patch_px, patch_px)
    assert patches.dtype == torch.float32
    assert patches.abs().max() <= 1


def test_maps_have_the_channels_of_biggan_at_128_px() -> None:
    sizes = _sizes(Decoder(512, 128, width=6))
    assert sizes == [(96, 4), (96, 8), (48, 16), (24, 32), (12, 64), (6, 128)]  # 16, 16, 8, 4, 2, 1 widths


@pytest.mark.parametrize(
    ("patch_px", "widths"),
    [(32, [8, 4, 2, 1]), (64, [16, 8, 4, 2, 1]), (256, [16, 16, 16, 8, 4, 2, 1])],
)
def test_channels_halve_with_each_doubling_and_are_sixteen_widths_at_most(
    patch_px: int, widths: list[int]
) -> None:
    sizes = _sizes(Decoder(512, patch_px, width=1))
    assert sizes == [(width, 4 << i) for i, width in enumerate(widths)]


@pytest.mark.parametrize("patch_px", [48, 16, 33, 0, -64])
def test_a_side_that_doubling_does_not_reach_is_refused(patch_px: int) -> None:
    with pytest.raises(ValueError, match=rf"patch_px.*{patch_px}.*power of two from 32"):
        Decoder(512, patch_px, width=4)


def test_no_channel_is_refused() -> None:
    with pytest.raises(ValueError, match=r"decoder_width.*0"):
        Decoder(512, 32, width=0)


def _doubled(maps: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.repeat(np.repeat(maps.detach().numpy(), 2, axis=2), 2, axis=3))


def _normalized(maps: torch.Tensor, norm: nn.BatchNorm2d) -> torch.Tensor:
    mean, variance = maps.mean((0, 2, 3)), maps.var((0, 2, 3), unbiased=False)
    weight, bias = norm.weight / (variance + norm.eps).sqrt(), norm.bias
    return (maps - mean.view(1, -1, 1, 1)) * weight.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1)


def test_a_block_is_what_the_paper_of_biggan_draws() -> None:
    torch.manual_seed(0)
    block = ResidualUp(6, 4).double()
    for norm in (block.norm1, block.norm2):
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    maps = torch.randn(3, 6, 5, 5, dtype=torch.float64)
    hidden = F.conv2d(_doubled(_normalized(maps, block.norm1).relu()), *_parameters(block.conv1), padding=1)
    hidden = F.conv2d(_normalized(hidden, block.norm2).relu(), *_parameters(block.conv2), padding=1)
    skip = F.conv2d(_doubled(maps), *_parameters(block.skip))
    torch.testing.assert_close(block(maps), hidden + skip)


def _parameters(conv: nn.Conv2d) -> tuple[torch.Tensor, torch.Tensor | None]:
    return conv.weight, conv.bias


def test_every_parameter_learns_from_the_patch() -> None:
    torch.manual_seed(0)
    decoder = Decoder(8, 32, width=2).double()
    decoder(torch.randn(4, 8, dtype=torch.float64)).square().sum().backward()
    for name, parameter in decoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_patches_are_float32_under_autocast() -> None:
    torch.manual_seed(0)
    decoder = Decoder(8, 32, width=2).eval()
    latents = torch.randn(2, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = decoder(latents)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, decoder(latents), rtol=0, atol=0.05)
