from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from histo_monai.pretraining import PRETEXTS
from histo_monai.pretraining.settings import PretextSettings
from histo_monai.semisupervised import METHODS
from histo_monai.utils.settings.registry import Part, Registry


class Toy:
    Settings = "its settings"


def test_a_method_is_imported_when_it_is_looked_up_and_not_before(root: Path) -> None:
    code = (
        "import sys\nfrom histo_monai.pretraining import PRETEXTS\nassert 'moco' in PRETEXTS and len(list(PRETEXTS)) > "
        "3\n"
        "seen = lambda: {f'histo_monai.pretraining.{n}' for n in PRETEXTS} & set(sys.modules)\n"
        "assert not seen(), seen()\nPRETEXTS['moco']\nprint(*seen())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["histo_monai.pretraining.moco"], done.stderr


@pytest.mark.parametrize(("package", "methods"), [("pretraining", PRETEXTS), ("semisupervised", METHODS)])
def test_every_method_is_one_file_of_its_name_and_no_folder(
    package: str, methods: Registry, root: Path
) -> None:
    folder = root / "histo_monai" / package
    files = {path.stem: path for path in (*folder.glob("*.py"), *folder.glob("heads/*.py"))}
    defining = {name for name, path in files.items() if ": ClassVar[type" in path.read_text()}
    assert defining - {"protocol"} == set(methods)
    assert {path.parent.name for path in folder.glob("*/__init__.py")} <= {"heads", "students", "teaching"}
    for name, build in methods.items():
        module = ".".join(files[name].relative_to(root).with_suffix("").parts)
        assert methods.module(name) == build.__module__ == module


@pytest.mark.parametrize("name", PRETEXTS)
def test_settings_of_a_method_are_found_without_it_and_documented(name: str, root: Path) -> None:
    settings: Any = PRETEXTS.settings(name)
    assert settings is PRETEXTS[name].Settings
    assert settings is PRETEXTS.settings(name)  # as before it was loaded
    assert issubclass(settings, PretextSettings)
    with pytest.raises(dataclasses.FrozenInstanceError):
        object.__new__(settings).lr = 1.0
    documented = "\n".join(kind.__doc__ or "" for kind in settings.__mro__)
    assert all(f" {field.name}: " in documented for field in dataclasses.fields(settings))


def test_settings_of_all_methods_are_read_without_torch(root: Path) -> None:
    code = (
        "import sys\nfrom histo_monai.pretraining import PRETEXTS\nprint(*map(PRETEXTS.settings, PRETEXTS))\n"
        "assert not {'torch', 'monai', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout.count("Settings") == len(PRETEXTS), done.stderr


def test_settings_lie_in_a_file_of_their_own_or_in_the_part() -> None:
    parts = Registry(
        toy=Toy, apart=Part("tests.gone:Gone", "collections:OrderedDict"), late="fractions:Fraction"
    )
    assert parts.settings("toy") == "its settings"
    assert parts.settings("apart").__name__ == "OrderedDict"  # and the part is not looked for
    with pytest.raises(AttributeError, match="Settings"):
        parts.settings("late")


def test_a_method_from_elsewhere_is_one_line() -> None:
    methods = Registry(rsp="histo_monai.pretraining.rsp:RSP")
    methods["toy"] = Toy
    assert methods["toy"] is Toy
    assert list(methods) == ["rsp", "toy"]
    methods["late"] = "collections:OrderedDict"
    assert methods["late"].__name__ == "OrderedDict"
    del methods["toy"]
    assert "toy" not in methods
    with pytest.raises(KeyError, match="toy"):
        methods["toy"]
