"""The views of the paper's student: the method's numbers by closed forms and naive loops, and the former views."""

from __future__ import annotations

import colorsys
import dataclasses
import hashlib
import itertools
import logging
import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from histo_monai.data.tables.tasks import split_rows
from histo_monai.models.encoder import build_encoder
from histo_monai.models.losses import Classification
from histo_monai.models.task_model import TaskModel
from histo_monai.pipeline import finetuning, teaching
from histo_monai.pipeline.context import Assembly, TrainingRows
from histo_monai.pipeline.environment import read_environment
from histo_monai.pipeline.params import load_params
from histo_monai.semisupervised import METHODS
from histo_monai.semisupervised.protocol import Batch
from histo_monai.semisupervised.settings import PaperSettings, StrongRanges
from histo_monai.semisupervised.students.views import weak_strong_views
from histo_monai.training.fit import Records
from histo_monai.transforms.operations.blur import Blur
from histo_monai.transforms.operations.hue_saturation import HueSaturation
from histo_monai.transforms.parameters import PairParameters
from histo_monai.transforms.randaugment import STRONG, WeakStrongViews
from histo_monai.transforms.supervised import SupervisedAugmentation
from histo_monai.utils.randomness import Step
from tests.conftest import ROOT
from tests.recipes import RECIPE, STRONG_VALUES
from tests.transforms.policies import drawn_by

SIDE, N_AUG, NUM = 32, 7, 10_000
FILES = ("params.yaml", "params/paper.yaml")
PARAMS = load_params(ROOT / "params.yaml")
PAPER: PaperSettings = PARAMS.consistency.methods["paper"]
LIMITS = PAPER.strong


def _paper(
    settings: PaperSettings = PAPER, mpp: float | None = 0.25, unaugmented_fraction: float = 0.0
) -> Any:
    torch.manual_seed(0)
    return METHODS["paper"](
        model=TaskModel(build_encoder(), "pair", 3),
        objective=Classification(["a", "b", "c"]),
        patch_px=SIDE,
        mpp=mpp,
        n_aug=N_AUG,
        recipe=dataclasses.replace(RECIPE, unaugmented_fraction=unaugmented_fraction),
        settings=settings,
    )


def _batch(iteration: int = 1, num: int = 8) -> Batch:
    random = torch.Generator().manual_seed(iteration)
    labeled, unlabeled = (
        torch.randint(0, 256, (n, 1, 3, SIDE, SIDE), dtype=torch.uint8, generator=random)
        for n in (num, 3 * num)
    )
    return Batch(labeled, torch.zeros(num, dtype=torch.int64), unlabeled, Step(0, 1, iteration))


def _drawn(ranges: StrongRanges, num: int = N_AUG, mpp: float = 0.25, **which: Any) -> PairParameters:
    """Of 10,000 views, of `num` operations each."""
    views = weak_strong_views(SIDE, num, ranges, mpp=mpp, **which)
    return views.set_random_state(0).randomize(NUM, 1)


@pytest.mark.parametrize("file", FILES)
def test_the_committed_values_are_those_of_the_method(file: str) -> None:
    params = load_params(ROOT / file)
    paper = params.consistency.methods["paper"]
    assert dataclasses.asdict(paper.strong) == {
        "within_limits": True,
        "affine_scale": (0.5, 0.6),  # 0.51 to 0.60 at magnitudes 1 to 10
        "hue": (0.0, 0.05),
        "blur_mpp": 0.25,
    }
    assert params.consistency.strong.blur_mpp == 0.25
    assert paper.keep == "best"
    for section in (params.finetune.paper, params.consistency.paper):
        assert section.values["unaugmented_fraction"] == 0.3333


