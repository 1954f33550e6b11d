"""Execution of an augmentation on any device, in whole batches with torch."""

from functools import partial

import torch

from histo_monai.transforms import geometry
from histo_monai.transforms.parameters import ViewParameters
from histo_monai.transforms.sequence import apply_in_sequence
from histo_monai.utils.transfer import sent


def augment(
    patches: torch.Tensor, sampled: ViewParameters, noise_pool: torch.Tensor, size_px: int
) -> torch.Tensor:
    """Views of all patches: warped, then changed by their own photometric operations.

    Args:
        patches: Shape (N S, 3, H, H), uint8, not modified.
        sampled: Parameters of the N samples of S patches.
        noise_pool: Standard normal values on the CPU (`operations.noise`).

    Returns:
        Shape (N S, 3, size_px, size_px), float32, 0..1, on the device of `patches`.
    """
    device = patches.device
    matrices = sampled.matrices.flatten(0, 1)
    levels = geometry.pooling_levels(matrices, patches.shape[-1], size_px).tolist()
    widths = [9, *(part.shape[-1] for part in sampled.parameters)]
    # One transfer for all parameters; nothing below waits for the device.
    packed = torch.cat([matrices.flatten(1), *(part.flatten(0, 1) for part in sampled.parameters)], dim=1)
    on_device = sent(packed.to(torch.float32), device)
    normals = sent(noise_pool, device)
    operations = [partial(operation.with_torch, normals=normals) for operation in sampled.operations]
    # Inference mode makes the many small operations cheaper; `views` itself is an ordinary tensor.
    views = torch.empty((len(patches), 3, size_px, size_px), dtype=torch.float32, device=device)
    with torch.inference_mode():
        own_matrices, *parameters = on_device.split(widths, dim=1)
        warped = geometry.warp(patches, own_matrices.unflatten(1, (3, 3)), size_px, levels)
        views.copy_(apply_in_sequence(warped, sampled.patch_schedule(), operations, parameters))
    return views
