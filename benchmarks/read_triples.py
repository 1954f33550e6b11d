"""How fast RSP triples are read on one core: OpenSlide, bare cuCIM and `read_many`, same boxes, same run.

    python benchmarks/read_triples.py [--slide slide.tif] [--mpps 0.25 0.5 1.0]

A triple is three concentric 256-px patches at three resolutions around a random center. The ways take turns on
one core, each in a process of its own, on new centers each round, and are compared by the medians of their CPU
time (what they take on an idle machine once the file is in memory; a busy machine does not change it):

* OpenSlide: one `read_region` a patch from the level that holds it, converted to an RGB array.
* bare cuCIM: one `read_region` a patch for the same pixels of the same level, as an array; no cache, its default.
* read_many, cold: all patches of the round in one call, centered to a fraction of a pixel, as
  (n, 3, 3, 256, 256), in a process that has read nothing yet.
* read_many: the same in a process that goes on from round to round, as a loader worker does.
* by OpenSlide: the same of the file under a name that cuCIM does not read (.ptif).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import openslide
import tifffile
from numpy.typing import NDArray

from histo_monai.slides import Box, Slide, choose_level, concentric_boxes, open_slide
from histo_monai.utils.process.memory import keep_freed_memory

SIDE_PX = 256
Region = tuple[tuple[int, int], int, int]
SETTINGS: dict[str, Any] = {}  # A worker process's own.


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slide", type=Path, help="a slide; without it, a synthetic one is made")
    parser.add_argument("--mpp", type=float, help="µm per level-0 pixel, where the slide does not say")
    parser.add_argument(
        "--mpps", type=float, nargs=3, help="default: the slide's own, twice and four times that"
    )
    parser.add_argument("--triples", type=int, default=64, help="triples a round")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.slide or make_slide(Path(folder) / "synthetic.tif")
        with open_slide(path, mpp=arguments.mpp) as slide:
            mpps = arguments.mpps or [slide.mpp * factor for factor in (1, 2, 4)]
            times = measure(path, arguments.mpp, mpps, arguments.triples, arguments.rounds)
            report(slide, times, mpps)


def measure(
    path: Path, mpp: float | None, mpps: list[float], num_triples: int, num_rounds: int
) -> dict[str, list[float]]:
    """Seconds per patch of each way, one number a round."""
    rng = np.random.default_rng(0)
    with open_slide(path, mpp=mpp) as slide:
        rounds = [random_boxes(rng, slide, mpps, num_triples) for _ in range(num_rounds + 1)]
        native = [[native_region(slide, box) for box in boxes] for boxes in rounds]
    times: dict[str, list[float]] = {name: [] for name in (*WAYS, COLD)}
    context = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        other = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "slide.ptif"
        other.symlink_to(path.resolve())
        paths = {name: other if name == BY_OPENSLIDE else path for name in WAYS}
        workers = {
            name: stack.enter_context(context.Pool(1, pin_to_one_core, (paths[name], mpp))) for name in WAYS
        }
        for number, boxes in enumerate(rounds):
            names = [*WAYS, COLD]
            first = number % len(names)
            for name in names[first:] + names[:first]:  # Each way goes first equally often.
                what = native[number] if name in (OPENSLIDE, BARE) else boxes
                if name == COLD:
                    with context.Pool(1, pin_to_one_core, (path, mpp)) as fresh:
                        seconds = fresh.apply(WAYS[READ_MANY], (what,))
                else:
                    seconds = workers[name].apply(WAYS[name], (what,))
                if number > 0:  # The first round warms the page cache.
                    times[name].append(seconds / len(boxes))
    return times


def random_boxes(rng: np.random.Generator, slide: Slide, mpps: list[float], num_triples: int) -> list[Box]:
    margin = SIDE_PX * max(mpps) / slide.mpp / 2
    if min(slide.size_yx) <= 2 * margin:
        raise SystemExit(f"{slide.path}: too small for {SIDE_PX} px at {max(mpps):g} µm/px")
    centers = rng.uniform(margin, np.array(slide.size_yx) - margin, (num_triples, 2))
    return [box for y, x in centers for box in concentric_boxes((float(y), float(x)), SIDE_PX, mpps)]


def pin_to_one_core(path: Path, mpp: float | None) -> None:
    keep_freed_memory()
    SETTINGS.update(path=path, mpp=mpp)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    cv2.setNumThreads(1)


@functools.cache
def opened(way: str) -> Any:
    """The slide, opened once a process, outside the timing."""
    if way == OPENSLIDE:
        return openslide.OpenSlide(str(SETTINGS["path"]))
    if way in (READ_MANY, BY_OPENSLIDE):
        return open_slide(SETTINGS["path"], mpp=SETTINGS["mpp"])
    from cucim.clara import CuImage

    return CuImage(str(SETTINGS["path"]))


def time_openslide(regions: list[Region]) -> float:
    slide = opened(OPENSLIDE)
    start = time.process_time()
    for xy, level, size in regions:
        np.asarray(slide.read_region(xy, level, (size, size)).convert("RGB"))
    return time.process_time() - start


def time_bare_cucim(regions: list[Region]) -> float:
    slide = opened(BARE)
    start = time.process_time()
    for xy, level, size in regions:
        np.asarray(slide.read_region(xy, (size, size), level))
    return time.process_time() - start


def time_read_many(boxes: list[Box], way: str = "read_many") -> float:
    slide = opened(way)
    start = time.process_time()
    slide.read_many(boxes).reshape(-1, 3, 3, SIDE_PX, SIDE_PX)
    return time.process_time() - start


OPENSLIDE, BARE, READ_MANY, COLD = "OpenSlide", "bare cuCIM", "read_many", "read_many, cold"
BY_OPENSLIDE = "by OpenSlide"
WAYS: dict[str, Callable[[Any], float]] = {
    OPENSLIDE: time_openslide,
    BARE: time_bare_cucim,
    READ_MANY: time_read_many,
    BY_OPENSLIDE: functools.partial(time_read_many, way=BY_OPENSLIDE),
}


def native_region(slide: Slide, box: Box) -> Region:
    """Level-0 corner (x, y), level and side of the pixels that hold a box, as OpenSlide takes them."""
    level = choose_level(slide.level_mpps, box.mpp)
    half = box.side_um / slide.mpp / 2
    corner_xy = (int(box.center_yx[1] - half), int(box.center_yx[0] - half))
    return corner_xy, level, round(box.side_um / slide.level_mpps[level])


def report(slide: Slide, times: dict[str, list[float]], mpps: list[float]) -> None:
    median = {name: statistics.median(values) for name, values in times.items()}
    print(f"{slide.path.name}: {slide.size_yx[1]} x {slide.size_yx[0]} px, levels at", end=" ")
    print(", ".join(f"{mpp:.4g}" for mpp in slide.level_mpps), "µm/px; patches of", SIDE_PX, "px at", end=" ")
    print(", ".join(f"{mpp:.4g}" for mpp in mpps), "µm/px; one core")
    for name, values in times.items():
        spread = f"{min(values) * 1e3:.2f}-{max(values) * 1e3:.2f}"
        print(f"  {name:<15} {median[name] * 1e3:6.2f} ms a patch ({spread})")
    for name in (COLD, READ_MANY, BY_OPENSLIDE):
        print(f"  {name:<15} {median[OPENSLIDE] / median[name]:6.2f} x OpenSlide (target 4),", end=" ")
        print(f"{median[BARE] / median[name]:.2f} x bare cuCIM (target 0.9)")


def make_slide(path: Path, side_px: int = 8192) -> Path:
    """A pyramid 1/2/4/8 of blurred noise in JPEG tiles, as a scanner writes it, 0.25 µm/px."""
    rng = np.random.default_rng(0)
    noise = cv2.GaussianBlur(rng.integers(0, 255, (side_px, side_px, 3), np.uint8), (0, 0), 2)
    return write_jpeg(path, cv2.normalize(noise, None, 60, 255, cv2.NORM_MINMAX))  # type: ignore[call-overload]


def write_jpeg(path: Path, image: NDArray[np.uint8], times: int = 1) -> Path:
    """A pyramid 1/2/4/8 of JPEG tiles, 0.25 µm/px, of an image that stands side by side and below each other.

    Args:
        path: of the file.
        image: Shape (H, W, 3); sides are multiples of 2048 where `times` is more than 1, so that tiles repeat.
        times: how often, along each side; each tile is encoded once.
    """
    with tifffile.TiffWriter(path) as writer:
        for level in range(4):
            writer.write(
                _jpeg_tiles(image, times),
                shape=(image.shape[0] * times, image.shape[1] * times, 3),
                dtype=np.uint8,
                tile=(256, 256),
                photometric="rgb",
                compression="deflate",
                subfiletype=1 if level else 0,
                resolution=(40_000, 40_000),
                resolutionunit="CENTIMETER",
                metadata=None,
                extratags=[(530, "H", 2, (2, 2), True)],
            )
            image = cv2.resize(image, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA).astype(np.uint8)
    # tifffile encodes JPEG with an optional package only; the tiles are JPEG already, so the tags are set.
    with tifffile.TiffFile(path, mode="r+") as file:
        for page in file.pages:
            page.tags["Compression"].overwrite(7)
            page.tags["PhotometricInterpretation"].overwrite(6)
    return path


def _jpeg_tiles(image: NDArray[np.uint8], times: int) -> Iterator[bytes]:
    rows = []
    for y in range(0, image.shape[0], 256):
        row = []
        for x in range(0, image.shape[1], 256):
            tile = cv2.cvtColor(image[y : y + 256, x : x + 256], cv2.COLOR_RGB2BGR)
            row.append(cv2.imencode(".jpg", tile, [cv2.IMWRITE_JPEG_QUALITY, 85])[1].tobytes())
        rows.append(row * times)
    for row in rows * times:
        yield from row


if __name__ == "__main__":
    main()
