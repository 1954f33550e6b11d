"""Find the pages of a TIFF that are levels, by size, aspect and descriptions, in any order."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from histo_monai.slides.geometry import level_downsample
from histo_monai.slides.tiff.descriptions import is_associated, ome_images
from histo_monai.slides.tiff.tables import Page

logger = logging.getLogger(__name__)

_REDUCED, _MASK = 1, 4
LEAST_STEP = 1.05
"""Least downsample between neighboring levels."""

_SMALL_PX = 2**20
"""Area above which a page is no macro, label or thumbnail."""

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Level:
    """A page with the aspect of its slide.

    Attributes:
        downsample: Level-0 pixels per pixel.
        is_doubtful: The size alone does not prove a level; compare pixels.
    """

    page: Page
    downsample: float = 1.0
    is_doubtful: bool = False


def find_levels(path: Path, pages: Sequence[Page]) -> list[Level]:
    """The levels of a slide, finest first, in any file order; equal sizes are all included.

    Tiled pages that are no levels are skipped with a warning.

    Args:
        path: For messages.
        pages: All pages, at least one.
    """
    images = ome_images(pages)
    associated = {page.number for page in pages if is_associated(page, images)}
    full = _full_page(pages, associated)
    if not full.is_tiled:
        return [Level(full)]
    others = [page for page in pages if page.is_tiled and page is not full]
    others += [page for page in full.sub_pages if page.is_tiled]
    others.sort(key=lambda page: (-_area(page), page.number in associated, page.number))
    found, left_out = [Level(full)], []
    for page in others:
        is_other = page.subfile_type & _MASK or page.number in associated - {full.number}
        level = None if is_other else _as_level(full, page)
        if level is None or level.downsample < LEAST_STEP:
            left_out.append(page)
        else:
            is_alone = sum(one.size_yx == page.size_yx for one in others) == 1
            found.append(level if is_alone else dataclasses.replace(level, is_doubtful=True))
    if left_out:
        shown = ", ".join(
            f"{page.number} ({page.size_yx[1]} x {page.size_yx[0]} px)" for page in left_out[:_SHOWN]
        )
        more = f" and {len(left_out) - _SHOWN} more" if len(left_out) > _SHOWN else ""
        logger.warning(
            "slide %s: skipped as levels, because they are no smaller versions of its %d x %d px: tiled images %s%s",
            path, full.size_yx[1], full.size_yx[0], shown, more,
        )  # fmt: skip
    return found


def _full_page(pages: Sequence[Page], associated: set[int]) -> Page:
    """The page that is level 0: the largest candidate."""
    tiled = [page for page in pages if page.is_tiled and not page.subfile_type & _MASK]
    plain = [page for page in tiled if page.number not in associated] or tiled
    if not plain:
        return pages[0]
    largest = max(plain, key=_area)
    unreduced = max((page for page in plain if not page.subfile_type & _REDUCED), key=_area, default=largest)
    # A page larger than the unreduced page is the slide, or a macro with a wrong tag.
    full = largest if _as_level(largest, unreduced) else unreduced
    first = pages[0]
    if not first.is_tiled and first.number not in associated and _area(first) > _area(full):
        return first
    return full


def _as_level(full: Page, page: Page) -> Level | None:
    """A page as a level, judged by its size, or None."""
    downsample = level_downsample(full.size_yx, page.size_yx, page.tile_yx)
    pairs = list(zip(full.size_yx, page.size_yx, strict=True))
    if downsample < 1:
        return None
    is_whole = downsample == round(downsample)
    if is_whole:
        is_rounded = all(abs(whole / downsample - part) < 1 for whole, part in pairs)
        is_padded = all(part >= whole / downsample for whole, part in pairs)
    else:
        # One ratio explains both axes, each rounded by less than a pixel.
        is_padded = False
        is_rounded = max(whole / (part + 1) for whole, part in pairs) < min(
            whole / max(part - 1, 1e-9) for whole, part in pairs
        )
    if not is_rounded and not is_padded:
        return None
    return Level(page, downsample, not (is_rounded and is_whole) or _area(page) <= _SMALL_PX)


def _area(page: Page) -> int:
    return page.size_yx[0] * page.size_yx[1]
