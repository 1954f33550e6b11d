"""Your own slides, five ways to begin: each in a project of `init --dataset own`, run by `dvc repro`, timed.

    python benchmarks/own_starts.py DIR [--starts pictures outlines ...]    # needs ../shared/real, which is only read

pictures: labeled pictures of three classes in a zip. outlines: regions of two classes, outlined on five slides.
slides: two classes of whole slides, and no labeled patch. both: outlines, and labeled squares in patches.csv. scores:
squares with a score. After `outlines` a second round with ten more labels, by `histo-monai dvc`: `features` encodes the
ten patches, and `heatmap` maps all slides again. With `--networks` networks are trained.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from real_patches import SLIDES, lay_out

from histo_monai.pipeline.commands.init import TRAIN
from histo_monai.slides import open_slide, tissue_mask

ROOT = Path(__file__).resolve().parent.parent
REAL = ROOT.parent / "shared" / "real"
STARTS = ("pictures", "outlines", "slides", "both", "scores")
SPLITS = {
    **dict.fromkeys(("skin", "head-and-neck", "stomach", "lymph-node"), "train"),
    "duodenum": "validation",
    **dict.fromkeys(("oesophagus", "breast"), "test"),
}
KNOWN = {
    **dict.fromkeys(("skin", "head-and-neck", "oesophagus"), "squamous"),
    **dict.fromkeys(("stomach", "duodenum", "breast"), "glandular"),
}
"""Epithelium of a slide; the lymph node has none."""
FIELD_UM, NUM_FIELDS, NUM_OUTLINED = 256.0, 8, 4
"""Side of a labeled square; of a slide so many of a class, and so many of these as outlines."""


def main() -> None:
    """Lay out and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=STARTS)
    parser.add_argument("--target", default="", help="a stage to end with, say check")
    parser.add_argument("--networks", action="store_true", help="train networks after the first result")
    arguments = parser.parse_args()
    for start in arguments.starts:
        place = arguments.folder / start
        if not place.exists():
            words = [sys.executable, "-m", "histo_monai", "init", str(place), "--dataset", "own"]
            subprocess.run(words, check=True)
            write_start(place, start)
        run(place, start, f"dvc repro {arguments.target}")
        if start == "outlines" and not arguments.target:
            label_ten_more(place)
            run(place, f"{start}, second round", "histo-monai dvc repro")
        if arguments.networks:
            run(place, f"{start}, networks", TRAIN)


