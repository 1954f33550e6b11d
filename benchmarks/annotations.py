"""Annotated regions by the hundred thousand: seconds, and whether ten times as many take ten times as long.

    python benchmarks/annotations.py                        # 1,000, 10,000 and 100,000 regions, CPU seconds of one core
    python benchmarks/annotations.py --num 500 5000         # other sizes

Regions of 16 points and two classes lie side by side on one slide, in three sizes: "patch" has room for one or two
patches each, "cell" is smaller than a patch, "cell in patch" are cells of one class upon regions of the other, so that
each patch has to be checked against cells. Steps are those of the index and of the reference of a map: the GeoJSON is
written and read, squares are found and checked for two classes, the regions are filled in one mask. "ASAP" gives every
region a hole, writes both as XML, reads them, and finds whose each hole is.

The last lines give the growth per step: the time of the largest over that of the next smaller, divided by the ratio of
their numbers. 1 is linear; comparing each with each would give 10. It ends with an error where a step of a second or
more grows by more than 3.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from histo_monai.data.readers.own.regions import RegionPlacement, take_squares
from histo_monai.slides.annotations import (
    Region,
    asap_regions,
    rasterize_regions,
    read_asap_xml,
    read_geojson,
    write_asap_xml,
    write_geojson,
)

PATCH_PX = 64
KINDS = {"patch": (38.0, 90.0), "cell": (12.0, 30.0), "cell in patch": (6.0, 90.0)}
"""Radius of regions, and how far they are apart, level-0 pixels."""


def discs(num: int, radius: float, pitch: float, label: str = "", hole: float = 0) -> list[Region]:
    """Wrinkled discs on a grid, of two classes in turn where no label is given."""
    rng = np.random.default_rng(0)
    columns = int(np.ceil(np.sqrt(num)))
    turn = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    circle = np.stack([np.sin(turn), np.cos(turn)], axis=1)
    regions = []
    for number in range(num):
        center = (np.array(divmod(number, columns)) + 0.5) * pitch
        points = center + radius * rng.uniform(0.9, 1.1, (16, 1)) * circle
        holes = (center + hole * radius * circle,) if hole else ()
        regions.append(Region(points, holes, label or ("Tumor", "Stroma")[number % 2]))
    return regions


def steps(kind: str, num: int, folder: Path) -> dict[str, float]:
    """CPU seconds of every step."""
    radius, pitch = KINDS[kind]
    side = int(np.ceil(np.sqrt(num)) * pitch)
    regions = discs(num, radius, pitch, "Tumor" if kind == "cell in patch" else "")
    if kind == "cell in patch":
        regions = regions[: num // 2] + discs(num - num // 2, 40.0, pitch, "Stroma")
    path = folder / "slide.geojson"
    seconds = {}

    def timed(name: str, step: Callable[[], object]) -> None:
        start = time.process_time()
        step()
        seconds[name] = time.process_time() - start

    timed("write GeoJSON", lambda: write_geojson(path, regions))
    timed("read GeoJSON", lambda: read_geojson(path))
    placement = RegionPlacement(PATCH_PX, 1.0, 0.9, 64)
    timed("squares", lambda: take_squares(regions, [], 1.0, (side, side), placement))
    timed("mask", lambda: rasterize_regions(regions, downsample=32, shape=(side // 32 + 1, side // 32 + 1)))
    if kind == "patch":
        xml = folder / "slide.xml"
        with_holes = discs(num, radius, pitch, hole=0.3)
        timed("write ASAP", lambda: write_asap_xml(xml, with_holes))
        timed("read ASAP", lambda: asap_regions(read_asap_xml(xml)))
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--num", type=int, nargs="+", default=[1000, 10_000, 100_000])
    nums = sorted(parser.parse_args().num)
    grows = []
    with tempfile.TemporaryDirectory() as name:
        for kind in KINDS:
            tables = [steps(kind, num, Path(name)) for num in nums]
            for num, table in zip(nums, tables, strict=True):
                times = ", ".join(f"{step} {value:.2f}" for step, value in table.items())
                print(f"{kind}, {num:,} regions: {times} s; together {sum(table.values()):.1f} s", flush=True)
            if len(nums) < 2:
                continue
            growth = {
                step: tables[-1][step] / max(tables[-2][step], 1e-3) / (nums[-1] / nums[-2])
                for step in tables[-1]
            }
            print(f"{kind}, growth: " + ", ".join(f"{step} {value:.2f}" for step, value in growth.items()))
            grows += [f"{kind}, {step}" for step in growth if growth[step] > 3 and tables[-1][step] > 1]
    if grows:
        print(f"more than linear: {'; '.join(grows)}", file=sys.stderr)
    return bool(grows)


if __name__ == "__main__":
    sys.exit(main())
