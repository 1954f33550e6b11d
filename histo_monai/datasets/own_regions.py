"""Regions that a pathologist outlined and classified -> labeled patches of their slides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.datasets.processes import map_over_processes
from histo_monai.datasets.region_squares import Squares
from histo_monai.datasets.tables import first_five
from histo_monai.slides import choose_level, open_slide
from histo_monai.slides.annotations import Point, Region, read_annotations

ANNOTATIONS = "annotations"
_SUFFIXES = (".geojson", ".xml")
_IGNORED = "*"


@dataclass(frozen=True)
class RegionPlacement:
    """Where the patches of a region may lie: squares side by side, inside the slide.

    Attributes:
        patch_px: Side of a patch.
        mpp: Its resolution, µm/px.
        min_fraction: Least part of its field that is inside the region, 0..1.
        num_per_region: Most patches of one region.
    """

    patch_px: int
    mpp: float
    min_fraction: float
    num_per_region: int


@dataclass(frozen=True)
class _Claim:
    """A classified region, or the field around a classified point: its key in ids, and its name in messages."""

    key: str
    name: str
    region: Region


@dataclass(frozen=True)
class _Survey:
    """What the annotations of one slide give; `problem` where they cannot be used.

    Attributes:
        squares: Key, label and center (y, x) of each patch.
        barren: Names of what gives none.
        num_unclassified: Regions and points without a class.
        num_ignored: Those with a class that QuPath ignores.
        problem: One line.
    """

    squares: Sequence[tuple[str, str, float, float]] = ()
    barren: Sequence[str] = ()
    num_unclassified: int = 0
    num_ignored: int = 0
    problem: str = ""


def annotation_files(root: Path) -> dict[str, Path]:
    """`annotations/<slide_id>.geojson` or `.xml` below a folder, by slide_id; none where there is no such folder.

    Raises:
        ValueError: there is another file, or two of one slide.
    """
    found: dict[str, Path] = {}
    for path in sorted((root / ANNOTATIONS).glob("*")):
        if path.name.startswith("."):
            continue
        if path.suffix.lower() not in _SUFFIXES or not path.is_file():
            raise ValueError(
                f"{path}: expected files <slide_id>.geojson or <slide_id>.xml; move it elsewhere"
            )
        if path.stem in found:
            raise ValueError(
                f"{path}: a second file for slide {path.stem!r}, beside {found[path.stem].name}; keep one"
            )
        found[path.stem] = path
    return found


def region_patches(
    root: Path, slides: pd.DataFrame, placement: RegionPlacement, processes: int
) -> tuple[pd.DataFrame, list[str]]:
    """Labeled squares of every classified region and around every classified point.

    Which squares a region gives is `Squares.centers_in`. A point gives the square around it. Regions and points without
    a class, or with one that ends in "*", which QuPath ignores, give none.

    Args:
        root: the folder that holds `annotations`.
        slides: `slide_id`, `path`, `patient_id`, `mpp` (missing where the file knows), `split`.
        placement: see `RegionPlacement`.
        processes: slides looked at at the same time.

    Returns:
        Columns of `tables.PATCH_COLUMNS` (those that something is known of), and what was left out, a line each.

    Raises:
        ValueError: a file is none of annotations, its slide is not in slides.csv or cannot be opened, no region lies on
            it, or two regions of different classes overlap in a square; names file and region.
    """
    files = annotation_files(root)
    rows = slides.set_index("slide_id", drop=False)
    for slide_id, path in files.items():
        if slide_id not in rows.index:
            raise ValueError(f"{path}: slide {slide_id!r} is not in {root / 'slides.csv'}")
    of = rows.loc[list(files)]
    mpps = [None if np.isnan(mpp) else float(mpp) for mpp in of["mpp"]]
    jobs = ([Path(path) for path in of["path"]], mpps, list(files.values()))
    work = partial(_survey, placement=placement)
    surveys = list(map_over_processes(work, *jobs, processes=processes, title="annotations", unit="slide"))
    problems = [survey.problem for survey in surveys if survey.problem]
    if problems:
        more = f"; and {len(problems) - 1} more files" if len(problems) > 1 else ""
        raise ValueError(f"{problems[0]}{more}")
    parts = [_rows(slide_id, survey) for slide_id, survey in zip(files, surveys, strict=True)]
    table = pd.concat(parts, ignore_index=True)
    slide = of.loc[table["slide_id"]].set_axis(table.index)
    table = table.assign(
        path=slide["path"].map(str),
        patient_id=slide["patient_id"],
        split=slide["split"],
        slide_mpp=slide["mpp"],
        mpp=placement.mpp,
        side_px=placement.patch_px,
    )
    return table, _warnings(list(files.values()), surveys, placement)


def _rows(slide_id: str, survey: _Survey) -> pd.DataFrame:
    table = pd.DataFrame(survey.squares, columns=["key", "label", "y", "x"])
    ids = [f"{slide_id}-{key}-y{y:.0f}-x{x:.0f}" for key, _, y, x in survey.squares]
    return table.drop(columns="key").assign(patch_id=ids, slide_id=slide_id)


def _warnings(files: Sequence[Path], surveys: Sequence[_Survey], placement: RegionPlacement) -> list[str]:
    lines = []
    for why, nums in (
        ("have no class yet", [survey.num_unclassified for survey in surveys]),
        ('have a class that ends in "*", which QuPath ignores', [survey.num_ignored for survey in surveys]),
    ):
        told = [f"{num} in {path.name}" for path, num in zip(files, nums, strict=True) if num]
        if told:
            lines.append(
                f"{files[0].parent}: {sum(nums)} regions or points {why} and are left out: {first_five(told)}"
            )
    field = f"a patch of {placement.patch_px} px at {placement.mpp:g} µm/px, {placement.min_fraction:g} of it inside"
    for path, survey in zip(files, surveys, strict=True):
        if survey.barren:
            lines.append(f"{path}: no room on the slide for {field}: {first_five(survey.barren)}")
    return lines


def _survey(path: Path, mpp: float | None, annotation: Path, placement: RegionPlacement) -> _Survey:
    try:
        regions, points = read_annotations(annotation)
    except ValueError as error:
        return _Survey(problem=str(error))
    try:
        with open_slide(path, mpp) as slide:
            size_yx, level_mpps = slide.size_yx, slide.level_mpps
        choose_level(level_mpps, placement.mpp)
        side_px = placement.patch_px * placement.mpp / level_mpps[0]
        squares = Squares(side_px, size_yx, placement.min_fraction)
        return _take(_claims(regions, points, side_px), squares, placement.num_per_region)
    except (ValueError, OSError) as error:
        return _Survey(problem=f"{annotation}: {error}")


def _claims(regions: Sequence[Region], points: Sequence[Point], side_px: float) -> list[_Claim]:
    corners = np.array([(-0.5, -0.5), (-0.5, 0.5), (0.5, 0.5), (0.5, -0.5)]) * side_px
    fields = [Region(point.yx + corners, label=point.label) for point in points]
    return [
        _Claim(f"{kind}{number:05d}", _name(f"{kind} {number}", one), one)
        for kind, some in (("region", regions), ("point", fields))
        for number, one in enumerate(some, start=1)
    ]


def _name(what: str, region: Region) -> str:
    y, x = (region.exterior_yx.min(axis=0) + region.exterior_yx.max(axis=0)) / 2
    named = f" {region.name!r}" if region.name else ""
    return f"{what}{named} ({region.label}, around y {y:.0f}, x {x:.0f})"


def _take(claims: Sequence[_Claim], squares: Squares, num: int) -> _Survey:
    """Squares of all classified regions of a slide."""
    given = [claim for claim in claims if claim.region.label and not claim.region.label.endswith(_IGNORED)]
    num_unclassified = sum(not claim.region.label for claim in claims)
    lows = np.array([claim.region.exterior_yx.min(axis=0) for claim in given]).reshape(-1, 2)
    highs = np.array([claim.region.exterior_yx.max(axis=0) for claim in given]).reshape(-1, 2)
    if given and not ((lows < squares.size_yx) & (highs > 0)).all(axis=1).any():
        height, width = squares.size_yx
        raise ValueError(f"nothing of it lies on the slide ({width} × {height} px); is it of another slide?")
    found: list[tuple[str, str, float, float]] = []
    barren: list[str] = []
    for claim in given:
        centers = squares.centers_in(claim.region, num)
        if not len(centers):
            barren.append(claim.name)
        for center in centers:
            near = (np.abs(lows + highs - 2 * center) < highs - lows + squares.side_px).all(axis=1)
            _check_one_class(claim, [given[other] for other in np.flatnonzero(near)], center, squares)
        found += [(claim.key, claim.region.label, y, x) for y, x in centers.round(2).tolist()]
    return _Survey(found, barren, num_unclassified, len(claims) - len(given) - num_unclassified)


def _check_one_class(
    claim: _Claim, others: Sequence[_Claim], center: NDArray[np.float64], squares: Squares
) -> None:
    for other in others:
        if other.region.label == claim.region.label:
            continue
        share = squares.share(center, claim.region, other.region)
        if share > 0 and share >= squares.min_fraction:
            raise ValueError(
                f"{claim.name} and {other.name} overlap in the patch around y {center[0]:.0f}, x {center[1]:.0f}; "
                "cut one out of the other, or give them one class"
            )
