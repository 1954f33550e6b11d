"""Writer of pages: HTML with style, scripts and libraries beside it."""

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
    """Write `index.html` and `assets/`, with the slide viewer's files only if a section has a viewer.

    Args:
        folder: existing draft folder without these two.
        sections: in order.
        libraries: folder of the browser libraries; None: the page states that charts are missing.
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
    """Sentence of a page without browser libraries.

    Args:
        what: the missing part, such as "charts".
        again: command that writes the page.
    """
    return (
        f"{what} are missing from this installation: run `python -m histo_monai.reports.site.vendor` where the npm "
        f"registry can be reached, then `{again}`"
    )
