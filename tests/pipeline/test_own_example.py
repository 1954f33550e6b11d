"""The example of docs/own_slides.md, word for word, with real slides and outlines as QuPath exports them."""

from __future__ import annotations

import json
import re
import shutil
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from histo_monai.slides import open_slide, tissue_mask
from tests.pipeline.conftest import Shell, copy_tracked

FILES = {
    "stomach.tif": "stomach-metaplasia.tif",
    "skin.svs": "cmu-1-small-region.svs",
    "lymph-node.tif": "lymph-node.tif",
}
OUTLINED = {"stomach": ("stomach.tif", None), "skin": ("skin.svs", None), "node": ("lymph-node.tif", 0.25)}
CLASSES = ("dense", "pale")


def _example(root: Path) -> str:
    """The lines of the page's first block."""
    page = (root / "docs/own_slides.md").read_text()
    block = re.search(r"## From nothing to a map\n(?:[^ \n][^\n]*\n|\n)+?((?:    [^\n]*\n)+)", page)
    assert block is not None
    return textwrap.dedent(block[1])


def _outlines(path: Path, mpp: float | None) -> dict[str, Any]:
    """The darkest and the lightest squares of tissue of a slide, 256 µm each."""
    with open_slide(path, mpp) as slide:
        thumbnail = slide.thumbnail(16.0)
        scale = 16.0 / slide.mpp
    mask = tissue_mask(thumbnail)
    places = [
        (float(thumbnail[y : y + 16, x : x + 16].mean()), y, x)
        for y in range(0, len(mask) - 16, 16)
        for x in range(0, mask.shape[1] - 16, 16)
        if mask[y : y + 16, x : x + 16].mean() > 0.9
    ]
    places.sort()
    few = min(4, len(places) // 2)
    features = []
    for label, some in zip(CLASSES, (places[:few], places[-few:]), strict=True):
        for _, y, x in some:
            corners = [(0, 0), (16, 0), (16, 16), (0, 16), (0, 0)]
            ring = [[(x + dx) * scale, (y + dy) * scale] for dx, dy in corners]
            features.append(
                {
                    "type": "Feature",
                    "geometry": {"type": "Polygon", "coordinates": [ring]},
                    "properties": {"objectType": "annotation", "classification": {"name": label}},
                }
            )
    return {"type": "FeatureCollection", "features": features}


@pytest.mark.slow
def test_the_example_runs_from_an_empty_folder_to_maps_of_both_classes(
    root: Path, real_slides: Path, shell: Shell, tmp_path: Path
) -> None:
    clone, slides, home = (tmp_path / name for name in ("clone", "slides", "home"))
    for folder in (clone, slides, home / "qupath"):
        folder.mkdir(parents=True)
    copy_tracked(root, clone, shell)
    for name, file in FILES.items():
        shutil.copy(real_slides / file, slides / name)
    for name, (file, mpp) in OUTLINED.items():
        (home / f"qupath/{name}.geojson").write_text(json.dumps(_outlines(slides / file, mpp)))
    params = yaml.safe_load((clone / "params.yaml").read_text())
    assert params["pretraining_methods"] == ["rsp_moco"]
    params["semisupervised_methods"] = ["spatial_neighbors"]
    params["corpora"]["own"] |= {"num_train": 48, "num_validation": 12}
    params["pretrain"]["rsp_moco"] |= {"epochs": 1, "queue_size": 32}
    params["heatmap"]["own"]["stride_um"] = 128.0  # a quarter of the cells
    for stage in ("finetune", "consistency"):
        params[stage]["recipe"] |= {"epochs": 1, "steps_per_epoch": 2, "batch_size": 4}
    params["consistency"]["methods"]["spatial_neighbors"]["epochs"] = 1
    (clone / "params.yaml").write_text(yaml.safe_dump(params))
    shell("git init -q && git add -A && git commit -qm start", clone)
    script = _example(root).replace("/slides/", f"{slides}/").replace("~/", f"{home}/")
    shell(f"set -e\n{script}", clone)
    assert "Ready to train" in (clone / "data/check/index.html").read_text()
    patches = pd.read_csv(clone / "data/index/patches.csv")
    assert set(patches["label"]) == set(CLASSES)
    assert patches.groupby("slide_id")["split"].unique().map(list).to_dict() == {
        **{"stomach": ["train"], "skin": ["train"], "node": ["test"]},
    }
    maps = clone / "data/heatmaps/rsp_moco-0-spatial_neighbors-0"
    for slide_id in OUTLINED:
        scores = pd.read_csv(maps / f"scores/{slide_id}.csv")
        shares = scores[[f"student:{label}" for label in CLASSES]].to_numpy()
        np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-4)
        for label in CLASSES:
            assert (maps / f"student/{slide_id}.{label}.tif").is_file()
    report = (clone / "data/comparison/report.md").read_text()
    assert "accuracy of the most frequent label" in report
    assert "alpha 1" in report.splitlines()[0]
