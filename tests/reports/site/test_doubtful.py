"""The report's section on doubtful labels."""

from __future__ import annotations

import numpy as np
import pandas as pd

from histo_monai.evaluation.doubtful import doubtful_table
from histo_monai.reports.site.blocks import Lines, Picture, Pictures, Table, render
from histo_monai.reports.site.doubtful import NUM_ROWS, caption, doubtful_section, strip


def _table(num: int) -> pd.DataFrame:
    random = np.random.default_rng(0)
    labeled = pd.DataFrame(
        {
            "patch_id": [f"p{i}" for i in range(num)],
            "slide_id": "<b>s</b>",
            "patient_id": "",
            "label": random.choice(["gland", "stroma"], num),
        }
    )
    neighbors = np.stack([(np.arange(num) + step) % num for step in (1, 2)], axis=1)
    return doubtful_table(labeled, random.dirichlet([1, 1], num), ["gland", "stroma"], neighbors)


def test_the_first_labels_are_rows_with_what_contradicts_them() -> None:
    table = _table(NUM_ROWS + 10)
    section = doubtful_section(table, [Picture("doubtful/0.png", "a patch")])
    (shown,) = [block for block in section.blocks if isinstance(block, Table)]
    assert [row[0].text for row in shown.rows] == [str(rank) for rank in range(1, NUM_ROWS + 1)]
    assert all(len(row) == len(shown.head) for row in shown.rows)
    first = dict(zip(shown.head, shown.rows[0], strict=False))
    assert first["doubt"].value == table["doubt"].iloc[0]
    assert first["label"].text == table["label"].iloc[0]
    assert [block.pictures[0].path for block in section.blocks if isinstance(block, Pictures)] == [
        "doubtful/0.png"
    ]
    page = render("t", "s", [section], [])
    assert "<b>s</b>" not in page
    assert "&lt;b&gt;s&lt;/b&gt;" in page


def test_without_cross_validation_the_section_states_why_there_is_no_list() -> None:
    (block,) = doubtful_section(None, []).blocks
    assert isinstance(block, Lines)
    assert block.look == "missing"


def test_a_strip_shows_patches_side_by_side_unchanged() -> None:
    patches = np.random.default_rng(0).integers(0, 255, (3, 3, 8, 8), dtype=np.uint8)
    pixels = strip(patches)
    for number, patch in enumerate(patches):
        start = number * (8 + 4)
        assert (pixels[:, start : start + 8] == patch.transpose(1, 2, 0)).all()
    assert pixels.shape == (8, 3 * 8 + 2 * 4, 3)


def test_a_caption_names_label_likelier_label_and_those_of_the_neighbors() -> None:
    row = {"rank": 1, "label": "a", "other_label": "b", "label_probability": 0.1, "other_probability": 0.85}
    text = caption(row, ["b", "c"])
    assert all(part in text for part in ("a: probability 0.10", "b 0.85", "b, c"))
    assert "score 0.25, predicted 0.75" in caption({"rank": 2, "score": 0.25, "predicted_score": 0.75}, [])
