"""Outlined and classified regions -> labeled patches of their slides."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.readers.own.named_files import by_slide, list_files
from histo_monai.data.readers.own.nesting import without_inner
from histo_monai.data.readers.own.region_squares import Squares
from histo_monai.data.tables.manifests import first_five
from histo_monai.slides import choose_level, open_slide
from histo_monai.slides.annotations import Frame, LeftOut, Point, Region, left_out_in_words, read_annotations
from histo_monai.slides.annotations.boxes import BoxTree
from histo_monai.slides.annotations.content import short
from histo_monai.utils.errors import InputError
from histo_monai.utils.process.processes import map_over_processes

_LOG = logging.getLogger(__name__)

ANNOTATIONS = "annotations"
_SUFFIXES = (".geojson", ".xml")
_IGNORED = "*"
_PAIRS = 1024


@dataclass(frozen=True)
class RegionPlacement:
    """Placement of a region's patches: adjacent squares inside the slide.

    Attributes:
        patch_px: Side of a patch.
        mpp: Resolution of a patch, µm/px.
        min_fraction: Least fraction of a patch's field inside the region, 0..1.
        num_per_region: Most patches of one region.
        ignored_classes: Classes of regions and points without a patch.
        innermost: Whether to cut regions of another class out of the region around them; else refuse the overlap.
    """

    patch_px: int
    mpp: float
    min_fraction: float
    num_per_region: int
    ignored_classes: tuple[str, ...] = ()
    innermost: bool = False

    def ignores(self, label: str) -> bool:
        """Whether a class gives no patch: `ignored_classes` has it, or it ends in "*", QuPath's mark for ignored."""
        return label.endswith(_IGNORED) or label in self.ignored_classes


@dataclass(frozen=True)
class _Claim:
    """Classified region, or the field around a classified point; kind and number identify it, as in "region 3"."""

    kind: str
    number: int
    region: Region

    @property
    def key(self) -> str:
        """Text for ids."""
        return f"{self.kind}{self.number:05d}"

    @property
    def name(self) -> str:
        """Text for messages."""
        region = self.region
        y, x = (region.exterior_yx.min(axis=0) + region.exterior_yx.max(axis=0)) / 2
        named = f" {short(region.name)}" if region.name else ""
        return f"{self.kind} {self.number}{named} ({region.label[:60]}, around y {y:.0f}, x {x:.0f})"


@dataclass(frozen=True)
class RegionSurvey:
    """Patches from the annotations of one slide, or the problem.

    Attributes:
        squares: Key, label and center (y, x) of each patch.
        barren: Names of regions and points without a patch.
        num_unclassified: Number of regions and points without a class.
        num_ignored: Number of regions and points with an ignored class.
        problem: One line; empty for usable annotations.
        left_out: Skipped content of the file.
    """

    squares: Sequence[tuple[str, str, float, float]] = ()
    barren: Sequence[str] = ()
    num_unclassified: int = 0
    num_ignored: int = 0
    problem: str = ""
    left_out: Sequence[LeftOut] = ()


def annotation_files(root: Path) -> tuple[list[Path], list[LeftOut]]:
    """Paths of `annotations/*.geojson` and `.xml`, and the other files; both empty if the folder is missing.

    Raises:
        InputError: `annotations` is no folder, or cannot be read.
    """
    return list_files(root / ANNOTATIONS, _SUFFIXES)


