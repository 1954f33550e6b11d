"""Variational autoencoder: a patch through 512 noisy numbers and back (Kingma and Welling 2014; paper, appendix C)."""

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
from histo_monai.transforms.views import plain_view
from histo_monai.utils.randomness import Step, generator
from histo_monai.utils.transfer import sent

NUM_LATENTS = 512
LOG_VARIANCE_BOUND = 20.0
NUM_FIXED_DRAWS, NUM_SHOWN = 64, 8


class Decoded(NamedTuple):
    """What the network says of a batch.

    Attributes:
        images: Shape (n, 3, P, P), -1..1.
        mean: of the posterior, Shape (n, 512).
        log_variance: of the posterior, Shape (n, 512), within ±20.
    """

    images: torch.Tensor
    mean: torch.Tensor
    log_variance: torch.Tensor


class VAENetwork(nn.Module):
    """The trunk, a linear layer for the mean and one for the log-variance, and the decoder.

    The log-variance is 20 tanh(a / 20) of the layer's answer a: near 0 it is a, and no answer, however large, makes
    its exponential overflow. A smooth bound is part of the function: its gradient is the true one everywhere, where
    a cut would give none beyond its edges. Mean and log-variance are computed in float32 also under autocast.

    Args:
        encoder: becomes part of it.
        patch_px: P, a power of two from 32.
        decoder_width: see `Decoder`.
    """

    def __init__(self, encoder: Encoder, patch_px: int, decoder_width: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.mean = nn.Linear(encoder.num_features, NUM_LATENTS)
        self.log_variance = nn.Linear(encoder.num_features, NUM_LATENTS)
        self.decoder = Decoder(NUM_LATENTS, patch_px, decoder_width)

    def forward(self, patches: torch.Tensor, noise: torch.Tensor) -> Decoded:
        """Encode, move by noise, decode. No chance of its own: the noise is handed over.

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
    """The variational autoencoder behind the `Pretext` protocol.

    It reads the finest resolution alone, and does not augment: the paper names no augmentation for it. The loss is the
    negative evidence lower bound of an image in units of -1..1, with unit variance of the pixels.

    Args:
        start: encoder, and the file that it starts from, if any.
        patch_px: side of the patches, a power of two from 32.
        mpps: resolutions of the corpus, µm/px, finest first; only the first is read.
        augmentation_prob: not used, since nothing is augmented.
        settings: see `VAESettings`.

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
        self._adam = partial(
            torch.optim.Adam, lr=settings.lr, betas=(0.9, 0.999), weight_decay=settings.weight_decay
        )
        self._fixed_noise = _normal(generator(0, "validation noise"), NUM_FIXED_DRAWS)
        self._prior = _normal(generator(0, "samples of the prior"), NUM_SHOWN)

    @property
    def network(self) -> VAENetwork:
        """Trunk, posterior and decoder."""
        return self._network

    def training_task(self, patches: torch.Tensor, rows: torch.Tensor, step: Step) -> Task:
        """The patches as they are, and noise drawn for this step."""
        share, total = step.share(len(patches))
        noise = _normal(step.generator("noise"), total)[share]
        return self._task(patches, sent(noise, patches.device))

    def validation_task(self, patches: torch.Tensor, rows: torch.Tensor) -> Task:
        """The patches and fixed noise: row r takes draw r modulo 64."""
        return self._task(patches, self._fixed_noise.to(rows.device)[rows % NUM_FIXED_DRAWS])

    def _task(self, patches: torch.Tensor, noise: torch.Tensor) -> Task:
        views = plain_view(patches[:, :1], self.patch_px).squeeze(1)
        return Task((views, noise), views)

    def measure(self, outputs: Decoded, task: Task) -> dict[str, torch.Tensor]:
        """The loss and its two terms in nats per image; the mean squared error of a pixel at full scale 0..1."""
        reconstruction = gaussian_reconstruction(outputs.images, 2 * task.targets - 1)
        kl = kl_to_standard_normal(outputs.mean, outputs.log_variance)
        return {
            "loss": reconstruction + self.kl_weight * kl,
            "reconstruction": reconstruction,
            "kl": kl,
            # A difference d at full scale is 2d in -1..1, and half the sum of (2d)² is twice that of d².
            "mse": reconstruction / (2 * task.targets[0].numel()),
        }

    def optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """Adam with L2."""
        return self._adam(network.parameters())

    def after_step(self, outputs: Decoded, task: Task) -> None:
        """Nothing follows a step."""

    def encoder_state(self) -> dict[str, torch.Tensor]:
        """The trunk: fine-tuning starts a linear layer over its pooled features."""
        return {f"encoder.{name}": value for name, value in self.network.encoder.state_dict().items()}

    def description(self) -> Mapping[str, Any]:
        """Architecture, resolution and normalization of the encoder."""
        encoder = self.network.encoder
        return encoder.description(
            architecture=f"{encoder.name} trunk", head="linear", patch_px=self.patch_px, mpps=self.mpps
        )

    def picture(self, outputs: Decoded, task: Task) -> np.ndarray:
        """Patches with their reconstructions, and samples decoded from fixed latents of the prior."""
        return reconstructions_and_samples(
            task.targets[:NUM_SHOWN].cpu().numpy(),
            _at_full_scale(outputs.images[:NUM_SHOWN]),
            _at_full_scale(self._samples()),
            self.mpps[0],
        )

    @torch.no_grad()
    def _samples(self) -> torch.Tensor:
        """(8, 3, P, P), -1..1; the network is left as it is found."""
        decoder = self.network.decoder
        training = decoder.training
        decoder.eval()
        samples = decoder(self._prior.to(decoder.last.weight))
        decoder.train(training)
        return samples


def _normal(rng: np.random.Generator, num: int) -> torch.Tensor:
    """(num, 512), float32, of a standard normal."""
    return torch.from_numpy(rng.standard_normal((num, NUM_LATENTS), dtype=np.float32))


def _at_full_scale(images: torch.Tensor) -> np.ndarray:
    """-1..1 on some device -> 0..1."""
    return (images.detach().float() / 2 + 0.5).cpu().numpy()


def gaussian_reconstruction(decoded: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """-log N(images; decoded, I) without its constant (d / 2) log 2π: half the squared error of each image.

    This term and `kl_to_standard_normal` are sums, not means: over channels and pixels, and over latents. Only their
    sum is the negative evidence lower bound, up to a constant; a KL weight of 1 is the weight of the theory. Both are
    computed in float32 or wider, also under bfloat16 autocast.

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
