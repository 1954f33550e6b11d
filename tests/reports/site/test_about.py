"""Cards of models on the report page."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

from histo_monai.models.encoders.published import PUBLISHED
from histo_monai.reports.site.about import cards_section
from histo_monai.reports.site.blocks import render


def _text(encoder: dict[str, Any]) -> str:
    about = {
        **{"kind": "task model", "method": "pretrained", "source": "raw", "corpus": "own", "dataset": "own"},
        **{"patch_px": 128, "mpp": 0.5, "classes": ["a", "b"], "encoder": encoder},
    }
    page = render("title", "subtitle", [cards_section({"student": about})], [])
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page)))


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("uni2-h", "CC BY-NC-ND 4.0 (no commercial use"),
        ("phikon", "Owkin non-commercial license (no commercial use"),
        ("lunit-dino-s16", "non-commercial (no commercial use"),
        ("prov-gigapath", "research only (research only"),
        ("midnight-12k", "license MIT pretraining"),
    ],
)
def test_the_page_states_the_limits_of_the_license_of_the_initial_weights(name: str, limit: str) -> None:
    row = PUBLISHED[name]
    weights = {"sha256": "5f1a", "license": row.license}
    encoder = {"name": name, "num_features": row.num_features, "side": row.side_px, "weights": weights}
    text = _text(encoder)
    assert limit in text
    assert "patches of 128 px at 0.5 µm/px, 0..1, resized to 224 px" in text


def test_the_page_of_the_default_encoder_names_no_license_and_no_resizing() -> None:
    text = _text({"name": "resnet18", "num_features": 512, "weights": None})
    assert "license" not in text
    assert "resized" not in text
