"""How often the fingerprint finds a copy, and how often it takes two different images for one: docs/audit.md.

    python benchmarks/near_copies.py --real ../shared/real --phantom data/phantom

Real images: the two sets of patches, squares side by side of the real slides, and their thumbnails. Simulated ones: the
patches of Kather and BreastPathQ and the slides of Camelyon16, as far as they are below --phantom. Every image is
different from all others of its set, but for the lung patches, whose sources are known and left out of the alarms.
"""

from __future__ import annotations

import argparse
import io
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.leakage.fingerprints import MAX_DISTANCE, class_words, distances, fingerprint
from histo_monai.data.leakage.second_look import MIN_CORRELATION, fine_correlation, thumbnail
from histo_monai.data.leakage.views import tissue_of
from histo_monai.slides import Box, open_slide
from histo_monai.utils.files.trees import list_images, read_bytes, read_image

Image = NDArray[np.uint8]
DISTANCES = (16, 20, 24, 28, 32, 36)
NUM_COPIED = 300
NUM_SIMULATED = 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", type=Path, required=True)
    parser.add_argument("--phantom", type=Path, required=True)
    arguments = parser.parse_args()
    alarms, hits = [], []
    for name, images, sources in _sets(arguments.real, arguments.phantom):
        alarms.append({"set": name, **_false_alarms(images, sources)})
        hits.append({"set": name, **_hits(images)})
    print(f"Pairs of different images within a distance, of all pairs; MAX_DISTANCE is {MAX_DISTANCE}")
    print(pd.DataFrame(alarms).to_string(index=False))
    print(f"Copies found at {MAX_DISTANCE}, %, of those that have a fingerprint")
    print(pd.DataFrame(hits).to_string(index=False, float_format="%.1f"))
    print(f"Second look at slides: fine structure in common, of copies at least {MIN_CORRELATION}")
    print(_second_looks(arguments.real, arguments.phantom).to_string(index=False, float_format="%.2f"))


def _second_looks(real: Path, phantom: Path) -> pd.DataFrame:
    """Of copies that the fingerprint finds, and of different slides whose fingerprints differ by up to 44 bits."""
    simulated = [(path, None) for path in sorted((phantom / "camelyon16").rglob("*.tif"))[:NUM_SIMULATED]]
    paths = (*_with_mpp(real), *simulated)
    slides = [thumbnail(path, np.nan if mpp is None else mpp) for path, mpp in paths]
    slides = [slide for slide in slides if fingerprint(tissue_of(slide))]
    rows = []
    for name, copy in _copies().items():
        copies = [(slide, np.ascontiguousarray(copy(slide))) for slide in slides]
        found = [pair for pair in copies if _bits_apart(*map(tissue_of, pair)) <= MAX_DISTANCE]
        correlations = [fine_correlation(*pair) for pair in found]
        rows.append({"pairs": name, "found": len(found), "least": min(correlations, default=np.nan)})
        rows[-1]["accepted"] = int(sum(one >= MIN_CORRELATION for one in correlations))
    near = [pair for pair in itertools.combinations(slides, 2) if _bits_apart(*map(tissue_of, pair)) <= 44]
    correlations = [fine_correlation(*pair) for pair in near]
    accepted = int(sum(one >= MIN_CORRELATION for one in correlations))
    return pd.DataFrame(
        [
            *rows,
            {
                "pairs": "different",
                "found": len(near),
                "most": max(correlations, default=np.nan),
                "accepted": accepted,
            },
        ]
    )


def _bits_apart(one: Image, other: Image) -> int:
    """144 where one has no fingerprint."""
    prints = [fingerprint(image) for image in (one, other)]
    return int(distances(class_words(prints[:1])[0], class_words(prints[1:]))[0, 0]) if all(prints) else 144


def _sets(real: Path, phantom: Path) -> Iterator[tuple[str, list[Image], NDArray[np.object_]]]:
    for name in ("lung-patches", "idc-patches"):
        archive = real / f"{name}.zip"
        names = list_images(archive)
        images = [read_image(archive / one) for one in names]
        sources = np.array(names, dtype=object)
        if name == "lung-patches":
            text = next(one for one in ("lung-patches/patches.csv", "patches.csv") if _has(archive / one))
            table = pd.read_csv(io.BytesIO(read_bytes(archive / text)), dtype=str)
            of = dict(zip(table["path"].map(lambda one: Path(one).name), table["patient_id"], strict=True))
            sources = np.array([of[Path(one).name] for one in names], dtype=object)
        yield name, images, sources
    squares = [image for path in _slides(real) for image in _squares(path)]
    yield "squares of real slides", squares, np.arange(len(squares)).astype(object)
    yield "real slides", *_alone([_thumbnail(path, mpp) for path, mpp in _with_mpp(real)])
    for dataset in ("kather", "breastpathq"):
        if (phantom / dataset).is_dir():
            yield (
                f"simulated {dataset}",
                *_alone([read_image(phantom / dataset / one) for one in list_images(phantom / dataset)]),
            )
    slides = sorted((phantom / "camelyon16").rglob("*.tif"))
    if slides:
        yield "simulated slides", *_alone([_thumbnail(path, None) for path in slides])


