"""Every error names the section of the documents that explains it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from histo_monai.pipeline.arguments import build_parser
from histo_monai.pipeline.cli import main
from histo_monai.slides.annotations.asap import read_asap_xml
from histo_monai.utils.errors import InputError
from histo_monai.utils.help_pages import PAGES, page_of, page_of_module

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "histo_monai"
OF_THEIR_CALLER = ("pipeline.commands", "pipeline.stages", "utils.errors", "utils.files", "utils.storage")
"""Modules whose errors are explained where their caller's are, or by the section of the command."""


def sections(page: Path) -> set[str]:
    """Anchors of a page, as the site makes them."""
    titles = [line.lstrip("# ") for line in page.read_text().splitlines() if line.startswith("#")]
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


def raising() -> Iterator[str]:
    """Modules of the package that raise an error that the user can mend."""
    for path in sorted(PACKAGE.rglob("*.py")):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        names = {node.func.id for node in calls if isinstance(node.func, ast.Name)}
        if any(re.fullmatch(r"(Input|Slide|Output|Params|InputFile|NoTile)Error", name) for name in names):
            yield ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def test_every_section_is_there() -> None:
    """Of each entry, and of each command."""
    for place in PAGES.values():
        page, _, section = place.partition("#")
        assert section in sections(ROOT / "docs" / page) | {""}, place
    (commands,) = (action for action in build_parser()._actions if action.dest == "name")
    assert set(commands.choices or ()) <= sections(ROOT / "docs/commands.md")


def test_every_module_that_raises_has_a_section() -> None:
    """Or is one that serves many callers."""
    modules = list(raising())
    assert len(modules) > 100
    assert not [name for name in modules if not page_of_module(name) and not name.startswith(OF_THEIR_CALLER)]


def test_no_entry_is_of_nothing() -> None:
    """Each is a module or a package."""
    for name in PAGES:
        path = PACKAGE.joinpath(*name.split("."))
        assert path.is_dir() or path.with_suffix(".py").is_file(), name


def test_the_innermost_module_decides(tmp_path: Path) -> None:
    """Also if a worker process raised."""
    path = tmp_path / "slide.xml"
    path.write_text("<ASAP_Annotations><Annotations><Annotation")
    with pytest.raises(InputError) as raised:
        read_asap_xml(path)
    assert page_of(raised.value, "index") == "docs/own_slides.md#annotations"
    with ProcessPoolExecutor(1) as pool:
        error = pool.submit(read_asap_xml, path).exception()
    assert isinstance(error, InputError)
    assert page_of(error, "index") == "docs/own_slides.md#annotations"
    assert page_of(InputError("no frame at all"), "index") == "docs/commands.md#index"


def test_the_line_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of a stage, whose params are wrong."""
    (tmp_path / "params.yaml").write_text("source: 3\n")
    monkeypatch.chdir(tmp_path)
    assert main(["index"]) == 1
    assert capfd.readouterr().err.splitlines()[-1].endswith(" [docs/params.md]")