def test_with_the_former_values_the_views_have_the_former_bytes() -> None:
    settings = dataclasses.replace(PAPER, strong=STRONG_VALUES)
    labeled, unlabeled = SupervisedAugmentation(SIDE), WeakStrongViews(SIDE, N_AUG)
    batch = _batch()
    labeled.set_random_state(batch.step.derive_seed("augmentation"))
    unlabeled.set_random_state(batch.step.derive_seed("weak and strong"))
    expected = [labeled(batch.labeled), *unlabeled(batch.unlabeled)]
    views = _paper(settings, mpp=0.5).views(batch)
    assert all(torch.equal(view, other.squeeze(1)) for view, other in zip(views, expected, strict=True))
    drawn = WeakStrongViews(SIDE, N_AUG).set_random_state(0).randomize(64, 1)
    parts = (drawn.weak.matrices, drawn.strong.matrices, drawn.strong.schedule, *drawn.strong.parameters)
    assert _digest(*parts) == "0eac13c83cdf1ff9"  # of commit 17f4acd
    geometry = labeled.set_random_state(0).randomize(64, 1)
    assert _digest(geometry.matrices, geometry.schedule) == "ef608513e83112b5"


def _digest(*values: Any) -> str:
    digest = hashlib.sha256()
    for value in values:
        digest.update(np.ascontiguousarray(np.asarray(value, np.float64).round(5) + 0.0).tobytes())
    return digest.hexdigest()[:16]


def _magnifications(drawn: PairParameters) -> NDArray[np.float64]:
    """Of the strong views over their patches, the base crop included."""
    return 1 / np.sqrt(np.abs(np.linalg.det(drawn.strong.matrices.numpy()))).ravel()


def _probability(low: float, high: float, within_limits: bool) -> float:
    """That a magnification lies between the two: a sum over operations and magnitudes, midpoints of uniform numbers."""
    tenths = np.arange(1, 11) / 10
    middles = (np.arange(25) + 0.5) / 25
    sides = 2 * middles - 1 if within_limits else np.array([-1.0, 1.0])
    scale = (1 + np.outer(0.2 * tenths, sides)).ravel()
    affine = (1 + np.outer(0.5 + 0.1 * tenths, sides)).ravel()
    crop = (1 - 0.3 * tenths) ** -0.5
    base = (0.7 + 0.3 * middles) ** -0.5
    none = np.ones(1)
    total = 0.0
    for chosen in itertools.product((False, True), repeat=3):
        parts = [values if has else none for has, values in zip(chosen, (scale, affine, crop), strict=True)]
        # The other seven operations leave the magnification as it is.
        weight = math.comb(7, N_AUG - sum(chosen)) / math.comb(10, N_AUG)
        products = np.array([1.0])
        for values in (base, *parts):
            products = np.multiply.outer(products, values).ravel()
        total += weight * float(((low < products) & (products <= high)).mean())
    return total


@pytest.mark.parametrize(
    ("ranges", "far", "near"),
    [(STRONG_VALUES, 0.549, 0.215), (LIMITS, 0.127, 0.482)],
    ids=["values", "limits"],
)
def test_magnification_near_one_is_likely_where_magnitudes_are_limits(
    ranges: StrongRanges, far: float, near: float
) -> None:
    found = _magnifications(_drawn(ranges))
    three_errors = 3 * 0.5 / math.sqrt(NUM)
    for low, high in ((0.0, 0.6), (1.67, 99.0), (0.8, 1.25), (0.9, 1.1)):
        fraction = ((low < found) & (found <= high)).mean()
        assert fraction == pytest.approx(_probability(low, high, ranges.within_limits), abs=three_errors)
    assert ((found < 0.6) | (found > 1.67)).mean() == pytest.approx(far, abs=0.001)
    assert ((found > 0.8) & (found < 1.25)).mean() == pytest.approx(near, abs=0.001)


