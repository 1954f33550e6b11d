from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from histo_monai.pretraining.vae import gaussian_reconstruction, kl_to_standard_normal


def _posterior(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    mean, log_variance = 3 * torch.randn(2, 5, 7, generator=generator, dtype=torch.float64)
    return mean.to(dtype), log_variance.to(dtype)


def _images() -> tuple[torch.Tensor, torch.Tensor]:
    decoded, images = 2 * torch.rand(2, 4, 3, 6, 6, generator=torch.Generator().manual_seed(1)).double() - 1
    return decoded, images


def test_kl_is_that_of_torch_distributions() -> None:
    mean, log_variance = _posterior()
    expected = kl_divergence(Normal(mean, (log_variance / 2).exp()), Normal(0.0, 1.0)).sum(dim=1)
    torch.testing.assert_close(kl_to_standard_normal(mean, log_variance), expected)


@pytest.mark.parametrize(
    ("mean", "log_variance", "nats"),
    [
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([1.0, -2.0], [0.0, 0.0], (1 + 4) / 2),
        ([0.0, 0.0], [1.0, -1.0], (math.e + 1 / math.e - 2) / 2),
        ([3.0, 0.0], [0.0, math.log(4)], (9 + 4 - 1 - math.log(4)) / 2),
    ],
)
def test_kl_of_posteriors_worked_by_hand(mean: list[float], log_variance: list[float], nats: float) -> None:
    divergence = kl_to_standard_normal(torch.tensor([mean]), torch.tensor([log_variance]))
    assert divergence.item() == pytest.approx(nats, rel=1e-6)


def test_reconstruction_worked_by_hand() -> None:
    images = torch.tensor([[[1.0, -1.0], [0.0, 0.5]], [[1.0, 1.0], [1.0, 1.0]]])
    decoded = torch.tensor([[[0.0, -1.0], [0.5, 0.5]], [[-1.0, 1.0], [1.0, 0.0]]])
    assert gaussian_reconstruction(decoded, images).tolist() == [0.625, 2.5]


def test_reconstruction_is_the_gaussian_log_density_but_for_its_constant() -> None:
    decoded, images = _images()
    density = Normal(decoded, 1.0).log_prob(images).flatten(1).sum(dim=1)
    constant = 0.5 * math.log(2 * math.pi) * images[0].numel()
    torch.testing.assert_close(gaussian_reconstruction(decoded, images), -density - constant)
    best = gaussian_reconstruction(images, images)
    torch.testing.assert_close(
        gaussian_reconstruction(decoded, images) - best,
        Normal(images, 1.0).log_prob(images).flatten(1).sum(dim=1) - density,
    )


def test_both_terms_equal_a_loop_over_images_and_numbers() -> None:
    (mean, log_variance), (decoded, images) = _posterior(), _images()
    for i, (m, v) in enumerate(zip(mean.tolist(), log_variance.tolist(), strict=True)):
        expected = 0.0
        for a, b in zip(m, v, strict=True):
            expected += 0.5 * (a * a + math.exp(b) - 1 - b)
        assert kl_to_standard_normal(mean, log_variance)[i].item() == pytest.approx(expected, rel=1e-12)
    for i in range(len(images)):
        expected = 0.0
        for x, y in zip(images[i].flatten().tolist(), decoded[i].flatten().tolist(), strict=True):
            expected += 0.5 * (x - y) ** 2
        assert gaussian_reconstruction(decoded, images)[i].item() == pytest.approx(expected, rel=1e-12)


def test_gradients_are_the_closed_ones() -> None:
    mean, log_variance = (x.requires_grad_() for x in _posterior())
    decoded, images = _images()
    decoded.requires_grad_()
    kl_to_standard_normal(mean, log_variance).sum().backward()
    gaussian_reconstruction(decoded, images).sum().backward()
    torch.testing.assert_close(mean.grad, mean.detach())
    torch.testing.assert_close(log_variance.grad, (log_variance.detach().exp() - 1) / 2)
    torch.testing.assert_close(decoded.grad, decoded.detach() - images)


def test_kl_keeps_its_digits_near_the_prior() -> None:
    small = torch.full((1, 1), 1e-3)
    expected = 0.5 * (1e-3**2 / 2 + 1e-3**3 / 6)  # of exp(x) - 1 - x; in float32 the plain sum has one digit
    assert kl_to_standard_normal(torch.zeros(1, 1), small).item() == pytest.approx(expected, rel=1e-3)


def test_half_precision_answers_are_summed_in_float32_also_under_autocast() -> None:
    mean, log_variance = _posterior(torch.bfloat16)
    decoded, images = _images()
    half = decoded.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        kl = kl_to_standard_normal(mean, log_variance)
        reconstruction = gaussian_reconstruction(half, images.float())
    assert kl.dtype == reconstruction.dtype == torch.float32
    torch.testing.assert_close(kl, kl_to_standard_normal(mean.double(), log_variance.double()).float())
    torch.testing.assert_close(reconstruction, gaussian_reconstruction(half.double(), images).float())


def test_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"decoded \(2, 3\) != images \(2, 1\)"):
        gaussian_reconstruction(torch.zeros(2, 3), torch.zeros(2, 1))
    with pytest.raises(ValueError, match=r"mean \(2, 3\) != log_variance \(2, 1\)"):
        kl_to_standard_normal(torch.zeros(2, 3), torch.zeros(2, 1))