def _has(path: Path) -> bool:
    try:
        return bool(read_bytes(path))
    except ValueError:
        return False


def _alone(images: list[Image]) -> tuple[list[Image], NDArray[np.object_]]:
    return images, np.arange(len(images)).astype(object)


def _with_mpp(real: Path) -> list[tuple[Path, float | None]]:
    missing = {"tcga-cr-7395-01a-01-ts1.svs": 1.0, "lymph-node.tif": 0.25}
    paths = sorted((*real.glob("*.svs"), *real.glob("*.tif")))
    return [(path, missing.get(path.name)) for path in paths]


def _slides(real: Path) -> list[Path]:
    return [path for path, mpp in _with_mpp(real) if mpp is None and path.stem != "asap-example"]


def _thumbnail(path: Path, mpp: float | None) -> Image:
    with open_slide(path, mpp) as slide:
        return tissue_of(slide.thumbnail(max(32.0, slide.mpp)))


def _squares(path: Path) -> list[Image]:
    with open_slide(path) as slide:
        side = 224 * 0.5 / slide.mpp
        places = (np.arange(side / 2, length - side / 2, side) for length in slide.size_yx)
        boxes = [
            Box((float(y), float(x)), 224, 0.5) for y, x in np.stack(np.meshgrid(*places), -1).reshape(-1, 2)
        ]
        return list(slide.read_many(boxes).transpose(0, 2, 3, 1))


def _false_alarms(images: list[Image], sources: NDArray[np.object_]) -> dict[str, float]:
    prints = [fingerprint(image) for image in images]
    has_print = np.array([bool(one) for one in prints])
    some = [one for one in prints if one]
    distance = distances(class_words(some)[0], class_words(some))
    numbers = pd.factorize(sources[has_print])[0]
    upper = np.triu(np.ones_like(distance, dtype=bool), 1)
    other, same = (
        distance[upper & (numbers[:, None] != numbers)],
        distance[upper & (numbers[:, None] == numbers)],
    )
    result: dict[str, float] = {
        "images": len(images),
        "with fingerprint": int(has_print.sum()),
        "pairs": len(other),
    }
    result |= {f"<={most}": int((other <= most).sum()) for most in DISTANCES}
    result["least"] = int(other.min()) if len(other) else -1
    result["same source, %"] = round(100 * float((same <= MAX_DISTANCE).mean()), 1) if len(same) else np.nan
    return result


def _hits(images: list[Image]) -> dict[str, float]:
    chosen = np.random.default_rng(0).permutation(len(images))[:NUM_COPIED]
    some = [images[i] for i in chosen if fingerprint(images[i])]
    return {name: _percent_found(some, copy) for name, copy in _copies().items()}


def _percent_found(images: list[Image], copy: Callable[[Image], Image]) -> float:
    return 100 * float(np.mean([_bits_apart(image, copy(image)) <= MAX_DISTANCE for image in images]))


def _copies() -> Mapping[str, Callable[[Image], Image]]:
    return {
        "jpeg 75": lambda image: _jpeg(image, 75),
        "jpeg 30": lambda image: _jpeg(image, 30),
        "half": lambda image: cv2.resize(image, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA),
        "x 1.5": lambda image: cv2.resize(image, None, fx=1.5, fy=1.5, interpolation=cv2.INTER_CUBIC),
        "mirror": lambda image: image[:, ::-1],
        "turned 90": lambda image: np.rot90(image),
        "darker": lambda image: (image * 0.85).astype(np.uint8),
        "blurred": lambda image: cv2.GaussianBlur(image, (0, 0), 1.0),
        "all": lambda image: _jpeg(
            cv2.resize(np.rot90(image)[:, ::-1], None, fx=0.6, fy=0.6, interpolation=cv2.INTER_AREA), 60
        ),
        "shift 1 %": lambda image: _cut(image, 0.01),
        "shift 2 %": lambda image: _cut(image, 0.02),
        "shift 4 %": lambda image: _cut(image, 0.04),
        "shift 8 %": lambda image: _cut(image, 0.08),
        "turned 5": lambda image: _turned(image, 5),
    }


def _jpeg(image: Image, quality: int) -> Image:
    written = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
    return np.asarray(cv2.imdecode(written, cv2.IMREAD_COLOR), np.uint8)[..., ::-1]


def _cut(image: Image, fraction: float) -> Image:
    """The part that an image has in common with itself shifted by a fraction of its sides."""
    height, width = image.shape[:2]
    return image[round(fraction * height) :, round(fraction * width) :]


def _turned(image: Image, degrees: float) -> Image:
    height, width = image.shape[:2]
    matrix = cv2.getRotationMatrix2D((width / 2, height / 2), degrees, 1)
    return np.asarray(cv2.warpAffine(image, matrix, (width, height), borderMode=cv2.BORDER_REFLECT), np.uint8)


if __name__ == "__main__":
    main()
