"""The code of docs/monai.md, as it stands, on three real tissues."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from monai.bundle import ConfigParser

from histo_monai.models.start import EncoderStart
from histo_monai.slides import Box, concentric_boxes, open_slide
from histo_monai.utils.storage import file_sha256

SLIDES = {
    "a.tif": "duodenum-adenoma.tif",
    "b.tif": "oesophagus-eosinophilic.tif",
    "c.tif": "breast-lobular.tif",
}


def blocks(root: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (root / "docs/monai.md").read_text(), re.S)


@pytest.fixture
def slides(real_slides: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "slides").mkdir()
    for name, target in SLIDES.items():
        (tmp_path / "slides" / name).symlink_to(real_slides / target)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "slides"


@pytest.mark.slow
def test_the_page_pretrains_an_encoder_of_monais_parts_and_ours(root: Path, slides: Path) -> None:
    code, names = blocks(root, "python"), dict[str, Any]()
    assert len(code) == 6
    for block in code:  # that RSP learns on real slides is tested in test_real_slides.py
        exec(block, names)

    with open_slide(slides / "a.tif") as slide:
        center = 1400.0 + 224, 900.0 + 224  # level 1 is half of level 0
        assert np.array_equal(names["image"], slide.read(Box(center, 224, slide.level_mpps[1])))
        assert names["field"].shape == (3, 300, 400)
        whole = slide.thumbnail(16.0).transpose(2, 0, 1)
    assert names["overview"]["image"].shape == whole.shape
    # The last row and column reach beyond the slide, where a patch is white.
    assert np.array_equal(names["overview"]["image"][:, :-1, :-1], whole[:, :-1, :-1])

    places = names["tissue"]([str(slides / "b.tif")])
    triple = names["triples"](places, names["UnaugmentedViewd"]("image", 64))[5]["image"]
    with open_slide(slides / "b.tif") as slide:
        middle = places[5]["location"] + 64 * (2.0 / slide.mpp) / 2
        expected = slide.read_many(concentric_boxes(tuple(middle), 64, (0.5, 1.0, 2.0)))
    assert torch.equal((triple * 255).round().to(torch.uint8), torch.from_numpy(expected))

    rows = names["curves"].rows
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    trunk = names["rsp"].network.encoder.state_dict()
    norms = [value for name, value in trunk.items() if name.endswith("weight") and value.ndim == 1]
    assert norms
    assert all((norm != 1).any() for norm in norms)  # it trains: they are ones at first
    assert all(torch.equal(value, trunk[name]) for name, value in names["encoder"].state_dict().items())
    assert names["about"]["mpps"] == [0.5, 1.0, 2.0]
    saved = Path("encoder.safetensors")
    started = EncoderStart(weights=saved, sha256=file_sha256(saved)).build(
        64
    )  # as encoder.weights of params.yaml
    assert all(torch.equal(value, trunk[name]) for name, value in started.encoder.state_dict().items())


def test_the_bundle_of_the_page_serves_views(root: Path, slides: Path) -> None:
    (text,) = blocks(root, "yaml")
    parser = ConfigParser(yaml.safe_load(text))
    dataset = parser.get_parsed_content("dataset")
    sample = dataset[3]
    assert sample["image"].shape == (3, 128, 128)
    assert sample["image_weak"].shape == sample["image_strong"].shape == (3, 64, 64)
    with open_slide(slides / "a.tif") as slide:
        half = 128 / slide.mpp / 2
        center = tuple(float(value) + half for value in sample["image"].meta["location"])
        assert np.array_equal(sample["image"], slide.read(Box(center, 128, 1.0)))
