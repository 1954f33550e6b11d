"""The files that a stage imports: as another reader finds them, as Python loads them, and in small packages."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import grimp
import pytest

from histo_monai.pipeline import imports
from histo_monai.pipeline.arguments import STAGES
from histo_monai.pipeline.commands.init import TEMPLATE
from histo_monai.pipeline.imports import (
    COMMAND_LINE,
    imported_files,
    modules_sha256,
    stage_module,
    stage_sha256,
)
from histo_monai.reports.site.vendor import HERE, NAME

TRAININGS = ("pretrain", "finetune", "consistency")
Reached = Callable[..., list[str]]


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("histo_monai", cache_dir=None, exclude_type_checking_imports=True)


@pytest.fixture
def reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reached:
    """Writes files of a small package and gives the names of those that its module `start` brings."""

    def reach(**texts: str) -> list[str]:
        package = tmp_path / "small"
        for name, text in {"__init__.py": "", **texts}.items():
            path = package / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        monkeypatch.setattr(imports, "PACKAGE", package)
        return [path.relative_to(package).as_posix() for path in imported_files(["small.start"])]

    return reach


@pytest.fixture
def copied(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package, which is what is looked at."""
    package = tmp_path / "histo_monai"
    shutil.copytree(root / "histo_monai", package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(imports, "PACKAGE", package)
    return package


def _touch(*paths: Path) -> None:
    for path in paths:
        path.write_text(path.read_text() + "\n# touched\n")


def _ancestors(module: str) -> set[str]:
    return set(itertools.accumulate(module.split("."), "{}.{}".format))


def _is_wordless(path: Path) -> bool:
    """Whether a file compiles to nothing but its docstring."""
    code = compile(path.read_text(), path, "exec")
    return not (set(code.co_names) - {"__doc__"})


@pytest.mark.parametrize("stage", sorted(STAGES))
def test_the_files_of_a_stage_are_those_that_grimp_finds(
    stage: str, root: Path, graph: grimp.ImportGraph
) -> None:
    modules: set[str] = set()
    more = {COMMAND_LINE, stage_module(stage)}
    while more := {part for module in more for part in _ancestors(module)} - modules:
        modules |= more
        more = set().union(*(graph.find_modules_directly_imported_by(module) for module in more))
    places = [(root / module.replace(".", "/"), module) for module in modules - {"histo_monai"}]
    files = {place / "__init__.py" if place.is_dir() else place.with_suffix(".py") for place, _ in places}
    result = {path for path in imported_files([COMMAND_LINE, stage_module(stage)]) if path.suffix == ".py"}
    assert result == {path for path in files if not _is_wordless(path)}


@pytest.mark.slow
def test_what_python_loads_for_a_stage_is_among_its_files(root: Path) -> None:
    """Each stage in a fork of one interpreter, which has loaded libraries and nothing of the package."""
    code = (
        "import os, sys\n"
        "import ignite.engine, ignite.handlers, matplotlib.image, monai.transforms, pandas, torch, torchvision\n"
        "for stage in sys.argv[1:]:\n"
        "    if os.fork():\n"
        "        assert os.wait()[1] == 0\n"
        "        continue\n"
        f"    __import__('{COMMAND_LINE}'), __import__('histo_monai.pipeline.stages.' + stage)\n"
        "    named = [m.__file__ for n, m in sys.modules.items() if n.startswith('histo_monai.') and m.__file__]\n"
        "    print(stage, *named, flush=True)\n"
        "    os._exit(0)\n"
    )
    stages = ["consistency", "pretrain"]
    command = [sys.executable, "-c", code, *stages]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    loaded = {stage: files for stage, *files in map(str.split, done.stdout.splitlines()) if stage in stages}
    assert list(loaded) == stages
    for stage, names in loaded.items():
        assert len(names) > 50
        files = set(imported_files([COMMAND_LINE, stage_module(stage)]))
        assert {path for path in map(Path, names) if not _is_wordless(path)} <= files


TRAIN_NO_NETWORK = (
    *(f"stages.{stage}" for stage in sorted(set(STAGES) - {"pretrain", "mil"})),
    *(f"commands.{command}" for command in ("doctor", "features", "label", "map", "next", "suggest")),
)
"""At most heads on stored features: pretraining and mil train in every mode."""


@pytest.mark.slow
def test_what_trains_no_network_loads_no_library_of_trainings(root: Path) -> None:
    modules = [f"histo_monai.pipeline.{name}" for name in TRAIN_NO_NETWORK]
    code = (
        "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\nprint(*sys.modules)"
    )
    command = [sys.executable, "-c", code, *modules]
    loaded = set(subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split())
    assert {"torch", *modules} <= loaded
    assert not loaded & {"ignite", "monai", "timm", "torchvision", "torch._dynamo", "torch.utils.tensorboard"}


def test_an_import_in_a_function_counts_and_one_for_types_does_not(reached: Reached) -> None:
    start = (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import small.types\nelse:\n    import small.real\n"
        "def late():\n    from small import lazy\n"
    )
    files = {f"{name}.py": "x = 1" for name in ("types", "real", "lazy", "nobody")}
    assert reached(**{"start.py": start, **files}) == ["lazy.py", "real.py", "start.py"]


def test_packages_on_the_way_run_and_count_unless_they_hold_words_alone(reached: Reached) -> None:
    texts = {
        "start.py": "from small.hub.deep import name\nfrom small.words import part",
        "hub/__init__.py": "from small.hub import other",
        "hub/other.py": "x = 1",
        "hub/deep.py": "name = 1",
        "hub/nobody.py": "x = 1",
        "words/__init__.py": '"""Words."""\n',
        "words/part.py": "x = 1",
    }
    expected = ["hub/__init__.py", "hub/deep.py", "hub/other.py", "start.py", "words/part.py"]
    assert reached(**texts) == expected


def test_relative_imports_are_followed(reached: Reached) -> None:
    texts = {"start.py": "from .room import door", "room/__init__.py": "from .. import wall\n"}
    more = {"room/door.py": "from . import key", "room/key.py": "x = 1", "wall.py": "x = 1"}
    assert reached(**texts, **more) == [
        "room/__init__.py",
        "room/door.py",
        "room/key.py",
        "start.py",
        "wall.py",
    ]


def test_a_file_of_data_belongs_to_the_module_beside_it_that_names_it(reached: Reached) -> None:
    texts = {"start.py": "import small.a.read", "a/__init__.py": "", "a/read.py": "NAME = 'numbers.csv'"}
    assert reached(**texts, **{"a/numbers.csv": "1", "a/other.csv": "2"}) == [
        *("a/numbers.csv", "a/read.py", "start.py")
    ]


_OF_NO_STAGE = ("py.typed", ".gitignore", "label.html")  # the page of a command


def test_every_file_of_data_belongs_to_a_stage(root: Path) -> None:
    files = {path for stage in STAGES for path in imported_files([stage_module(stage)])}
    package = (path for path in (root / "histo_monai").rglob("*") if path.is_file())
    data = {path for path in package if path.suffix not in (".py", ".pyc") and path.name not in _OF_NO_STAGE}
    data -= set((HERE / NAME).glob("*"))  # their versions stand in vendor.py
    data -= set(TEMPLATE.rglob("*"))  # what the command init makes projects from
    assert data
    assert data <= files


def test_a_module_that_is_not_there_is_named(reached: Reached) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"small\.gone: "):
        reached(**{"start.py": "import small.gone"})


