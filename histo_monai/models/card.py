"""Facts of a model card, from the description beside its weights."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from histo_monai.models.description import predicted_px
from histo_monai.models.settings import COLOR, FIELD

INTENDED = (
    "Research on slides like the training slides. Other scanners, stains and laboratories are untested unless the "
    "results name them. Not for decisions about patients."
)
_UNTRAINED = ("random", "pretrained")
"""Methods without training."""

CARD_SHAPE = {
    "kind": str,
    "method": str,
    "source": str,
    "corpus": str,
    "patch_px": int,
    "encoder": {
        "name": str,
        "num_features": int,
        "stages?": (int, None),
        "side?": (int, None),
        "weights?": ({"sha256": str, "license": (str, None)}, None),
    },
    "classes?": ([str], None),
    "mpp?": (float, None),
    "mpps?": [float],
    "metrics?": ({str: object}, None),
    "params?": ({"stain_jitter?": (float, None)}, None),
}
"""Shape (`utils.storage.shapes`) of the argument of `model_facts`."""


def pretraining(about: Mapping[str, Any]) -> str:
    """Pretraining of a model's encoder, in words; `about` as in `model_facts`."""
    if about["method"] in _UNTRAINED:
        return "none"
    return f"{about['method']} on slides of {about['corpus']} ({about['source']})"


def license_limits(license: str | None) -> str:
    """Restrictions of a weights license, in words; empty if its text names no known restriction."""
    text = (license or "").lower()
    limits = []
    if re.search(r"\bnc\b|non-?\s?commercial", text):
        limits.append("no commercial use of the weights or of models made from them")
    if "research only" in text:
        limits.append("research only, no clinical or other deployed use")
    if "gpl" in text:
        limits.append("GPL: distribute models made from the weights under the GPL alone")
    return "; ".join(limits)


def model_facts(about: Mapping[str, Any]) -> dict[str, str]:
    """Question -> answer, in the order of a model card.

    Args:
        about: the JSON of an encoder, a fine-tuned model or a student.
    """
    encoder, metrics, classes = about["encoder"], about.get("metrics") or {}, about.get("classes")
    gives = f"probabilities of {', '.join(classes)}" if classes else "a score, 0..1"
    if about["kind"] == "encoder":
        gives = f"{encoder['num_features']} features"
        resolution = ", ".join(f"{mpp:g}" for mpp in about["mpps"])
    else:
        resolution = f"{about['mpp']:g}" if about.get("mpp") else "several"
    weights = encoder.get("weights")
    start = "random weights"
    if weights:
        start = f"weights of SHA-256 {weights['sha256']}, license {weights['license'] or 'not stated'}"
        limits = license_limits(weights["license"])
        start += f" ({limits})" if limits else ""
    stages = encoder.get("stages")
    part = f"stem and first {stages} stage{'s' * (stages > 1)} of " if stages else ""
    if earlier := encoder.get("earlier_stages"):
        names = [{COLOR: "color", FIELD: "the field"}.get(stage, f"stage {stage}") for stage in earlier]
        part = f"features also of {', '.join(names)}; {part}"
    side = encoder.get("side")
    resized = f", resized to {side} px" if side and side != about["patch_px"] else ""
    if (middle := predicted_px(about)) < about["patch_px"]:
        resized += f"; predicts the middle of {middle} px"
    facts = {
        "gives": gives,
        "takes": f"RGB patches of {about['patch_px']} px at {resolution} µm/px, 0..1{resized}",
        "network": f"{part}{encoder['name']}, initialized from {start}",
        "pretraining": pretraining(about),
    }
    if about["kind"] != "encoder":
        num_labels = metrics.get("num_labels", metrics.get("num_labeled", "—"))
        facts["labels"] = f"{num_labels} of {about.get('dataset')} (alpha {about.get('alpha')})"
        if diagnoses := metrics.get("num_diagnoses"):
            facts["labels"] += f", and {diagnoses} diagnoses of slides"
    stains = (
        "simulated H&E, no real slide" if about["source"] == "phantom" else "stains of its training slides"
    )
    stains += ", and stains of the initial weights' training" if weights else ""
    jitter = (about.get("params") or {}).get("stain_jitter")
    shifted = f"; training jitter up to {jitter:g}" if jitter else ""
    return {
        **facts,
        "stains used in training": f"{stains}{shifted}",
        "validation": ", ".join(
            f"{key.removeprefix('validation_')} {value}"
            for key, value in metrics.items()
            if key.startswith("validation")
        )
        or "—",
        "meant for": INTENDED,
        "SHA-256 of the weights": str(about.get("sha256", "—")),
    }