def test_affine_magnification_is_uniform_up_to_the_limit_of_its_magnitude() -> None:
    for magnitude, limit in ((1, 0.51), (10, 0.60)):
        drawn = _drawn(LIMITS, num=1, names=("affine",), magnitudes=(magnitude, magnitude))
        relative = np.linalg.solve(drawn.weak.matrices.numpy(), drawn.strong.matrices.numpy())
        departures = 1 / np.sqrt(np.linalg.det(relative)).ravel() - 1
        assert departures.min() == pytest.approx(-limit, abs=0.01)
        assert departures.max() == pytest.approx(limit, abs=0.01)
        assert departures.mean() == pytest.approx(0, abs=0.02)
        assert departures.std() == pytest.approx(limit / math.sqrt(3), abs=0.01)


def test_hue_is_uniform_up_to_the_limit_of_its_magnitude() -> None:
    turns = drawn_by(HueSaturation, _drawn(LIMITS, num=1, names=("hue_saturation",)).strong)[..., 0]
    sizes = turns.abs().numpy().ravel()
    assert sizes.max() <= 0.05
    for size in (0.005, 0.01, 0.02, 0.03, 0.045):
        expected = np.mean([min(1.0, size / (0.05 * magnitude / 10)) for magnitude in range(1, 11)])
        assert (sizes <= size).mean() == pytest.approx(expected, abs=3 * 0.5 / math.sqrt(NUM))


