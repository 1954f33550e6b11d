"""Open a slide with OpenSlide, cuCIM or Pillow, and find its levels."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from histo_monai.slides.backends import Backend
from histo_monai.slides.errors import SlideError
from histo_monai.slides.geometry import level_downsample
from histo_monai.slides.openslide_backend import OpenSlideBackend, openslide_format
from histo_monai.slides.tiff import (
    MAX_SIDE_PX,
    Level,
    Page,
    TiffBackend,
    find_levels,
    is_tiff,
    keep_alike,
    read_pages,
    why_not_decoded,
    why_not_pillow,
)
from histo_monai.utils.storage.reading import InputFileError
from histo_monai.utils.storage.slide_files import slide_files

logger = logging.getLogger(__name__)

_BY_PAGES = ("generic-tiff", "aperio")
"""OpenSlide formats whose levels are ordinary TIFF pages."""

_PHILIPS = "philips"

_SAMPLES = {2: "signed integer", 3: "float"}
_MOST_BITS = 16
_GRAY = (0, 1)
"""TIFF color spaces without color."""


class Opened(NamedTuple):
    """A slide file opened with one library.

    Attributes:
        downsamples: Level number in the library -> downsample, finest first.
        pages: TIFF pages, level 0 first; empty for formats that OpenSlide interprets.
        properties: OpenSlide's properties of level 0; empty if OpenSlide opened another page or nothing.
    """

    backend: Backend
    downsamples: Mapping[int, float]
    pages: Sequence[Page]
    properties: Mapping[str, str]


def with_level_0_first(pages: Sequence[Page], levels: Sequence[Level]) -> list[Page]:
    """The pages of a TIFF with level 0 first; empty without levels."""
    return [levels[0].page, *(page for page in pages if page is not levels[0].page)] if levels else []


def open_by_tiles(
    path: Path, pages: Sequence[Page], levels: Sequence[Level], backend_class: type[TiffBackend]
) -> Opened:
    """A TIFF opened tile by tile, without levels of other pixel types.

    Raises:
        SlideError, ImportError, RuntimeError, ValueError: The library cannot read the file.
    """
    why_not = why_not_pillow if backend_class is TiffBackend else why_not_decoded
    levels = [level for level in levels if why_not(level.page) is None]
    backend = backend_class(path, [level.page for level in levels])
    downsamples = keep_alike(path, backend, list(enumerate(levels)))
    return Opened(backend, downsamples, with_level_0_first(pages, levels), {})


def open_without_cucim(
    path: Path, files: Sequence[Path], pages: Sequence[Page], levels: Sequence[Level], why: str
) -> Opened:
    """A file in OpenSlide, or in Pillow if OpenSlide lacks some of its levels.

    Args:
        files: All files of the slide (`utils.storage.slide_files`).
        pages: TIFF pages, if cuCIM supports the suffix.
        levels: The pages that are levels.
        why: Why cuCIM does not read it, for messages.

    Raises:
        SlideError: Neither library reads it.
    """
    _check_samples(path, levels)
    kind = openslide_format(path)
    if (
        not levels
        and is_tiff(path)
        and path.suffix.lower() != ".ndpi"
        and kind in (*_BY_PAGES, _PHILIPS, None)
    ):
        pages = read_pages(path)
        levels = find_levels(path, pages) if pages else []
        _check_samples(path, levels)
    is_for_pillow = bool(levels) and why_not_pillow(levels[0].page) is None
    try:
        backend = _open_with_openslide(path, files, why)
    except SlideError:
        if not is_for_pillow:
            raise
    else:
        if kind not in _BY_PAGES or not levels:
            downsamples = _levels_of_vendor(path, backend, pages)
            return Opened(backend, downsamples, with_level_0_first(pages, levels), backend.properties)
        numbered = _numbered(backend, levels)
        is_full = bool(numbered) and numbered[0][1] is levels[0]
        if is_full and (len(numbered) == len(levels) or not is_for_pillow):
            properties = backend.properties if levels[0].page is pages[0] else {}
            downsamples = keep_alike(path, backend, numbered)
            return Opened(backend, downsamples, with_level_0_first(pages, levels), properties)
        backend.close()
        if not is_for_pillow:
            (height, width), number = levels[0].page.size_yx, levels[0].page.number
            what = f"its full resolution is image {number} ({width} x {height} px), which OpenSlide does not give"
            raise SlideError(path, f"{what} (cuCIM: {why}). Fix: save this image as a separate file.")
    logger.info("slide %s: library=pillow, because OpenSlide does not give all of its levels", path)
    return open_by_tiles(path, pages, levels, TiffBackend)


def _numbered(backend: OpenSlideBackend, levels: Sequence[Level]) -> list[tuple[int, Level]]:
    """OpenSlide's numbers of the levels, without levels whose size occurs twice."""
    sizes_yx = list(backend.level_sizes_yx)
    return [
        (sizes_yx.index(level.page.size_yx), level)
        for level in levels
        if sizes_yx.count(level.page.size_yx) == 1
    ]


