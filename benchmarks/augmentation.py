"""Speed of the pretraining augmentation against the same policy in albumentations 2.0.8.

    python benchmarks/augmentation.py                  # one CPU core, both, interleaved, medians
    python benchmarks/augmentation.py --own            # all policies of ours alone, one CPU core
    python benchmarks/augmentation.py --executions     # all policies with OpenCV and with torch, 1 and 2 threads

Besides the policy of pretraining, those of fine-tuning and of consistency training are timed; the latter's image is a
pair of views, weak and strong (n_aug = 7), and `weak` the first of these alone. `--executions` takes the batches of
params.yaml at 64 and 256 px: what a CPU runs (OpenCV, one thread) against what a GPU runs (torch, here on the CPU too).

All start from uint8 in memory and end with a float32 (N, 3, P, P) tensor in 0..1. The albumentations
policy has the same operations, ranges and probabilities on uint8 images in its own layout (H, W, 3); its
order is fixed, which costs the same. It has no operation on the three HED channels; two stand-ins are timed:
its own `HEStain` (hematoxylin and eosin only, the residual is lost), and scikit-image's rgb2hed and hed2rgb in an
`A.Lambda` (all three channels, as in the paper). Needs the extras `bench` and `test`.
On a GPU: `benchmarks/gpu.sh`.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")

import numpy as np
import torch
import torch.nn.functional as F
from skimage.color import hed2rgb, rgb2hed

from histo_monai.pretraining.contrastive_views import ContrastiveViews
from histo_monai.transforms import with_opencv, with_torch
from histo_monai.transforms.augmentation import Augmentation, render
from histo_monai.transforms.operations.noise import pool_length
from histo_monai.transforms.parameters import ViewParameters
from histo_monai.transforms.randaugment import WeakStrongViews
from histo_monai.transforms.supervised import SupervisedAugmentation
from histo_monai.transforms.views import PretrainAugmentation

PRETRAINING = "pretraining"


def perturb_with_scikit_image(image: np.ndarray, **_: object) -> np.ndarray:
    """All three HED channels, uint8 (P, P, 3) in and out."""
    stains = rgb2hed(image)
    stains *= 1 + np.random.uniform(-0.035, 0.035, 3)  # noqa: NPY002 - reseeding costs nothing here
    stains += np.random.uniform(-0.035, 0.035, 3) / 6  # noqa: NPY002 - its unit is six decades
    return (hed2rgb(stains) * 255).astype(np.uint8)


def albumentations_policy(size_px: int, prob: float, stain: str) -> Callable[[np.ndarray], np.ndarray]:
    """The pretraining policy in albumentations: uint8 (P, P, 3) in and out; `stain` is hestain or scikit-image."""
    import albumentations as A
    import cv2

    cv2.setNumThreads(0)
    border = cv2.BORDER_REFLECT_101
    if stain == "hestain":
        perturb_stains = A.HEStain(
            method="preset",
            preset="ruifrok",
            intensity_scale_range=(0.965, 1.035),
            intensity_shift_range=(-0.035, 0.035),
            augment_background=True,
            p=prob,
        )
    else:
        perturb_stains = A.Lambda(image=perturb_with_scikit_image, p=prob)
    policy = A.Compose(
        [
            A.Rotate(limit=(-90, 90), border_mode=border, p=prob),
            A.Affine(scale=(0.8, 1.2), border_mode=border, p=prob),
            A.Affine(
                scale=(0.5, 1.5),
                translate_percent=(-0.0625, 0.0625),
                rotate=(-45, 45),
                border_mode=border,
                p=prob,
            ),
            A.HorizontalFlip(p=prob),
            A.RandomResizedCrop((size_px, size_px), scale=(0.7, 1.0), p=prob),
            A.GaussNoise(std_range=(0.0, 0.1), p=prob),
            A.HueSaturationValue(hue_shift_limit=18, sat_shift_limit=255, val_shift_limit=0, p=prob),
            A.RandomBrightnessContrast(brightness_limit=0.2, contrast_limit=0.2, p=prob),
            A.GaussianBlur(blur_limit=(3, 7), sigma_limit=(0.8, 1.4), p=prob),
            perturb_stains,
        ]
    )
    return lambda image: policy(image=image)["image"]


def tissue_like_batch(num_samples: int, num_scales: int, size_px: int) -> torch.Tensor:
    """Smooth pink and violet texture, uint8, shape (N, S, 3, P, P)."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.randn(num_samples * num_scales, 1, size_px // 8, size_px // 8, generator=generator)
    stain = F.interpolate(coarse, size=(size_px, size_px), mode="bicubic").sigmoid()
    density = stain * torch.tensor([0.45, 0.8, 0.3]).view(1, 3, 1, 1)
    grain = 4 * torch.randn(*density.shape, generator=generator)
    pixels = (245 * 10**-density + grain).clamp(0, 255).to(torch.uint8)
    return pixels.unflatten(0, (num_samples, num_scales))


def own_policies(batch: torch.Tensor, prob: float) -> dict[str, Callable[[], object]]:
    """What augments the batch by each policy of histo_monai."""
    size_px = batch.shape[-1]
    pretraining = PretrainAugmentation(size_px, prob).set_random_state(0)
    supervised = SupervisedAugmentation(size_px).set_random_state(0)
    pairs = WeakStrongViews(size_px, n_aug=7).set_random_state(0)
    return {
        PRETRAINING: lambda: pretraining(batch),
        "supervised": lambda: supervised(batch),
        "weak and strong": lambda: pairs(batch),
        "weak": lambda: render(batch, [pairs.randomize(*batch.shape[:2]).weak], size_px),
    }


