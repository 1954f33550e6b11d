"""One way to write a page: its HTML, and beside it the style, scripts and libraries that it asks for."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from histo_monai.reports.site.blocks import SCRIPT, STYLE, VIEWER_SCRIPT, Section, Viewer, render
from histo_monai.reports.site.vendor import HERE, LIBRARIES, VIEWER_LIBRARY

PAGE, ASSETS = "index.html", "assets"


def write_page(
    folder: Path, title: str, subtitle: str, sections: Sequence[Section], libraries: Path | None
) -> None:
    """Write `index.html`, and `assets/`; those of the viewer of slides only where a section has one.

    Args:
        folder: exists, and has none of the two; a draft, so that a page is whole or not there.
        sections: in their order.
        libraries: where those of the browser lie, see `vendor.found`; None: the page says of each chart that it could
            not be drawn.
    """
    viewer = any(isinstance(block, Viewer) for section in sections for block in section.blocks)
    own = [SCRIPT, *([VIEWER_SCRIPT] if viewer else [])]
    assets = folder / ASSETS
    assets.mkdir()
    for name in (STYLE, *own):
        shutil.copyfile(HERE / name, assets / name)
    scripts = []
    for library in LIBRARIES:
        if libraries and (viewer or library.name != VIEWER_LIBRARY):
            for name in library.files.values():
                shutil.copyfile(libraries / name, assets / name)
            scripts.append(f"{library.name}.js")
    page = render(title, subtitle, sections, [f"{ASSETS}/{name}" for name in (*scripts, *own)])
    (folder / PAGE).write_text(page, encoding="utf-8")


def without_libraries(what: str, again: str) -> str:
    """What a page says that lacks them.

    Args:
        what: is missing, "charts".
        again: the command that writes the page once more.
    """
    return (
        f"{what} are missing from this installation: run `python -m histo_monai.reports.site.vendor` where the npm "
        f"registry can be reached, then `{again}`"
    )
