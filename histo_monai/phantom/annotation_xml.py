"""Lesion outlines as ASAP XML, the format of Camelyon16's annotations."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

from histo_monai.phantom.lesions import Lesion, Polygon


def write_asap_xml(path: Path, lesions: Sequence[Lesion], mpp: float) -> None:
    """Writes exteriors to the group Tumor and holes to Exclusion, in level-0 pixels (x right, y down)."""
    lines = ['<?xml version="1.0"?>', "<ASAP_Annotations>", "\t<Annotations>"]
    number = 0
    for lesion in lesions:
        for group, outline in (("Tumor", lesion.exterior), *(("Exclusion", hole) for hole in lesion.holes)):
            lines += _annotation(number, group, outline / mpp)
            number += 1
    lines += ["\t</Annotations>", "\t<AnnotationGroups>"]
    for group, color in (("Tumor", "#F4FA58"), ("Exclusion", "#64FE2E")):
        lines += [
            f'\t\t<Group Name="{group}" PartOfGroup="None" Color="{color}">',
            "\t\t\t<Attributes />",
            "\t\t</Group>",
        ]
    lines += ["\t</AnnotationGroups>", "</ASAP_Annotations>", ""]
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_text("\n".join(lines), encoding="utf-8")
    os.replace(part, path)


def _annotation(number: int, group: str, outline_px: Polygon) -> list[str]:
    name = quoteattr(f"Annotation {number}")
    lines = [
        f'\t\t<Annotation Name={name} Type="Polygon" PartOfGroup="{group}" Color="#F4FA58">',
        "\t\t\t<Coordinates>",
    ]
    for order, (y, x) in enumerate(outline_px):
        lines.append(f'\t\t\t\t<Coordinate Order="{order}" X="{x:.4f}" Y="{y:.4f}" />')
    return [*lines, "\t\t\t</Coordinates>", "\t\t</Annotation>"]