def region_patches(
    root: Path, slides: pd.DataFrame, placement: RegionPlacement, processes: int
) -> tuple[pd.DataFrame, list[str]]:
    """Labeled squares of every classified region and around every classified point.

    `Squares.centers_in` places the squares of a region. A point gives the square around it. Regions and points without
    a class, or with an ignored class, give no square.

    Args:
        root: Folder that contains `annotations`.
        slides: `slide_id`, `path`, `patient_id`, `mpp` (missing if the file states it), `annotation_origin`, `split`.
        processes: Slides opened at the same time.

    Returns:
        Known columns of `data.tables.columns.PATCH_COLUMNS`, and one-line warnings of skipped content.

    Raises:
        InputError: A file is no annotation, its slide is not in slides.csv or cannot be opened, no region lies on the
            slide, or two regions of different classes overlap in a square. Names file and region, and logs the
            warnings.
    """
    paths, others = annotation_files(root)
    files = by_slide(paths, slides["slide_id"])
    of = slides.set_index("slide_id", drop=False).loc[list(files)]
    mpps = [None if np.isnan(mpp) else float(mpp) for mpp in of["mpp"]]
    jobs = ([Path(path) for path in of["path"]], mpps, list(files.values()), list(of["annotation_origin"]))
    work = partial(_survey, placement=placement)
    surveys = list(map_over_processes(work, *jobs, processes=processes, title="annotations", unit="slide"))
    warnings = [*map(str, others), *_warnings(list(files.values()), surveys, placement)]
    problems = [survey.problem for survey in surveys if survey.problem]
    if problems:
        for line in warnings:
            _LOG.warning("%s", line)
        more = f"; and {len(problems) - 1} more files" if len(problems) > 1 else ""
        raise InputError(f"{problems[0]}{more}")
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
    return table, warnings


def _rows(slide_id: str, survey: RegionSurvey) -> pd.DataFrame:
    table = pd.DataFrame(survey.squares, columns=["key", "label", "y", "x"])
    ids = [f"{slide_id}-{key}-y{y:.0f}-x{x:.0f}" for key, _, y, x in survey.squares]
    return table.drop(columns="key").assign(patch_id=ids, slide_id=slide_id)


def _warnings(
    files: Sequence[Path], surveys: Sequence[RegionSurvey], placement: RegionPlacement
) -> list[str]:
    lines = left_out_in_words([one for survey in surveys for one in survey.left_out])
    for why, nums in (
        ("have no class yet", [survey.num_unclassified for survey in surveys]),
        (
            'have a class that is ignored ("*" at its end, or labels.own.regions.ignored_classes)',
            [survey.num_ignored for survey in surveys],
        ),
    ):
        counts = [f"{num} in {path.name}" for path, num in zip(files, nums, strict=True) if num]
        if counts:
            lines.append(
                f"{files[0].parent}: {sum(nums)} regions or points {why} and are left out: {first_five(counts)}"
            )
    field = f"a patch of {placement.patch_px} px at {placement.mpp:g} µm/px, {placement.min_fraction:g} of it inside"
    for path, survey in zip(files, surveys, strict=True):
        if survey.barren:
            lines.append(f"{path}: no place on the slide for {field}: {first_five(survey.barren)}")
    return lines


def _survey(
    path: Path, mpp: float | None, annotation: Path, origin: str, placement: RegionPlacement
) -> RegionSurvey:
    left_out: list[LeftOut] = []
    try:
        with open_slide(path, mpp) as slide:
            size_yx, level_mpps, bounds_yx = slide.size_yx, slide.level_mpps, slide.bounds_yx
        choose_level(level_mpps, placement.mpp)
    except (InputError, OSError) as error:
        return RegionSurvey(problem=f"{annotation}: {error}")
    try:
        regions, points = read_annotations(annotation, left_out.append, Frame(bounds_yx, origin))
    except InputError as error:
        return RegionSurvey(problem=str(error), left_out=left_out)
    try:
        return replace(take_squares(regions, points, level_mpps[0], size_yx, placement), left_out=left_out)
    except InputError as error:
        shift = f" (places count from the canvas, on which the bounds begin at y {bounds_yx[0]}, x {bounds_yx[1]})"
        problem = f"{annotation}: {error}{shift if any(bounds_yx) else ''}"
        return RegionSurvey(problem=problem, left_out=left_out)


def _claims(regions: Sequence[Region], points: Sequence[Point], side_px: float) -> list[_Claim]:
    corners = np.array([(-0.5, -0.5), (-0.5, 0.5), (0.5, 0.5), (0.5, -0.5)]) * side_px
    fields = [Region(point.yx + corners, label=point.label) for point in points]
    return [
        _Claim(kind, number, one)
        for kind, some in (("region", regions), ("point", fields))
        for number, one in enumerate(some, start=1)
    ]


