"""Colour, brightness, noise and sharpness: batched, one parameter per image, nothing modified in place.

Images are float32, shape (N, 3, H, W), 0..1 and stay in 0..1; parameters have shape (N,) on the images'
device.
"""

import torch
import torch.nn.functional as F

# ITU-R BT.601 luma, as torchvision and Pillow turn colour into grey.
LUMA = (0.299, 0.587, 0.114)

# Keeps black and grey, which have no hue, from dividing by zero.
_TINY = 1e-9


def adjust_hue_saturation(
    images: torch.Tensor, hue_turns: torch.Tensor, saturation: torch.Tensor
) -> torch.Tensor:
    """Shifts hue and saturation in HSV; value stays.

    Hue turns by a fraction of the full circle. The saturation ratio r is that of Tellez et al. 2019, on
    whom the paper builds: S' = S (1 + r) for r < 0, so that -1 is grey, and S' = S (1 + r (1 - S)) for r >
    0, so that +1 still ends within 0..1 and nothing needs clipping.

    Exact, without the usual six branches. Write a colour as min + chroma · (x_r, x_g, x_b), where one x is
    1 and one is 0. Its distance from red along the hue hexagon is t = 1 + x_g + x_b - x_r, in 0..3 (60°
    each), on the side of the sign of g - b. And back: x_r = clamp(2 - t, 0, 1), the larger of x_g and x_b is
    min(t, 1), and their sum t - 1 + x_r.

    Args:
        images: Shape (N, 3, H, W), float32, 0..1.
        hue_turns: Shape (N,), 1 is a full turn.
        saturation: Ratios in -1..1, shape (N,).

    Returns:
        Shape (N, 3, H, W), float32, 0..1.
    """
    red, green, blue = images.unbind(1)
    value = torch.maximum(red, green)
    value = torch.maximum(value, blue, out=value).clamp_min_(_TINY)
    lowest = torch.minimum(red, green)
    lowest = torch.minimum(lowest, blue, out=lowest)
    chroma = (value - lowest).clamp_min_(_TINY)
    distance = (green + blue).sub_(red).sub_(lowest).div_(chroma).add_(1)
    angle = distance.copysign_(green - blue).add_(_per_image(hue_turns * 6))
    angle.sub_(torch.div(angle, 6, out=lowest).round_(), alpha=6)

    saturated = torch.div(chroma, value).mul_(_per_image(-saturation.clamp_min(0)))
    chroma.mul_(saturated.add_(_per_image(1 + saturation)))
    lowest = torch.sub(value, chroma, out=saturated)

    distance = angle.abs()
    red_below_value = (1 - distance).clamp_(-1, 0)
    mean = (distance + red_below_value).mul_(0.5)
    deviation = distance.clamp_max_(1).sub_(mean).copysign_(angle)
    shifted = torch.empty_like(images)
    torch.addcmul(value, chroma, red_below_value, out=shifted[:, 0])
    torch.addcmul(lowest, chroma, torch.add(mean, deviation, out=angle), out=shifted[:, 1])
    torch.addcmul(lowest, chroma, mean.sub_(deviation), out=shifted[:, 2])
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
    # Two passes in place: torch.addcmul does not vectorise a broadcast first argument on a CPU.
    stretched = images * _per_image(factors, 3)
    return stretched.add_(_per_image(grey * (1 - factors), 3)).clamp_(0, 1)


def add_noise(
    images: torch.Tensor, sigmas: torch.Tensor, offsets: torch.Tensor, pool: torch.Tensor
) -> torch.Tensor:
    """Adds Gaussian noise to every pixel and channel, and clips.

    Fresh normals are the dearest part of a whole augmentation, so a batch shares one pool of them: each image
    takes a stretch of its own. Within an image all values are independent; two images whose stretches overlap
    share values at other places.

    Args:
        images: Shape (N, 3, H, W), float32, 0..1.
        sigmas: Standard deviations, fractions of full scale, shape (N,); a negative one turns the noise's sign.
        offsets: Where each image's stretch begins, from 0 to len(pool) - 3 H W, integer, shape (N,).
        pool: Standard normal values, shape (at least 3 H W,), float32.

    Returns:
        Shape (N, 3, H, W), float32, 0..1.
    """
    noise = pool.unfold(0, images[0].numel(), 1).index_select(0, offsets).view_as(images)
    return noise.mul_(_per_image(sigmas, 3)).add_(images).clamp_(0, 1)


def gaussian_weights(kernel_sizes: torch.Tensor, max_kernel: int) -> torch.Tensor:
    """Right halves of normalised Gaussian kernels, from the centre outwards.

    The standard deviation follows from the size k as in OpenCV: 0.3 ((k - 1) / 2 - 1) + 0.8 pixels.

    Args:
        kernel_sizes: Odd, from 1 to `max_kernel`, shape (...).
        max_kernel: Odd.

    Returns:
        Shape (..., max_kernel // 2 + 1), float64; zero beyond each image's own kernel.
    """
    offsets = torch.arange(max_kernel // 2 + 1, device=kernel_sizes.device)
    half = (kernel_sizes[..., None].to(torch.float64) - 1) / 2
    sigma = 0.3 * (half - 1) + 0.8
    weights = torch.exp(-0.5 * (offsets / sigma) ** 2) * (offsets <= half)
    return weights / (2 * weights.sum(-1, keepdim=True) - weights[..., :1])


def gaussian_blur(images: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Blurs each image with its own symmetric separable kernel; the border is mirrored, the edge not repeated.

    Args:
        images: Shape (N, 3, H, W), float32; H and W larger than the kernels' radius.
        weights: Right halves of the kernels, shape (N, radius + 1): see `gaussian_weights`.

    Returns:
        Shape (N, 3, H, W), float32, 0..1.
    """
    radius = weights.shape[1] - 1
    padded = F.pad(images, (radius, radius, radius, radius), mode="reflect")
    blurred = _blur_along(_blur_along(padded, weights, radius, dim=3), weights, radius, dim=2)
    # Rounded weights may sum to a little over one.
    return blurred.clamp_max_(1)


def _blur_along(padded: torch.Tensor, weights: torch.Tensor, radius: int, dim: int) -> torch.Tensor:
    length = padded.shape[dim] - 2 * radius
    blurred = padded.narrow(dim, radius, length) * _per_image(weights[:, 0], 3)
    for offset in range(1, radius + 1):
        both = padded.narrow(dim, radius - offset, length) + padded.narrow(dim, radius + offset, length)
        blurred.addcmul_(both, _per_image(weights[:, offset], 3))
    return blurred


def _per_image(parameters: torch.Tensor, dims: int = 2) -> torch.Tensor:
    return parameters.reshape(-1, *[1] * dims)