def test_the_package_itself_brings_no_file_to_a_stage() -> None:
    """Its public names are imported when they are used, which no stage does."""
    assert imported_files(["histo_monai"]) == []


def test_a_report_that_changes_leaves_unfinished_trainings_and_maps_alone(copied: Path) -> None:
    def digests() -> dict[str, str]:
        result = {stage: stage_sha256(stage) for stage in STAGES}
        return result | {"cells of maps": modules_sha256("histo_monai.wsi.inference.heatmaps")}

    before = digests()
    _touch(*copied.glob("reports/*.py"))
    after = digests()
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"check", "evaluate", "heatmap", "aggregate", "mil", "compare", "report"}
    _touch(copied / "training/fit.py")
    assert {name for name in TRAININGS if stage_sha256(name) == before[name]} == set()


def test_a_method_that_changes_leaves_the_unfinished_training_of_another_alone(copied: Path) -> None:
    methods = [f"histo_monai.pretraining.{name}" for name in ("moco", "rsp", "random", "vae")]
    before = {method: stage_sha256("pretrain", method) for method in methods}
    assert len({stage_sha256("pretrain"), *before.values()}) == 5
    _touch(copied / "pretraining/moco.py")
    changed = {method for method in methods if stage_sha256("pretrain", method) != before[method]}
    assert changed == {"histo_monai.pretraining.moco"}


def test_code_from_outside_the_package_is_part_of_the_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = tmp_path / "toy_of_a_user.py"
    toy.write_text("from histo_monai.models.losses import objective\n")
    module = type(sys)("toy_of_a_user")
    module.__file__ = str(toy)
    monkeypatch.setitem(sys.modules, "toy_of_a_user", module)
    before = stage_sha256("pretrain", "toy_of_a_user")
    assert before != stage_sha256("pretrain")
    assert any(path.name == "objective.py" for path in imported_files(["toy_of_a_user"]))
    _touch(toy)
    assert stage_sha256("pretrain", "toy_of_a_user") != before