def take_squares(
    regions: Sequence[Region],
    points: Sequence[Point],
    slide_mpp: float,
    size_yx: tuple[int, int],
    placement: RegionPlacement,
) -> RegionSurvey:
    """Squares of all classified regions and points of a slide.

    Args:
        regions: In level-0 pixels.
        slide_mpp: µm per level-0 pixel.
        size_yx: Height and width of the slide, level-0 pixels.

    Raises:
        InputError: No region lies on the slide, or two of different classes overlap in a square.
    """
    side_px = placement.patch_px * placement.mpp / slide_mpp
    squares = Squares(side_px, size_yx, placement.min_fraction)
    claims = _claims(regions, points, side_px)
    given = [claim for claim in claims if claim.region.label and not placement.ignores(claim.region.label)]
    num_unclassified = sum(not claim.region.label for claim in claims)
    lows = np.array([claim.region.exterior_yx.min(axis=0) for claim in given]).reshape(-1, 2)
    highs = np.array([claim.region.exterior_yx.max(axis=0) for claim in given]).reshape(-1, 2)
    if given and not ((lows < squares.size_yx) & (highs > 0)).all(axis=1).any():
        height, width = squares.size_yx
        raise InputError(
            f"no region or point lies on the slide ({width} × {height} px). Fix: check whether it is of another slide."
        )
    if placement.innermost:
        carved = without_inner([claim.region for claim in given])
        given = [replace(claim, region=region) for claim, region in zip(given, carved, strict=True)]
    centers = squares.centers_in([claim.region for claim in given], placement.num_per_region)
    _check_one_class(given, lows, highs, centers, squares)
    placed = [
        (claim.key, claim.region.label, y, x)
        for claim, of_claim in zip(given, centers, strict=True)
        for y, x in of_claim.round(2).tolist()
    ]
    barren = [claim.name for claim, of_claim in zip(given, centers, strict=True) if not len(of_claim)]
    return RegionSurvey(placed, barren, num_unclassified, len(claims) - len(given) - num_unclassified)


def _check_one_class(
    claims: Sequence[_Claim],
    lows: NDArray[np.float64],
    highs: NDArray[np.float64],
    centers: Sequence[NDArray[np.float64]],
    squares: Squares,
) -> None:
    """Refuse squares of a region that lie in a region of another class."""
    number_of = {label: number for number, label in enumerate({claim.region.label: 0 for claim in claims})}
    codes = np.array([number_of[claim.region.label] for claim in claims], np.int64)
    owner = np.repeat(np.arange(len(claims)), [len(some) for some in centers])
    places = np.concatenate([np.empty((0, 2)), *centers])
    corners = places - squares.side_px / 2, places + squares.side_px / 2
    near = BoxTree(lows, highs, codes).pairs(*corners, codes[owner])
    while some := list(islice(near, _PAIRS)):
        square, other = np.array(some).T
        extent = np.minimum(corners[1][square], highs[other]) - np.maximum(corners[0][square], lows[other])
        square, other = (numbers[squares.can_cover(extent)] for numbers in (square, other))
        pair = [[claims[number] for number in numbers] for numbers in (owner[square], other)]
        common = squares.common_fractions(places[square], *([claim.region for claim in one] for one in pair))
        both = np.flatnonzero((common > 0) & (common >= squares.min_fraction))
        if len(both):
            first, (y, x) = both[0], places[square][both[0]]
            raise InputError(
                f"{pair[0][first].name} and {pair[1][first].name} overlap in the patch around y {y:.0f}, x {x:.0f}. "
                'Fix: if one is a region of interest or tissue, let its class end in "*", or list it in '
                "labels.own.regions.ignored_classes; if one lies inside the other, set labels.own.regions.overlaps: "
                "innermost; else cut one out of the other, or give them one class."
            )
