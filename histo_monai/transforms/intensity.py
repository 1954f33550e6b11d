"""Colour, brightness, noise and sharpness: batched, one parameter per image, nothing modified in place.

Images are float32, shape (N, 3, H, W), 0..1 and stay in 0..1; parameters have shape (N,) on the images'
device.
"""

import torch
import torch.nn.functional as F

# ITU-R BT.601 luma, as torchvision and Pillow turn colour into grey.
LUMA = (0.299, 0.587, 0.114)


def adjust_hue_saturation(
    images: torch.Tensor, hue_turns: torch.Tensor, saturation: torch.Tensor
) -> torch.Tensor:
    """Shifts hue and saturation in HSV; value stays.

    Hue turns by a fraction of the full circle. The saturation ratio r is that of Tellez et al. 2019, on
    whom the paper builds: S' = S (1 + r) for r < 0, so that -1 is grey, and S' = S (1 + r (1 - S)) for r >
    0, so that +1 still ends within 0..1 and nothing needs clipping.

    Exact, without the usual six branches. Write a colour as min + chroma · (x_r, x_g, x_b), where one x is
    1 and one is 0. Its distance from red along the hue hexagon is t = 1 + x_g + x_b - x_r, in 0..3 (60°
    each), on the side of the sign of g - b; and back, x_r = clamp(2 - t), the larger of x_g and x_b is
    min(t, 1), the smaller max(t - 2, 0).

    Args:
        images: Shape (N, 3, H, W), float32, 0..1.
        hue_turns: Shape (N,), 1 is a full turn.
        saturation: Ratios in -1..1, shape (N,).

    Returns:
        Shape (N, 3, H, W), float32, 0..1.
    """
    red, green, blue = images.unbind(1)
    value = torch.maximum(torch.maximum(red, green), blue)
    lowest = torch.minimum(torch.minimum(red, green), blue)
    chroma = value - lowest
    distance = (green + blue).sub_(red).sub_(lowest).div_(chroma.clamp_min(1e-9)).add_(1)
    angle = distance.copysign_(green - blue).add_(_per_image(hue_turns * 6))
    angle.sub_((angle / 6).round_(), alpha=6)

    relative = (chroma / value.clamp_min(1e-9)).mul_(_per_image(-saturation.clamp_min(0)))
    chroma.mul_(relative.add_(_per_image(1 + saturation)))
    lowest = value.sub_(chroma)

    distance = angle.abs()
    larger = distance.clamp_max(1)
    smaller = (distance - 2).clamp_min_(0)
    half_sum = (larger + smaller).mul_(0.5)
    half_difference = larger.sub_(smaller).mul_(0.5).copysign_(angle)
    shifted = torch.empty_like(images)
    torch.addcmul(lowest, chroma, distance.neg_().add_(2).clamp_(0, 1), out=shifted[:, 0])
    torch.addcmul(lowest, chroma, half_sum + half_difference, out=shifted[:, 1])
    torch.addcmul(lowest, chroma, half_sum.sub_(half_difference), out=shifted[:, 2])
    return shifted.clamp_(0, 1)


def adjust_brightness(images: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Multiplies each image by its factor and clips (torchvision's and Pillow's brightness).

    Args:
        images: Shape (N, 3, H, W), float32, 0..1.
        factors: Shape (N,), not negative; 1 changes nothing.

    Returns:
        Shape (N, 3, H, W), float32, 0..1.
    """
    return (images * _per_image(factors, 3)).clamp_(0, 1)


def adjust_contrast(images: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Stretches each image's distance from its mean grey and clips (torchvision's and Pillow's contrast).

    Args:
        images: Shape (N, 3, H, W), float32, 0..1.
        factors: Shape (N,), not negative; 1 changes nothing, 0 leaves the mean grey.

    Returns:
        Shape (N, 3, H, W), float32, 0..1.
    """
    red, green, blue = images.mean(dim=(2, 3)).unbind(1)
    grey = LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue
    rest = _per_image(grey * (1 - factors), 3)
    return torch.addcmul(rest, images, _per_image(factors, 3)).clamp_(0, 1)


def add_noise(images: torch.Tensor, sigmas: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Adds independent Gaussian noise to every pixel and channel, and clips.

    Args:
        images: Shape (N, 3, H, W), float32, 0..1.
        sigmas: Standard deviations, fractions of full scale, shape (N,).
        generator: On the images' device. CPU and GPU generators give different noise for one seed.

    Returns:
        Shape (N, 3, H, W), float32, 0..1.
    """
    noise = torch.empty_like(images).normal_(generator=generator)
    return noise.mul_(_per_image(sigmas, 3)).add_(images).clamp_(0, 1)


def gaussian_weights(kernel_sizes: torch.Tensor, radius: int) -> torch.Tensor:
    """Right half of normalised Gaussian kernels, from the centre outwards.

    The standard deviation follows from the size k as in OpenCV: 0.3 ((k - 1) / 2 - 1) + 0.8 pixels.

    Args:
        kernel_sizes: Odd, shape (N,).
        radius: Largest (k - 1) / 2 among them.

    Returns:
        Shape (N, radius + 1), float32; zero beyond each image's own kernel.
    """
    offsets = torch.arange(radius + 1, device=kernel_sizes.device)
    half = (kernel_sizes[:, None] - 1) / 2
    sigma = 0.3 * (half - 1) + 0.8
    weights = torch.exp(-0.5 * (offsets / sigma) ** 2) * (offsets <= half)
    return weights / (2 * weights.sum(1, keepdim=True) - weights[:, :1])


def gaussian_blur(images: torch.Tensor, kernel_sizes: torch.Tensor, max_kernel: int = 7) -> torch.Tensor:
    """Blurs each image with its own odd kernel; the border is mirrored without repeating the edge.

    Args:
        images: Shape (N, 3, H, W), float32; H and W larger than half the kernel.
        kernel_sizes: Odd, from 1 to `max_kernel`, shape (N,).
        max_kernel: Odd.

    Returns:
        Shape (N, 3, H, W), float32.
    """
    # On a CPU looking at the sizes costs nothing and saves taps; a GPU would have to be waited for.
    widest = int(kernel_sizes.max()) if images.device.type == "cpu" else max_kernel
    radius = widest // 2
    weights = gaussian_weights(kernel_sizes.to(torch.float32), radius)
    blurred = _blur_along(images, weights, radius, dim=3)
    return _blur_along(blurred, weights, radius, dim=2)


def _blur_along(images: torch.Tensor, weights: torch.Tensor, radius: int, dim: int) -> torch.Tensor:
    padding = (radius, radius, 0, 0) if dim == 3 else (0, 0, radius, radius)
    padded = F.pad(images, padding, mode="reflect")
    length = images.shape[dim]
    blurred = images * _per_image(weights[:, 0], 3)
    for offset in range(1, radius + 1):
        both = padded.narrow(dim, radius - offset, length) + padded.narrow(dim, radius + offset, length)
        blurred.addcmul_(both, _per_image(weights[:, offset], 3))
    return blurred


def _per_image(parameters: torch.Tensor, dims: int = 2) -> torch.Tensor:
    return parameters.reshape(-1, *[1] * dims)
