"""Color alone must not solve the tasks: measured with classifiers of scikit-learn, split by slide."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from skimage.color import rgb2hed
from skimage.feature import graycomatrix, graycoprops, local_binary_pattern
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from histo_monai.data.simulated.datasets import breastpathq, camelyon16, kather
from histo_monai.data.simulated.plans.breast import Breast
from histo_monai.data.simulated.raster.lattice import Grid
from histo_monai.data.simulated.tissue.render import render
from histo_monai.data.simulated.tissue.world import World

pytestmark = pytest.mark.slow
Images = list[NDArray[np.uint8]]


def mean_rgb(image: NDArray[np.uint8]) -> NDArray[np.float64]:
    return image.reshape(-1, 3).mean(0)


def color_histogram(image: NDArray[np.uint8]) -> NDArray[np.float64]:
    return (
        np.histogramdd(image.reshape(-1, 3), bins=(6, 6, 6), range=[(0, 256)] * 3)[0].ravel()
        / image[..., 0].size
    )


def texture(image: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Patterns, co-occurrence and blob sizes of the nuclear stain, its level and contrast taken out."""
    stain = rgb2hed(image)[..., 0].astype(np.float32)
    low, high = np.percentile(stain, (2, 98))
    stain = np.clip((stain - low) / (high - low + 1e-6), 0, 1)
    levels = (stain * 15).astype(np.uint8)
    features = []
    for radius in (1, 2, 4):
        codes = local_binary_pattern((stain * 255).astype(np.uint8), 8, radius, "uniform")
        features.append(np.histogram(codes, 10, (0, 10), density=True)[0])
    pairs = graycomatrix(levels, [1, 2, 4, 8, 12], [0, np.pi / 4, np.pi / 2, 3 * np.pi / 4], 16, True, True)
    for name in ("correlation", "homogeneity", "contrast"):
        values = graycoprops(pairs, name)
        features += [values.mean(1), values.std(1)]
    scales = [cv2.GaussianBlur(stain, (0, 0), s) for s in (0.7, 1.4, 2.8, 5.6, 11.2, 22.4)]
    features.append(np.array([(a - b).std() for a, b in pairwise(scales)]))
    return np.concatenate(features)


def accuracy(images: Images, labels: list[str], slides: list[int], describe: Callable) -> float:
    """Fraction of right answers on slides that were not trained on."""
    x = np.array([describe(i) for i in images])
    scores = []
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    for model in (linear, RandomForestClassifier(80, n_jobs=1, random_state=0)):
        predicted = cross_val_predict(model, x, labels, groups=slides, cv=GroupKFold(4))
        scores.append(float((predicted == np.array(labels)).mean()))
    return max(scores)


def explained(images: Images, scores: list[float], slides: list[int], describe: Callable) -> float:
    """R² on patients that were not trained on."""
    x, y = np.array([describe(i) for i in images]), np.array(scores)
    best = -np.inf
    for model in (
        make_pipeline(StandardScaler(), Ridge(3.0)),
        RandomForestRegressor(80, n_jobs=1, max_features=0.33, random_state=0),
    ):
        predicted = cross_val_predict(model, x, y, groups=slides, cv=GroupKFold(4))
        best = max(best, 1 - float(((predicted - y) ** 2).mean() / y.var()))
    return best


def compare(measure: Callable, images: Images, truth: list, slides: list[int], task: str) -> list[float]:
    """The measure by mean color, by color histogram and by texture; printed for the record."""
    result = [measure(images, truth, slides, describe) for describe in (mean_rgb, color_histogram, texture)]
    print(
        f"{task}, {len(images)} patches: mean {result[0]:.3f} histogram {result[1]:.3f} texture {result[2]:.3f}"
    )
    return result


def node_patches(
    mpp: float, side_px: int, per_slide: int = 10, seed: int = 5
) -> tuple[Images, list[str], list[int]]:
    """Windows in lesions and in healthy node (normal and tumor slides alike), half of each."""
    images, labels, slides = [], [], []
    specs = camelyon16.slide_specs(seed, 20, 0, int(1700 / mpp), mpp)
    for number, spec in enumerate(specs.values()):
        rng = np.random.default_rng(number)
        world, lesions = camelyon16.make_world(spec)
        step = side_px * mpp / 2
        count = int(spec.side_px * mpp / step) - 2
        regions = world.plan.regions(Grid(step / 2, step / 2, step, count, count))
        healthy = world.plan.node_depth(Grid(step / 2, step / 2, step, count, count)) > 60
        truth = {"normal": healthy}
        if lesions:
            depth = regions["lesion_depth"]
            truth = {
                "tumour": depth > 0.3 * side_px * mpp,
                "normal": healthy & (depth < -0.8 * side_px * mpp),
            }
        for label, mask in truth.items():
            rows, columns = np.nonzero(mask)
            wanted = per_slide if label == "tumour" else per_slide // 2
            for k in rng.permutation(len(rows))[:wanted]:
                top, left = (int((v + 1) * step / mpp) - side_px // 2 for v in (rows[k], columns[k]))
                images.append(render(world, top, left, side_px, side_px).image)
                labels.append(label)
                slides.append(number)
    return images, labels, slides


@pytest.mark.parametrize("mpp", [0.5, 1.0])
def test_color_does_not_separate_tumor_from_normal_node_but_texture_does(mpp: float) -> None:
    images, labels, slides = node_patches(mpp, 128)
    by_mean, by_histogram, by_texture = compare(accuracy, images, labels, slides, f"node, {mpp} µm/px")
    assert by_mean < 0.72
    assert by_histogram < 0.77
    assert by_texture > 0.87


def bowel_patches(seed: int = 3) -> tuple[Images, list[str], list[int]]:
    """Three patches of each class from each of ten patients."""
    images, labels, slides = [], [], []
    for number, patient in enumerate(kather.patients(seed, 450)[:10]):
        few = replace(patient, patches=patient.patches[:27])
        images += kather.render_patches(few)
        labels += [label for label, _ in few.patches]
        slides += [number] * len(few.patches)
    return images, labels, slides


def test_color_does_not_separate_the_nine_classes_but_texture_does() -> None:
    by_mean, by_histogram, by_texture = compare(accuracy, *bowel_patches(), "kather")
    assert by_mean < 0.56
    assert by_histogram < 0.75
    assert by_texture > 0.88


def breast_patches(seed: int = 3) -> tuple[Images, list[float], list[int]]:
    """160 patches of 18 patients, at 1 µm/px, with the malignant fraction that they were drawn with at 0.5."""
    images, scores, slides = [], [], []
    for number, patient in enumerate(breastpathq.patients(seed, 160)):
        world = World.from_seed(patient.seed, 0.5, Breast(patient.seed))
        for top, left in breastpathq.patch_corners_px(patient):
            view = render(world, top, left, 512, 512)
            images.append(cv2.resize(view.image, (256, 256), interpolation=cv2.INTER_AREA))
            scores.append(float(view.malignant.mean()))
            slides.append(number)
    return images, scores, slides


def test_color_does_not_predict_the_malignant_fraction_but_texture_does() -> None:
    by_mean, by_histogram, by_texture = compare(explained, *breast_patches(), "breast")
    assert by_mean < 0.30
    assert by_histogram < 0.5
    assert by_texture > 0.8