def _levels_of_vendor(path: Path, backend: OpenSlideBackend, pages: Sequence[Page]) -> dict[int, float]:
    """The levels of a vendor format, which OpenSlide knows better than the TIFF tables."""
    for height, width in backend.level_sizes_yx:
        if not (0 < height <= MAX_SIDE_PX and 0 < width <= MAX_SIDE_PX):
            raise SlideError(
                path, f"states a level of {width} x {height} px. Fix: copy or download it again."
            )
    tiles = {page.size_yx: page.tile_yx for page in pages if page.is_tiled}
    return {
        number: level_downsample(backend.level_sizes_yx[0], size_yx, tiles.get(size_yx))
        for number, size_yx in enumerate(backend.level_sizes_yx)
    }


def _check_samples(path: Path, levels: Sequence[Level]) -> None:
    """Refuse pixel types that no library reads; a library would report them as damage."""
    page = levels[0].page if levels else None
    if page is not None and (page.sample_format in _SAMPLES or page.bits > _MOST_BITS):
        samples = _SAMPLES.get(page.sample_format, "integer")
        raise SlideError(
            path,
            f"{page.bits}-bit {samples} samples. Fix: save it as 8-bit RGB, for example with vips cast.",
        )
    if page is not None and page.photometric in _GRAY:
        raise SlideError(path, "gray values. Fix: save it as 8-bit RGB, or scan it in color.")


def checked_files(path: Path) -> tuple[Path, ...]:
    """The files of a slide (`slide_files`); refuses pipes, devices and unreadable files first."""
    try:
        files = slide_files(path)
        path.open("rb").close()
        size = path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        raise SlideError(path, "no such file. Fix: check the path in the table of slides.") from None
    except InputFileError as error:
        if any((path / name).is_file() for name in (".zattrs", "zarr.json")):
            what = "an OME-Zarr folder. Fix: convert it with raw2ometiff, and name the OME-TIFF."
            raise SlideError(path, what) from None
        fix = ". Fix: check the path in the table of slides." if error.problem == str(error) else ""
        raise SlideError(path, f"{str(error).removeprefix(f'{path}: ')}{fix}") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL.
        why = getattr(error, "strerror", None) or error
        raise SlideError(
            path, f"cannot be opened ({why}). Fix: check the path and its permissions."
        ) from None
    if size == 0:
        raise SlideError(path, "the file is empty. Fix: copy or download it again.")
    return files


def _open_with_openslide(path: Path, files: Sequence[Path], why: str) -> OpenSlideBackend:
    import openslide

    try:
        backend = OpenSlideBackend(path, files)
    except openslide.OpenSlideError as error:
        folder = path.with_suffix("")
        if path.suffix.lower() == ".mrxs" and not (folder / "Slidedat.ini").is_file():
            what = f"needs the folder {folder.name} beside it, with Slidedat.ini and the pixels (Data*.dat)"
            raise SlideError(path, f"{what}. Fix: copy that folder too.") from error
        raise SlideError(
            path,
            f"not a slide that cuCIM ({why}) or OpenSlide ({error}) reads. "
            "Fix: use a tiled pyramidal image: vips tiffsave FILE slide.tif --tile --pyramid --compression jpeg.",
        ) from error
    logger.info("slide %s: library=openslide, because cuCIM does not read it: %s", path, why)
    return backend