def _green_fraction(ranges: StrongRanges) -> float:
    """Of views of stained tissue, those between yellow and cyan."""
    # Ruifrok and Johnston 2001: optical densities of hematoxylin, of eosin, and of both in equal parts.
    stains = np.array([[0.65, 0.70, 0.29], [0.07, 0.99, 0.11], [0.36, 0.845, 0.20]])
    colors = np.round(255 * 10**-stains).astype(np.uint8)
    flat = torch.from_numpy(colors)[:, None, :, None, None].expand(-1, 1, 3, SIDE, SIDE).contiguous()
    views = weak_strong_views(SIDE, 1, ranges, mpp=0.25, names=("hue_saturation",)).set_random_state(0)
    _, strong = views(flat.repeat(300, 1, 1, 1, 1))
    hues = [colorsys.rgb_to_hsv(*color)[0] for color in strong[:, 0, :, SIDE // 2, SIDE // 2].tolist()]
    return sum(1 / 6 <= hue <= 1 / 2 for hue in hues) / len(hues)


def test_no_strong_view_of_stained_tissue_is_green() -> None:
    assert _green_fraction(LIMITS) == 0
    assert _green_fraction(STRONG_VALUES) > 0.1


def _naive_half(kernel: int, mpp: float) -> list[float]:
    """Right half of a Gaussian kernel of `kernel` pixels of 0.25 µm, in pixels of `mpp`."""
    pixels = 0.25 / mpp
    sigma = (0.3 * ((kernel - 1) / 2 - 1) + 0.8) * pixels  # OpenCV's rule, in pixels of 0.25 µm
    radius = math.ceil((kernel - 1) / 2 * pixels)
    weights = [math.exp(-(offset**2) / (2 * sigma**2)) for offset in range(-radius, radius + 1)]
    return [weight / sum(weights) for weight in weights[radius:]]


@pytest.mark.parametrize("mpp", [0.25, 0.5, 1.0])
@pytest.mark.parametrize(("magnitude", "kernel"), [(1, 5), (5, 5), (6, 7), (10, 7)])
def test_blur_kernels_of_5_and_7_px_count_at_a_quarter_of_a_micrometer(
    magnitude: int, kernel: int, mpp: float
) -> None:
    drawn = _drawn(LIMITS, num=1, mpp=mpp, names=("blur",), magnitudes=(magnitude, magnitude))
    halves = drawn_by(Blur, drawn.strong)
    assert (halves == halves[0]).all()
    half = halves[0].ravel().tolist()
    expected = _naive_half(kernel, mpp)
    assert len(expected) - 1 == {(5, 0.25): 2, (7, 0.25): 3, (5, 0.5): 1, (7, 0.5): 2}.get((kernel, mpp), 1)
    assert half == pytest.approx(expected + [0.0] * (len(half) - len(expected)))


def test_a_blur_of_unknown_resolution_counts_pixels_and_the_log_states_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    in_pixels = dataclasses.replace(LIMITS, blur_mpp=None)
    former = weak_strong_views(SIDE, N_AUG, in_pixels, mpp=1.0)
    assert not caplog.records
    unknown = weak_strong_views(SIDE, N_AUG, LIMITS, mpp=None)
    assert unknown.operations == former.operations
    assert STRONG[8] in unknown.operations
    assert "no µm/px" in caplog.text


def test_one_labeled_view_in_three_is_unaugmented() -> None:
    section = PARAMS.consistency.paper.of("camelyon16")
    method = _paper(unaugmented_fraction=section.unaugmented_fraction)
    counts = []
    for iteration in range(200):
        batch = _batch(iteration, num=8)
        views = method.views(batch)[0]
        plain = [
            torch.allclose(view, image[0] / 255) for view, image in zip(views, batch.labeled, strict=True)
        ]
        counts.append(sum(plain))
    assert set(counts) == {2, 3}  # a third of 8
    assert np.mean(counts) / 8 == pytest.approx(1 / 3, abs=3 * 0.5 / 8 / math.sqrt(200))


@pytest.mark.parametrize("unaugmented_fraction", [0.0, 0.3333])
def test_fine_tuning_by_the_section_of_a_dataset_has_its_unaugmented_views(
    unaugmented_fraction: float,
) -> None:
    section = dataclasses.replace(
        PARAMS.finetune.paper.of("kather"), unaugmented_fraction=unaugmented_fraction
    )
    tuning = finetuning.tuning_of(section, "all", has_weights=False)
    assert (
        tuning.unaugmented_fraction,
        tuning.backbone_lr_factor,
        tuning.stain_jitter,
        tuning.ema_decay,
    ) == (unaugmented_fraction, 1, 0, None)


@pytest.mark.parametrize("student", ["paper", "fixmatch"])
@pytest.mark.parametrize(("mpp", "pixels"), [(1.0, 0.25), (0.5, 0.5), (0.0, 1.0)])
def test_students_blur_at_the_resolution_of_their_patches(
    wave_task: Any, monkeypatch: pytest.MonkeyPatch, student: str, mpp: float, pixels: float
) -> None:
    task = wave_task()
    task.patches["mpp"] = mpp  # 0: unknown
    changed = dict(PARAMS.consistency.recipe.values) | {"epochs": 1, "batchnorm_patches": 0}
    recipes = dataclasses.replace(PARAMS.consistency.recipe, values=changed)
    params = dataclasses.replace(
        PARAMS, patch_px=task.patch_px, consistency=dataclasses.replace(PARAMS.consistency, recipe=recipes)
    )
    assembly = Assembly(params, read_environment(), task.patches, task, task.reading)
    train, validation = (split_rows(task.patches, split) for split in ("train", "validation"))
    built: list[Any] = []
    monkeypatch.setattr(teaching, "train_student", lambda method, *parts, **named: built.append(method))
    teaching.teach_student(
        assembly,
        student,
        TaskModel(build_encoder(), "pair", task.num_outputs),
        TrainingRows(train.head(6), train, train, validation),
        seed=0,
        picture=lambda *shown: np.zeros((2, 2, 3), np.uint8),
        records=Records(),
    )
    (blur,) = (op for op in built[0]._unlabeled_views.operations if isinstance(op, Blur))
    assert blur.kernel_px == pixels
    expected = {"paper": 0.3333, "fixmatch": changed["unaugmented_fraction"]}[student]
    assert built[0]._labeled_views.unaugmented_fraction == expected


def test_the_epoch_that_predicts_is_a_setting() -> None:
    assert PAPER.keeps_best_epoch
    assert not dataclasses.replace(PAPER, keep="last").keeps_best_epoch
    assert not PARAMS.consistency.methods["fixmatch"].keeps_best_epoch
