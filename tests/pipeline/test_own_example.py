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

from histo_monai.pipeline.cli import main
from histo_monai.slides import open_slide, tissue_mask
from tests.pipeline.conftest import Shell
from tests.pipeline.test_own_default import CALLS

FILES = {
    "stomach.tif": "stomach-metaplasia.tif",
    "skin.svs": "cmu-1-small-region.svs",
    "lymph-node.tif": "lymph-node.tif",
}
OUTLINED = {"stomach": ("stomach.tif", None), "skin": ("skin.svs", None), "node": ("lymph-node.tif", 0.25)}
CLASSES = ("dense", "pale")
AFTER_CHECK = CALLS[2:]


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
@pytest.mark.usefixtures("small_forests")
def test_the_example_runs_from_an_empty_folder_to_maps_of_both_classes(
    root: Path, real_slides: Path, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's commands up to `dvc repro check`; the stages that `dvc repro` would run, in this process."""
    slides, home = (tmp_path / name for name in ("slides", "home"))
    for folder in (slides, home / "qupath"):
        folder.mkdir(parents=True)
    for name, file in FILES.items():
        shutil.copy(real_slides / file, slides / name)
    for name, (file, mpp) in OUTLINED.items():
        (home / f"qupath/{name}.geojson").write_text(json.dumps(_outlines(slides / file, mpp)))
    script = _example(root).replace("/slides/", f"{slides}/").replace("~/", f"{home}/")
    first, change_folder, rest = script.partition("cd myslides\n")
    rest, last, _ = rest.partition("dvc repro  ")
    assert "init myslides --dataset own" in first
    assert change_folder
    assert last
    shell(f"set -e\n{first}".replace("histo-monai ", "python -m histo_monai "), tmp_path)
    project = tmp_path / "myslides"
    monkeypatch.chdir(project)
    _make_cheaper(project / "params.yaml")
    shell(f"set -e\n{rest}", project)
    assert "Ready to train" in Path("data/check/index.html").read_text()
    patches = pd.read_csv("data/index/patches.csv")
    assert set(patches["label"]) == set(CLASSES)
    assert patches.groupby("slide_id")["split"].unique().map(list).to_dict() == {
        **{"stomach": ["train"], "skin": ["train"], "node": ["test"]},
    }
    monkeypatch.setenv("HISTO_MONAI_DEVICE", "cpu")
    for call in AFTER_CHECK:
        assert main(call) == 0, call
    maps = Path("data/heatmaps/pretrained-0-supervised-0")
    for slide_id in OUTLINED:
        scores = pd.read_csv(maps / f"scores/{slide_id}.csv")
        probabilities = scores[[f"student:{label}" for label in CLASSES]].to_numpy()
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-4)
        for label in CLASSES:
            assert (maps / f"student/{slide_id}.{label}.tif").is_file()
    report = Path("data/comparison/report.md").read_text()
    assert "accuracy of the most frequent label" in report
    assert "alpha 1" in report.splitlines()[0]


def _make_cheaper(path: Path) -> None:
    """Fewer cells, patches and pixels than the page's project has."""
    tree = yaml.safe_load(path.read_text())
    tree["encoder"]["side"] = 32
    tree["corpora"]["own"] |= {"num_train": 12, "num_validation": 4}
    tree["labels"]["own"]["unlabeled"] = 24
    tree["heatmap"]["own"]["stride_um"] = 256.0
    path.write_text(yaml.safe_dump(tree))
