"""Variational autoencoder with 512 latents (Kingma and Welling 2014; paper, appendix C)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import nn

from histo_monai.models.encoder import Encoder
from histo_monai.models.start import EncoderStart
from histo_monai.pretraining.protocol import Task
from histo_monai.pretraining.settings import PretextSettings, VAESettings
from histo_monai.pretraining.vae_decoder import Decoder
from histo_monai.training.schedule import parameter_groups
from histo_monai.transforms.fixed_views import unaugmented_view
from histo_monai.utils.randomness import Step, generator
from histo_monai.utils.transfer import sent

NUM_LATENTS = 512
LOG_VARIANCE_BOUND = 20.0
NUM_FIXED_NOISE_VECTORS, NUM_SHOWN = 64, 8


class Decoded(NamedTuple):
    """Outputs of the network for a batch.

    Attributes:
        images: Shape (n, 3, P, P), -1..1.
        mean: of the posterior, Shape (n, 512).
        log_variance: of the posterior, Shape (n, 512), within ±20.
    """

    images: torch.Tensor
    mean: torch.Tensor
    log_variance: torch.Tensor


class VAENetwork(nn.Module):
    """Backbone, linear layers for mean and log-variance, and decoder.

    The log-variance is 20 tanh(a / 20) of the layer's output a. It is close to a near 0, and its exponential never
    overflows. The bound is smooth, so gradients are exact everywhere; clipping has none beyond its limits.
    Mean and log-variance are computed in float32 also under autocast.

    Args:
        patch_px: P, a power of two from 32.
    """

    def __init__(self, encoder: Encoder, patch_px: int, decoder_width: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.mean = nn.Linear(encoder.num_features, NUM_LATENTS)
        self.log_variance = nn.Linear(encoder.num_features, NUM_LATENTS)
        self.decoder = Decoder(NUM_LATENTS, patch_px, decoder_width)

    def forward(self, patches: torch.Tensor, noise: torch.Tensor) -> Decoded:
        """Encode, add noise, decode.

        Args:
            patches: Shape (n, 3, P, P), float32, 0..1.
            noise: Shape (n, 512), of a standard normal.
        """
        features = self.encoder(patches)
        with torch.autocast(features.device.type, enabled=False):
            features = features.to(self.mean.weight.dtype)
            mean = self.mean(features)
            log_variance = LOG_VARIANCE_BOUND * torch.tanh(self.log_variance(features) / LOG_VARIANCE_BOUND)
            latents = mean + (0.5 * log_variance).exp() * noise.to(mean.dtype)
        return Decoded(self.decoder(latents), mean, log_variance)


class VAE:
    """Variational autoencoder of unaugmented patches at the finest resolution.

    The paper names no augmentation for it. The loss is the negative evidence lower bound of an image in units of -1..1,
    with unit variance of the pixels.

    Args:
        patch_px: side of the patches, a power of two from 32.
        mpps: resolutions of the dataset, µm/px, finest first; only the first is read.
        augmentation_prob: unused.

    Raises:
        ValueError: `patch_px` is not a power of two from 32.
    """

    Settings: ClassVar[type[PretextSettings]] = VAESettings
    MEASURES: ClassVar[tuple[str, ...]] = ("loss", "reconstruction", "kl", "mse")
    KEEPS_BEST: ClassVar[bool] = True

    def __init__(
        self,
        *,
        start: EncoderStart,
        patch_px: int,
        mpps: tuple[float, ...],
        augmentation_prob: float,
        settings: VAESettings,
    ) -> None:
        self._network = VAENetwork(start.build(patch_px).encoder, patch_px, settings.decoder_width)
        self.epochs = settings.epochs
        self.batch_size = settings.batch_size
        self.patch_px = patch_px
        self.mpps: tuple[float, ...] = mpps[:1]
        self.kl_weight = settings.kl_weight
        self._lr = settings.lr
        self._encoder_lr = settings.encoder_lr(has_weights=start.weights is not None)
        self._adam = partial(torch.optim.Adam, betas=(0.9, 0.999), weight_decay=settings.weight_decay)
        self._fixed_noise = _normal(generator(0, "validation noise"), NUM_FIXED_NOISE_VECTORS)
        self._prior = _normal(generator(0, "samples of the prior"), NUM_SHOWN)

    @property
    def network(self) -> VAENetwork:
        """Backbone, posterior and decoder."""
        return self._network

    def training_task(self, patches: torch.Tensor, rows: torch.Tensor, step: Step) -> Task:
        """Unaugmented patches, and random noise of this step."""
        own_rows, total = step.process_rows(len(patches))
        noise = _normal(step.generator("noise"), total)[own_rows]
        return self._task(patches, sent(noise, patches.device))

    def validation_task(self, patches: torch.Tensor, rows: torch.Tensor) -> Task:
        """Patches and fixed noise; row r uses noise r modulo 64."""
        return self._task(patches, self._fixed_noise.to(rows.device)[rows % NUM_FIXED_NOISE_VECTORS])

    def _task(self, patches: torch.Tensor, noise: torch.Tensor) -> Task:
        views = unaugmented_view(patches[:, :1], self.patch_px).squeeze(1)
        return Task((views, noise), views)

    def measure(self, outputs: Decoded, task: Task) -> dict[str, torch.Tensor]:
        """Loss and its two terms, nats per image; mean squared error of a pixel in units of 0..1."""
        reconstruction = gaussian_reconstruction(outputs.images, 2 * task.targets - 1)
        kl = kl_to_standard_normal(outputs.mean, outputs.log_variance)
        return {
            "loss": reconstruction + self.kl_weight * kl,
            "reconstruction": reconstruction,
            "kl": kl,
            # A difference d in 0..1 is 2d in -1..1, and half the sum of (2d)² is twice the sum of d².
            "mse": reconstruction / (2 * task.targets[0].numel()),
        }

    def optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """Adam with L2."""
        return self._adam(
            parameter_groups(network, self.network.encoder, lr=self._lr, backbone_lr=self._encoder_lr)
        )

    def after_step(self, outputs: Decoded, task: Task) -> None:
        """Do nothing after a step."""

    def encoder_state(self) -> dict[str, torch.Tensor]:
        """Backbone; fine-tuning adds a linear layer over its pooled features."""
        return {f"encoder.{name}": value for name, value in self.network.encoder.state_dict().items()}

    def description(self) -> Mapping[str, Any]:
        """Architecture, resolution and normalization of the encoder."""
        encoder = self.network.encoder
        return encoder.description(
            architecture=f"{encoder.name} trunk", head="linear", patch_px=self.patch_px, mpps=self.mpps
        )

    def picture(self, outputs: Decoded, task: Task) -> np.ndarray:
        """Image of patches, their reconstructions, and samples from fixed latents of the prior."""
        return reconstructions_and_samples(
            task.targets[:NUM_SHOWN].cpu().numpy(),
            _at_full_scale(outputs.images[:NUM_SHOWN]),
            _at_full_scale(self._samples()),
            self.mpps[0],
        )

    @torch.no_grad()
    def _samples(self) -> torch.Tensor:
        """Samples of the prior, (8, 3, P, P), -1..1; the decoder's mode is restored."""
        decoder = self.network.decoder
        training = decoder.training
        decoder.eval()
        samples = decoder(self._prior.to(decoder.last.weight))
        decoder.train(training)
        return samples


