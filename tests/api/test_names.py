"""The public names and their signatures. A change here needs a line in CHANGELOG.md and the policy of docs/api.md."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import histo_monai as hm

FROZEN = Path(__file__).with_name("public_names.txt")


def _lines() -> list[str]:
    """Each public name with its signature; classes with their public members, `metrics` with its names."""
    return [line for name in hm.__all__ for line in _about(name, getattr(hm, name))]


def _about(name: str, value: object) -> list[str]:
    if isinstance(value, ModuleType):
        return [line for part in value.__all__ for line in _about(f"{name}.{part}", getattr(value, part))]
    if not isinstance(value, type):
        return [f"{name}{_signature(value)}" if inspect.isfunction(value) else name]
    if issubclass(value, Exception):
        return [f"{name} is a {value.__base__.__name__}"]
    made_by_us = [] if name == "Slide" else [f"{name}{_signature(value)}"]
    members = {part: member for part, member in vars(value).items() if not part.startswith("_")}
    fields = getattr(value, "__dataclass_fields__", {})
    for part in sorted(members.keys() - fields.keys()):
        member = members[part]
        made_by_us.append(f"{name}.{part}{_signature(member) if inspect.isfunction(member) else ''}")
    return made_by_us


def _signature(value: Callable[..., object]) -> str:
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(value)))
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def test_public_names_and_signatures_are_the_frozen_ones() -> None:
    assert _lines() == FROZEN.read_text(encoding="utf-8").splitlines()


def test_every_public_name_stands_on_the_page_and_has_a_docstring(root: Path) -> None:
    page = (root / "docs/api.md").read_text(encoding="utf-8")
    rows = "\n".join(line for line in page.splitlines() if line.startswith("| `"))
    for name in hm.__all__:
        assert f"`{name}" in rows, name
        assert (getattr(hm, name).__doc__ or "").strip(), name


def test_type_checkers_know_the_same_names(root: Path) -> None:
    tree = ast.parse((root / "histo_monai/__init__.py").read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    typed = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    modules = {"metrics": "histo_monai.evaluation"} | hm._MODULES
    assert typed == modules
    assert sorted(typed) == hm.__all__ == sorted({*hm._MODULES, *hm._SUBMODULES})


def test_the_package_alone_loads_no_library() -> None:
    code = "import sys, histo_monai; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "torch", "cv2", "pandas", "monai"} & set(done.stdout.split())


def test_a_name_that_is_none_is_refused_and_dir_lists_the_public_ones() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'heat_map'"):
        _ = hm.heat_map
    assert set(hm.__all__) < set(dir(hm))


def test_a_renamed_name_warns_and_gives_the_present_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(hm._RENAMED, "patches", ("tile", "0.3"))
    with pytest.warns(
        FutureWarning, match=r"histo_monai\.patches is now called tile; version 0\.3 removes"
    ) as seen:
        assert hm.patches is hm.tile
    assert seen[0].filename == __file__
