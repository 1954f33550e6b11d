from __future__ import annotations

from typing import Any

import pytest

from histo_monai.models.card import INTENDED, license_limits, model_facts

ABOUT: dict[str, Any] = {
    "kind": "task model",
    "method": "rsp",
    "source": "raw",
    "corpus": "own",
    "dataset": "own",
    "encoder": {"name": "resnet18", "num_features": 512, "weights": None},
    "classes": ["normal", "tumor"],
    "patch_px": 64,
    "mpp": 0.5,
    "alpha": 0.1,
    "metrics": {"num_labeled": 60, "validation_accuracy": 0.75},
    "params": {"stain_jitter": 0.1},
    "sha256": "ab12",
}


def test_a_card_states_resolution_labels_stains_and_what_the_model_is_not_for() -> None:
    facts = model_facts(ABOUT)
    assert facts["takes"] == "RGB patches of 64 px at 0.5 µm/px, 0..1"
    assert facts["labels"] == "60 of own (alpha 0.1)"
    taught = ABOUT | {"metrics": {"num_labeled": 60, "num_diagnoses": 36}}
    assert model_facts(taught)["labels"] == "60 of own (alpha 0.1), and 36 diagnoses of slides"
    assert facts["stains used in training"] == "stains of its training slides; training jitter up to 0.1"
    assert facts["validation"] == "accuracy 0.75"
    assert facts["meant for"] == INTENDED


@pytest.mark.parametrize(
    ("method", "expected"),
    [("rsp", "rsp on slides of own (raw)"), ("random", "none"), ("pretrained", "none")],
)
def test_the_card_of_an_encoder_without_training_slides_states_it(method: str, expected: str) -> None:
    assert model_facts(ABOUT | {"method": method})["pretraining"] == expected


@pytest.mark.parametrize("params", [{"stain_jitter": 0.0}, {}])
def test_a_model_of_simulated_slides_has_no_training_stain(params: dict[str, float]) -> None:
    facts = model_facts(ABOUT | {"source": "phantom", "params": params})
    assert facts["stains used in training"] == "simulated H&E, no real slide"


def test_training_stains_of_published_weights_are_unknown() -> None:
    weights = {"sha256": "cd34", "license": "CC-BY-4.0"}
    encoder = {**ABOUT["encoder"], "weights": weights}
    facts = model_facts(ABOUT | {"source": "phantom", "encoder": encoder, "params": {}})
    assert facts["stains used in training"] == (
        "simulated H&E, no real slide, and stains of the initial weights' training"
    )
    assert "license CC-BY-4.0" in facts["network"]


@pytest.mark.parametrize(
    ("license", "limit"),
    [
        ("CC BY-NC-ND 4.0", "no commercial use"),
        ("Owkin non-commercial license", "no commercial use"),
        ("Lunit public license, non-commercial", "no commercial use"),
        ("Apache-2.0; terms of access: research only", "no clinical"),
        ("GPL-3.0", "under the GPL"),
        ("Apache-2.0", ""),
        ("CC BY 4.0", ""),
        (None, ""),
    ],
)
def test_a_license_that_restricts_use_is_explained(license: str | None, limit: str) -> None:
    assert limit in license_limits(license)
    assert bool(license_limits(license)) == bool(limit)