def _normal(rng: np.random.Generator, num: int) -> torch.Tensor:
    """Standard normal noise (num, 512), float32."""
    return torch.from_numpy(rng.standard_normal((num, NUM_LATENTS), dtype=np.float32))


def _at_full_scale(images: torch.Tensor) -> np.ndarray:
    """Images in -1..1 -> array in 0..1."""
    return (images.detach().float() / 2 + 0.5).cpu().numpy()


def gaussian_reconstruction(decoded: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """-log N(images; decoded, I) without its constant (d / 2) log 2π: half the squared error of each image.

    This term and `kl_to_standard_normal` are sums over pixels and over latents, not means. Only their sum is the
    negative evidence lower bound, up to a constant; the theory's KL weight is 1. Both are computed in float32 or wider,
    also under bfloat16 autocast.

    Args:
        decoded: Shape (N, ...), in the units of `images`.
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

    No clipping: a log-variance above 88 overflows float32, so the caller bounds it.

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


def reconstructions_and_samples(
    patches: np.ndarray, decoded: np.ndarray, samples: np.ndarray, mpp: float
) -> np.ndarray:
    """Image of patches, their reconstructions with mean squared errors, and samples.

    Args:
        patches: Shape (n, 3, P, P), float32, 0..1.
        decoded: reconstructions of `patches`.
        samples: Shape (m, 3, P, P), decoded from latents of the prior.

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