def policies_at_defaults(size_px: int) -> dict[str, tuple[Augmentation, tuple[int, int]]]:
    """Each policy and the samples and patches of a batch of params.yaml."""
    return {
        PRETRAINING: (PretrainAugmentation(size_px), (16, 3)),
        "MoCo, both views": (ContrastiveViews(size_px), (16, 1)),
        "supervised": (SupervisedAugmentation(size_px), (16, 1)),
        "weak and strong, 7": (WeakStrongViews(size_px, n_aug=7), (56, 1)),
        "weak and strong, 3": (WeakStrongViews(size_px, n_aug=3), (56, 1)),
    }


def augment_with(execution: ModuleType, policy: Augmentation, batch: torch.Tensor) -> None:
    """What `policy(batch)` does, by one of the two executions."""
    parameters = policy.randomize(*batch.shape[:2])
    views = [parameters] if isinstance(parameters, ViewParameters) else vars(parameters).values()
    for view in views:
        generator = torch.Generator().manual_seed(view.noise_seed)
        pool = torch.randn(pool_length(policy.size_px) if view.needs_normals() else 0, generator=generator)
        execution.augment(batch.flatten(0, 1), view, pool, policy.size_px)


def compare_executions(repeats: int) -> None:
    """Prints milliseconds an image with OpenCV on one thread, and how many times as long torch takes on 1 and 2.

    One thread: CPU time, the median ratio of the interleaved repeats, with quartiles. Two: wall time, the ratio of the
    fastest repeats, because threads that wait for each other on a busy machine say nothing of a quiet one.
    """
    print("OpenCV, ms of CPU time an image; torch / OpenCV on 1 thread (quartiles) and on 2")
    for size_px in (64, 256):
        for name, (policy, shape) in policies_at_defaults(size_px).items():
            batch = tissue_like_batch(*shape, size_px)
            by = [
                partial(augment_with, execution, policy.set_random_state(0), batch)
                for execution in (with_opencv, with_torch)
            ]
            one_thread = interleaved(by, 1, repeats, time.process_time)
            low, ratio, high = statistics.quantiles((with_torch_ / cv for cv, with_torch_ in one_thread), n=4)
            fastest_cv, fastest_torch = map(
                min, zip(*interleaved(by, 2, repeats, time.perf_counter), strict=True)
            )
            each = 1e3 * statistics.median(cv for cv, _ in one_thread) / (shape[0] * shape[1])
            print(
                f"{size_px:4d} px  {name:20s}{shape[0]:3d} × {shape[1]}  {each:6.3f} ms  "
                f"{ratio:5.2f} ({low:.2f} to {high:.2f})  {fastest_torch / fastest_cv:5.2f}",
                flush=True,
            )


def interleaved(
    runs: Sequence[Callable[[], None]], threads: int, repeats: int, clock: Callable[[], float]
) -> list[list[float]]:
    """Seconds of each run in each repeat, with so many threads of torch."""
    torch.set_num_threads(threads)
    for run in runs:
        run()
    return [[seconds(run, clock) for run in runs] for _ in range(repeats)]


def seconds(run: Callable[[], object], clock: Callable[[], float]) -> float:
    """Of one call, by a clock."""
    start = clock()
    run()
    return clock() - start


def compare_on_one_core(batch: torch.Tensor, prob: float, repeats: int, own_only: bool) -> None:
    """Prints images/s of each, medians of interleaved repeats, and ratios of medians.

    Processor time: on one thread the wall time of an idle machine, and steadier on a busy one.
    """
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    size_px, num_images = batch.shape[-1], batch.shape[0] * batch.shape[1]
    images = list(np.ascontiguousarray(batch.flatten(0, 1).permute(0, 2, 3, 1).numpy()))

    def through(policy: Callable[[np.ndarray], np.ndarray]) -> torch.Tensor:
        augmented = torch.from_numpy(np.stack([policy(image) for image in images]))
        return augmented.permute(0, 3, 1, 2).to(torch.float32).div_(255).contiguous()

    runs = own_policies(batch, prob)
    if not own_only:
        for name, stain in (("HEStain", "hestain"), ("HED", "scikit-image")):
            runs[f"albumentations, {name}"] = partial(through, albumentations_policy(size_px, prob, stain))
    for run in runs.values():
        run()
    measured = [{name: seconds(run, time.process_time) for name, run in runs.items()} for _ in range(repeats)]
    medians = {name: statistics.median(repeat[name] for repeat in measured) / num_images for name in runs}
    print(f"{num_images} images of {size_px} px, each operation of pretraining with probability {prob}")
    print(f"one CPU core, CPU time, medians of {repeats} interleaved repeats")
    for name, per_image in medians.items():
        ratio = per_image / medians[PRETRAINING]
        print(f"{name:24s}{1 / per_image:6.0f} images/s  {1e3 * per_image:7.3f} ms/image  ratio {ratio:5.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size-px", type=int, default=256)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--scales", type=int, default=3, help="patches per sample")
    parser.add_argument("--prob", type=float, default=0.5)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--own", action="store_true", help="without albumentations")
    parser.add_argument("--executions", action="store_true", help="OpenCV against torch, 1 and 2 threads")
    options = parser.parse_args()
    if options.executions:
        compare_executions(options.repeats)
        return
    batch = tissue_like_batch(options.samples, options.scales, options.size_px)
    compare_on_one_core(batch, options.prob, options.repeats, options.own)


if __name__ == "__main__":
    main()
