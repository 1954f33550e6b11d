"""Regions of own slides inside regions of other classes: refused, ignored, or the innermost counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.hostile.case import ACCEPTED, REFUSED, Case
from tests.hostile.kinds.outlines import GOOD, INDEX, INNER, RING, collection, feature, file, polygon, squares
from tests.hostile.project import all_of, params_with
from tests.hostile.trees import asap

KIND = "regions in regions"


def _nested(label: str = "roi", *more: tuple[str, Any]) -> str:
    drawn = [(label, RING), ("tumor", INNER), *more]
    return collection(*[feature(polygon(ring), name) for name, ring in drawn])


def _drawn(content: str, **params: Any) -> Callable[[], None]:
    named = {f"labels__own__regions__{name}": value for name, value in params.items()}
    return all_of(file("s0.geojson", content), params_with(**named))


RIM = [[y + 1, x + 1] for y, x in RING]
TIGER = asap(
    ("_0", "roi", ((96, 96), (96, 288), (288, 288), (288, 96))),
    ("_1", "tumor", ((128, 128), (128, 224), (224, 224), (224, 128))),
)

NESTED: dict[str, tuple[Callable[[], object], int | None, tuple[str, ...], dict[str, int]]] = {
    "a region of interest around a class": (
        _drawn(_nested()), REFUSED, ("(roi,", "(tumor,", "ignored_classes", "innermost", '"*"'), {},
    ),
    "TIGER's region of interest": (
        file("s0.xml", TIGER), REFUSED, ("(roi,", "(tumor,", "labels.own.regions.ignored_classes"), {},
    ),
    "a region of interest that is ignored": (
        _drawn(_nested(), ignored_classes=["roi"]), ACCEPTED, ("1 regions or points have a class",), {"tumor": 8},
    ),
    "a region of interest with a star": (_drawn(_nested("roi*")), ACCEPTED, ("have a class",), {"tumor": 8}),
    "the innermost region wins": (
        _drawn(_nested("normal"), overlaps="innermost", num_per_region=99), ACCEPTED, (), {"tumor": 9, "normal": 27},
    ),
    "three in one another": (
        _drawn(_nested("normal", ("normal", [[128, 128], [160, 128], [160, 160], [128, 160], [128, 128]])),
               overlaps="innermost", num_per_region=99), ACCEPTED, (), {"tumor": 8, "normal": 28},
    ),
    "one outline with two classes": (
        _drawn(collection(feature(polygon()), feature(polygon(), "normal")), overlaps="innermost"),
        REFUSED, ("region 1", "region 2"), {},
    ),
    "one outline drawn twice with two classes": (
        _drawn(collection(feature(polygon()), feature(polygon(RIM), "normal")), overlaps="innermost"),
        REFUSED, ("region 1", "region 2"), {},
    ),
    "a class to ignore that nobody has": (
        _drawn(collection(feature(polygon())), ignored_classes=["ROI"]), ACCEPTED, (), {"tumor": 8},
    ),
    "all classes are to be ignored": (
        _drawn(GOOD, ignored_classes=["tumor"]), ACCEPTED, ("have a class that is ignored",), {},
    ),
    "names of two classes that are long": (
        _drawn(collection(feature(polygon(), "r" * 5000), feature(polygon(INNER)))), REFUSED, ("s0.geojson",), {},
    ),
    "a thousand specks in a region": (
        _drawn(collection(feature(polygon()), *[
            feature(polygon([[x, y], [x + 3, y], [x, y + 3], [x, y]]), "normal")
            for x in range(100, 280, 6) for y in range(100, 280, 6)]), overlaps="innermost"),
        ACCEPTED, ("no place",), {"tumor": 8},
    ),
    "a class to ignore twice": (
        _drawn(GOOD, ignored_classes=["a", "a"]), REFUSED, ("labels.own.regions.ignored_classes",), {},
    ),
    "a class to ignore that is no list": (
        _drawn(GOOD, ignored_classes="roi"), REFUSED, ("labels.own.regions.ignored_classes",), {},
    ),
    "a class to ignore that is a number": (
        _drawn(GOOD, ignored_classes=[3]), REFUSED, ("labels.own.regions.ignored_classes",), {},
    ),
    "overlaps as nobody knows them": (
        _drawn(GOOD, overlaps="outermost"), REFUSED, ("labels.own.regions.overlaps", "innermost"), {},
    ),
    "overlaps of nothing": (_drawn(GOOD, overlaps=None), REFUSED, ("labels.own.regions.overlaps",), {}),
}  # fmt: skip


def cases() -> Iterator[Case]:
    """All of the kind."""
    for name, (prepare, code, mentions, counts) in NESTED.items():
        yield Case(KIND, name, INDEX, prepare, mentions, code=code, check=squares(**counts))
