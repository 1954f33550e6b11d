"""Properties of a QuPath feature: class, name, measurements and color."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from histo_monai.slides.annotations.content import is_plain, is_text, short
from histo_monai.slides.annotations.regions import DERIVED, Color, chosen_color
from histo_monai.utils.errors import InputError


def read_properties(where: str, feature: Mapping[str, Any]) -> dict[str, Any]:
    """Label, name, measurements and color of a feature, as keyword arguments of `Region`.

    Raises:
        InputError: The class is not one line of text, the name no text, or the measurements no table.
    """
    properties = feature.get("properties")
    if not isinstance(properties, dict):
        properties = {}
    classification = _object(where, properties.get("classification"))
    label = _label(where, classification)
    return {
        "label": label,
        "name": _name(where, properties.get("name")),
        "measurements": _measurements(where, properties.get("measurements")),
        "color": chosen_color(label, _color(classification)),
    }


def _object(where: str, classification: Any) -> Any:
    """A classification as an object; GeoPandas writes QuPath's object as a text that holds JSON."""
    if not isinstance(classification, str) or not classification.lstrip().startswith("{"):
        return classification
    try:
        return json.loads(classification, parse_int=float)
    except (ValueError, RecursionError):
        raise InputError(
            f"{where}: its class {short(classification)} is an object as text, but not JSON. "
            'Fix: write {"name": "Tumor"}.'
        ) from None


def _color(classification: Any) -> Color | None:
    """Color of a class from [r, g, b], or QuPath 0.3's packed number; None if missing."""
    if not isinstance(classification, dict):
        return None
    given, packed = classification.get("color"), classification.get("colorRGB")
    if isinstance(packed, float) and packed.is_integer() and abs(packed) < 2**32:
        given = [float(int(packed) >> shift & 255) for shift in (16, 8, 0)]
    if not isinstance(given, list) or len(given) != 3 or not all(map(_is_byte, given)):
        return None
    red, green, blue = (int(value) for value in given)
    return red, green, blue


def _label(where: str, classification: Any) -> str:
    names: list[str] = []
    while classification is not None:
        parent = None
        if isinstance(classification, dict):
            parent = classification.get("parentClass") or None  # QuPath 0.3 and older
            several = classification.get("names")
            classification = classification.get("name") or ""
            if isinstance(several, list) and all(isinstance(name, str) for name in several):
                classification = DERIVED.join(filter(str.strip, several))
        if not isinstance(classification, str):
            raise InputError(f'{where}: its classification has no name. Fix: write {{"name": "Tumor"}}.')
        if not is_plain(classification.strip()):
            raise InputError(
                f"{where}: its class {short(classification)} has control characters. Fix: give it another name."
            )
        names.append(classification.strip())
        classification = parent
    return DERIVED.join(filter(None, names[::-1]))


def _name(where: str, given: Any) -> str:
    if given is None:
        return ""
    if not isinstance(given, str) or not is_text(given):
        raise InputError(f"{where}: its name is {short(given)}. Fix: write text.")
    return given


def _measurements(where: str, given: Any) -> dict[str, float]:
    """Finite measurements of {name: value}, or of the older [{"name": name, "value": value}]."""
    if isinstance(given, list) and all(
        isinstance(one, dict) and isinstance(one.get("name"), str) for one in given
    ):
        given = {one["name"]: one.get("value") for one in given}
    if given is None:
        return {}
    if not isinstance(given, dict) or not all(map(is_text, given)):
        raise InputError(f'{where}: its measurements are no table. Fix: write {{"name": value}}.')
    return {name: float(value) for name, value in given.items() if _is_number(value)}


def _is_number(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _is_byte(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer() and 0 <= value <= 255
