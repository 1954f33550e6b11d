import numpy as np
import pytest
import scipy.ndimage
import torch


@pytest.fixture(scope="module")
def smooth():
    """Low-pass random fields, 32 of them."""
    noise = np.random.default_rng(0).normal(size=(32, 3, 32, 32))
    fields = scipy.ndimage.gaussian_filter(noise, (0, 0, 6, 6), mode="reflect")
    fields -= fields.mean(axis=(2, 3), keepdims=True)
    fields *= 45 / fields.std(axis=(2, 3), keepdims=True)
    return torch.from_numpy((128 + fields).clip(0, 255).astype(np.uint8))[:, None]
