from __future__ import annotations

import numpy as np
import torch
from torch.utils.data import DataLoader

from histo_monai.baselines.colors import ColorBaseline, color_features
from histo_monai.losses import Classification, Regression


def _loader(patches: torch.Tensor) -> DataLoader:
    return DataLoader([(image, 0) for image in patches], batch_size=3)


def test_features_are_the_mean_and_the_shares_of_colors() -> None:
    generator = torch.Generator().manual_seed(0)
    patches = torch.randint(0, 256, (5, 1, 3, 8, 8), generator=generator, dtype=torch.uint8)
    features = color_features(_loader(patches))
    for i, image in enumerate(patches[:, 0].numpy()):
        np.testing.assert_allclose(features["mean"][i], image.mean(axis=(1, 2)) / 255)
        shares = np.histogramdd(image.reshape(3, -1).T, bins=8, range=[(0, 256)] * 3)[0].ravel() / 64
        np.testing.assert_allclose(features["histogram"][i] ** 2, shares, atol=1e-12)


def test_the_order_of_pixels_cannot_matter() -> None:
    image = torch.randint(0, 256, (1, 1, 3, 16, 16), dtype=torch.uint8)
    shuffled = image.flatten(3)[..., torch.randperm(256)].view_as(image)
    first, second = color_features(_loader(image)), color_features(_loader(shuffled))
    for name in first:
        np.testing.assert_allclose(first[name], second[name])


def test_what_color_tells_is_learned_and_what_it_does_not_is_not() -> None:
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(400, 3)), rng.integers(0, 3, 400)
    noise = features.copy()
    features[:, 0] += 4 * labels
    objective = Classification(["a", "b", "c"])
    for given, low, high in ((features, 0.9, 1.0), (noise, 0.1, 0.6)):
        model = ColorBaseline(objective, given[:200], labels[:200], given[200:300], labels[200:300])
        predictions = model.predict(given[300:])
        np.testing.assert_allclose(predictions.sum(axis=1), 1, rtol=1e-5)
        assert low <= (predictions.argmax(axis=1) == labels[300:]).mean() <= high


def test_a_class_without_a_label_has_no_probability() -> None:
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(40, 3)), rng.permutation(np.repeat([0, 2], 20))
    model = ColorBaseline(Classification(["a", "b", "c"]), features, labels, features, labels)
    predictions = model.predict(features)
    assert predictions.shape == (40, 3)
    assert (predictions[:, 1] == 0).all()


def test_scores_are_regressed_and_stay_on_their_scale() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 3))
    scores = np.clip(0.5 + 0.3 * features[:, 1], 0, 1).astype(np.float32)
    predictions = ColorBaseline(
        Regression(), features[:100], scores[:100], features[:50], scores[:50]
    ).predict(3 * features)
    assert predictions.shape == (200, 1)
    assert predictions.min() >= 0
    assert predictions.max() <= 1
    assert np.corrcoef(predictions[:, 0], scores)[0, 1] > 0.9
