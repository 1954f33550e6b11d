"""Checks of the JSON beside a model, before anything is built from it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from histo_monai.models.settings import COLOR, FIELD, FIELD_TIMES
from histo_monai.slides.annotations.content import is_plain
from histo_monai.utils.errors import InputError

COPIED_KEYS = ("method", "head", "architecture", "mpps", "encoder", "source", "corpus")
"""Keys of an encoder's description that task models copy."""


def check_encoder(description: Mapping[str, Any], heads: Collection[str], path: Path) -> None:
    """Refuse a description of anything but an encoder to fine-tune.

    Args:
        heads: names of the known heads.
        path: of the model, for the message.

    Raises:
        InputError: names file, key, value and expected value.
    """
    if description.get("kind") != "encoder" or description.get("head") not in list(heads):
        raise InputError(f"{path}: not an encoder to fine-tune. Fix: run the stage pretrain again.")
    _check(description, {**dict.fromkeys(COPIED_KEYS, _ANYTHING), "mpps": _MPPS, "patch_px": _SIDE}, path)
    _check_architecture(description, path)


def check_task_model(description: Mapping[str, Any], heads: Collection[str], path: Path) -> None:
    """Refuse a description of anything but a fine-tuned model or student.

    Args:
        heads: names of the known heads.
        path: of the model, for the message.

    Raises:
        InputError: names file, key, value and expected value.
    """
    if description.get("kind") == "encoder":
        raise InputError(
            f"{path}: an encoder, not a fine-tuned model. Fix: name model.safetensors of a fine-tuned model or student."
        )
    if description.get("kind") != "task model" or description.get("head") not in list(heads):
        raise InputError(f"{path}: not a fine-tuned model. Fix: run the stage finetune again.")
    keys = {**dict.fromkeys(COPIED_KEYS, _ANYTHING), "classes": _CLASSES, "patch_px": _SIDE, "mpp": _MPP}
    _check(description, keys, path)
    _check_architecture(description, path)


_Rule = tuple[str, Callable[[Any], bool]]


def predicted_px(description: Mapping[str, Any]) -> int:
    """Side of the square that a model predicts, px: of its input, or of the middle if it reads a field around."""
    side: int = description["patch_px"]
    return side // description["encoder"].get("field", 1)


def _check_architecture(description: Mapping[str, Any], path: Path) -> None:
    about = description["encoder"]
    if not isinstance(about, dict):
        about = {}
    optional: dict[str, Any] = {
        "stages": None,
        "earlier_stages": [],
        "side": None,
        "arguments": None,
        "field": 1,
    }
    _check({**optional, **about}, _ENCODER, path, "encoder.")


def _check(description: Mapping[str, Any], rules: Mapping[str, _Rule], path: Path, section: str = "") -> None:
    for key, (expected, holds) in rules.items():
        if key not in description or not holds(description[key]):
            given = repr(description[key])[:80] if key in description else "nothing"
            raise InputError(
                f"{path.with_suffix('.json')}: {section}{key} is {given}, expected {expected}. "
                "Fix: run the stage that makes it again."
            )


def _is_positive(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < math.inf


def _is_color(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 3:
        return False
    return all(type(part) in (int, float) and math.isfinite(part) for part in value)


def _are_weights(value: Any) -> bool:
    if value is None:
        return True
    if not isinstance(value, dict) or set(value) != {"sha256", "license"}:
        return False
    return isinstance(value["sha256"], str) and isinstance(value["license"], str | None)


def _are_arguments(value: Any) -> bool:
    if value is None:
        return True
    if not isinstance(value, dict):
        return False
    return all(
        key.isidentifier() and isinstance(inner, int | float | str | None) and _is_finite(inner)
        for key, inner in value.items()
    )


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _are_earlier_stages(value: Any) -> bool:
    if not isinstance(value, list) or not all(
        type(number) is int and (number > 0 or number in (COLOR, FIELD)) for number in value
    ):
        return False
    return all(low < high for low, high in itertools.pairwise(value))


def _are_mpps(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(map(_is_positive, value))


def _are_classes(value: Any) -> bool:
    if value is None:
        return True
    if not isinstance(value, list) or not all(
        isinstance(name, str) and name.strip() and is_plain(name) for name in value
    ):
        return False
    return len(value) > 0 and len(set(value)) == len(value)


_ANYTHING: _Rule = ("something", lambda value: True)
_MPPS: _Rule = ("a list of positive numbers, µm per pixel", _are_mpps)
_MPP: _Rule = ("a positive number, µm per pixel, or null", lambda value: value is None or _is_positive(value))
_SIDE: _Rule = (
    "a whole number of pixels, at least 1",
    lambda value: type(value) is int and 0 < value < 2**16,
)
_CLASSES: _Rule = (
    "distinct class names of one line each, or null for a score",
    _are_classes,
)
_ENCODER: dict[str, _Rule] = {
    "name": ("the name of an architecture", lambda value: isinstance(value, str) and 0 < len(value) < 200),
    "img_px": ("a side in px, 32 to 2048", lambda value: type(value) is int and 32 <= value <= 2048),
    "num_features": (
        "a number of features, at least 1",
        lambda value: type(value) is int and 0 < value < 2**20,
    ),
    "stages": (
        "a number of stages, at least 1, or null for full depth",
        lambda value: value is None or (type(value) is int and value > 0),
    ),
    "earlier_stages": (
        f"rising numbers of stages, at least 1, {COLOR} for color or {FIELD} for the field",
        _are_earlier_stages,
    ),
    "field": (f"1 or {FIELD_TIMES}, sides of a patch", lambda value: value in (1, FIELD_TIMES)),
    "side": (
        "an input side in px, 32 to 2048, or null for the side of the patches",
        lambda value: value is None or (type(value) is int and 32 <= value <= 2048),
    ),
    "arguments": ("arguments of timm by name (number, text, true, false or null), or null", _are_arguments),
    "mean": ("three numbers", _is_color),
    "std": ("three positive numbers", lambda value: _is_color(value) and min(value) > 0),
    "weights": ("sha256 and license of the initial weights' file, or null", _are_weights),
}
