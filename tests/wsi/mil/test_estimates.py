from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from histo_monai.data.tables.slide_classes import TEST, SlideClasses
from histo_monai.evaluation.metrics import auc
from histo_monai.wsi.mil.estimates import slide_estimates


def test_the_slide_auc_has_the_interval_of_patients() -> None:
    """Eight patients of three slides each: n counts patients, and the interval is theirs."""
    random = np.random.default_rng(0)
    patients = [f"P{number // 3}" for number in range(24)]
    rows = pd.DataFrame(
        {
            "slide_id": [f"s{number}" for number in range(24)],
            "patient_id": patients,
            "label": np.repeat(["normal", "tumor"], 12),
        }
    )
    tumor = np.clip(0.5 + 0.1 * (rows["label"] == "tumor") + 0.2 * random.normal(size=24), 0.01, 0.99)
    slides = SlideClasses(
        Path("slides.csv"),
        TEST,
        rows,
        ("normal", "tumor"),
        {"attention": np.column_stack([1 - tumor, tumor])},
    )
    estimate = slide_estimates(slides, seed=0)["attention"]["slide_auc"]
    assert estimate.n == 8
    assert estimate == pytest.approx(auc(np.repeat([0, 1], 12), tumor, groups=patients))
    assert estimate.low != pytest.approx(auc(np.repeat([0, 1], 12), tumor).low)