def run(place: Path, title: str, command: str) -> None:
    """One command in a project; how long it and each of its stages took."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    starts = [("DVC", began)]
    with (
        (place / "log").open("a") as log,
        subprocess.Popen(
            command, shell=True, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process,
    ):
        for line in process.stdout or ():
            log.write(line)
            if running := re.match("Running stage '(.+)'", line):
                starts.append((running[1], time.perf_counter()))
    ended = time.perf_counter()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    end = "ended" if process.returncode == 0 else "FAILED"
    print(f"{title}: {end} after {ended - began:.0f} s, {used:.0f} s of processor")
    ends = [start for _, start in starts[1:]] + [ended]
    for (stage, start), stop in zip(starts, ends, strict=True):
        print(f"  {stop - start:6.1f} s {stage}", flush=True)


def write_start(place: Path, start: str) -> None:
    """data/raw/own of one start."""
    if start == "pictures":
        lay_out(place, "lung", 0, REAL)
        params = place / "params.yaml"
        # Pictures show no field.
        params.write_text(re.sub(r"(?m)^  field: 2", "  field: 1", params.read_text()))
        return
    own = place / "data/raw/own"
    (own / "annotations").mkdir(parents=True)
    slides = pd.DataFrame(SLIDES, columns=["slide_id", "path", "mpp", "split"])
    slides = slides.assign(
        path=[str(REAL / name) for name in slides["path"]], split=slides["slide_id"].map(SPLITS)
    )
    slides = slides.assign(patient_id=slides["slide_id"])
    if start == "slides":
        known = slides["slide_id"].map(KNOWN).fillna("")
        slides.assign(label=known).drop(columns="split").to_csv(own / "slides.csv", index=False)
        return
    slides.to_csv(own / "slides.csv", index=False)
    fields = pd.concat([_fields(str(slide), Path(path), str(mpp)) for slide, path, mpp in _known(slides)])
    if start in ("outlines", "both"):
        for slide_id, some in fields.groupby("slide_id"):
            regions = [_region(row) for _, row in some.iterrows() if row["rank"] < NUM_OUTLINED]
            (own / f"annotations/{slide_id}.geojson").write_text(
                json.dumps({"type": "FeatureCollection", "features": regions})
            )
    if start in ("both", "scores"):
        listed = fields[fields["rank"] >= NUM_OUTLINED] if start == "both" else fields
        answer = "label" if start == "both" else "score"
        listed.assign(mpp=1.0)[["slide_id", "y", "x", "mpp", answer]].to_csv(own / "patches.csv", index=False)


def label_ten_more(place: Path) -> None:
    """Ten squares of training slides that lie in no outline."""
    slides = pd.DataFrame(SLIDES, columns=["slide_id", "path", "mpp", "split"])
    slides = slides.assign(path=[str(REAL / name) for name in slides["path"]])
    slides = slides[slides["slide_id"].map(SPLITS) == "train"]
    fields = pd.concat([_fields(str(slide), Path(path), str(mpp)) for slide, path, mpp in _known(slides)])
    ten = fields[fields["rank"] >= NUM_OUTLINED].head(10).assign(mpp=1.0)
    ten[["slide_id", "y", "x", "mpp", "label"]].to_csv(place / "data/raw/own/patches.csv", index=False)


def _known(slides: pd.DataFrame) -> list[tuple[str, str, str]]:
    return list(slides[["slide_id", "path", "mpp"]].itertuples(index=False, name=None))


def _fields(slide_id: str, path: Path, mpp: str) -> pd.DataFrame:
    """Squares full of tissue: the darkest are `dense`, the lightest `pale`; `rank` 0 is the clearest of its class."""
    with open_slide(path, float(mpp) if mpp else None) as slide:
        thumbnail = slide.thumbnail(8.0)
        scale = 8.0 / slide.mpp
    side = round(FIELD_UM / 8.0)
    rows, columns = (size // side for size in thumbnail.shape[:2])
    cut = thumbnail[: rows * side, : columns * side].reshape(rows, side, columns, side, 3)
    tissue = tissue_mask(thumbnail)[: rows * side, : columns * side].reshape(rows, side, columns, side)
    light = cut.mean(axis=(1, 3, 4)) / 255
    full = np.argwhere(tissue.mean(axis=(1, 3)) > 0.9)
    order = full[np.argsort(light[tuple(full.T)])]
    few = min(NUM_FIELDS, len(order) // 3)
    parts = [(order[:few], "dense"), (order[::-1][:few], "pale")]
    return pd.DataFrame(
        [
            (
                slide_id,
                (y + 0.5) * side * scale,
                (x + 0.5) * side * scale,
                side * scale,
                label,
                rank,
                1 - light[y, x],
            )
            for cells, label in parts
            for rank, (y, x) in enumerate(cells)
        ],
        columns=["slide_id", "y", "x", "side", "label", "rank", "score"],
    ).round(3)


def _region(row: pd.Series) -> dict[str, Any]:
    """As QuPath writes a square annotation with a class."""
    half = row["side"] / 2
    corners = [(-half, -half), (half, -half), (half, half), (-half, half), (-half, -half)]
    ring = [[row["x"] + x, row["y"] + y] for x, y in corners]
    return {
        "type": "Feature",
        "geometry": {"type": "Polygon", "coordinates": [ring]},
        "properties": {"objectType": "annotation", "classification": {"name": row["label"]}},
    }


if __name__ == "__main__":
    main()
