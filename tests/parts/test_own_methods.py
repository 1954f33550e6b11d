"""Files of a project's `own_methods/`: found by name, run where params name them, watched, and refused in one line."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from histo_monai.pipeline.imports import stage_sha256
from histo_monai.pipeline.stages import code
from histo_monai.pretraining import PRETEXTS
from histo_monai.semisupervised import METHODS
from histo_monai.utils.errors import InputError

FOLDER = Path("own_methods/pretraining")
QUARTERS = FOLDER / "quarters.py"
SETTINGS = (
    "from dataclasses import dataclass\nfrom histo_monai.pretraining.settings import PretextSettings\n"
    "@dataclass(frozen=True)\nclass Small(PretextSettings):\n    epochs: int\n"
)
METHOD = "class Quarters:\n    Settings = Small\n"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_file_is_a_method_by_its_name_and_runs_when_it_is_looked_up(own_project: Path) -> None:
    _write(QUARTERS, f"open('ran', 'a').write('x')\n{SETTINGS}{METHOD}")
    assert "quarters" in PRETEXTS
    assert list(PRETEXTS)[-2:] == ["dino", "quarters"]
    assert len(PRETEXTS) == len(list(PRETEXTS))
    assert "quarters" not in METHODS
    assert PRETEXTS.module("quarters") == "own_methods.pretraining.quarters"
    assert PRETEXTS.own_files("quarters") == [QUARTERS]
    assert PRETEXTS.own_files("moco") == []
    assert not Path("ran").exists()
    assert PRETEXTS["quarters"].__name__ == "Quarters"
    assert PRETEXTS.settings("quarters").__name__ == "Small"
    assert Path("ran").read_text() == "x"


def test_without_the_folder_there_are_the_methods_of_the_package_alone(own_project: Path) -> None:
    assert list(PRETEXTS) == ["random", "pretrained", "vae", "moco", "rsp", "rsp_moco", "dino"]
    with pytest.raises(KeyError, match="quarters"):
        PRETEXTS["quarters"]


def _look_up(name: str, settings: Any) -> None:
    sys.exit(PRETEXTS[name].Settings is not type(settings))


def test_a_process_that_is_spawned_for_a_training_has_the_method_and_its_settings(own_project: Path) -> None:
    _write(QUARTERS, SETTINGS + METHOD)
    arguments = ("quarters", PRETEXTS.settings("quarters")(epochs=3))
    process = multiprocessing.get_context("spawn").Process(target=_look_up, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == 0


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("My-Method.py", "", r"My-Method\.py: not the name of a method\. Fix: rename"),
        ("moco.py", "", r"moco\.py: moco is a method of the package\. Fix: rename"),
        ("quarters.py", SETTINGS, r"quarters\.py: expected one class with `Settings`, found none\. Fix: "),
        (
            "quarters.py",
            f"{SETTINGS}{METHOD}class B(Quarters): pass",
            r"found Quarters, B\. Fix: write one method",
        ),
        (
            "quarters.py",
            "class Quarters:\n    Settings = dict",
            r"Quarters\.Settings is no PretextSettings\. Fix: .*histo_monai\.pretraining\.settings\.PretextSettings",
        ),
    ],
)
def test_what_is_no_method_is_refused_in_one_line(
    own_project: Path, name: str, text: str, message: str
) -> None:
    _write(FOLDER / name, text)
    with pytest.raises(InputError, match=message) as caught:
        PRETEXTS["quarters"]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["../quarters", "/quarters", "quarters.py", "pretext.quarters", ""])
def test_a_name_is_no_path(own_project: Path, name: str) -> None:
    _write(QUARTERS, SETTINGS + METHOD)
    _write(FOLDER.parent / "quarters.py", SETTINGS + METHOD)
    assert name not in PRETEXTS


def test_a_link_to_a_file_elsewhere_is_refused_and_not_run(own_project: Path) -> None:
    _write(Path("elsewhere.py"), f"open('ran', 'w')\n{SETTINGS}{METHOD}")
    FOLDER.mkdir(parents=True)
    QUARTERS.symlink_to(own_project / "elsewhere.py")
    with pytest.raises(
        InputError, match=r"quarters\.py: a link to a file outside of own_methods/pretraining\. Fix: "
    ):
        PRETEXTS["quarters"]
    assert not Path("ran").exists()


def test_a_change_reaches_the_digests_of_the_methods_that_import_it_and_no_stage(
    own_project: Path, root: Path
) -> None:
    def digests() -> dict[str, str]:
        code.run()
        return {
            path.relative_to("data/code").as_posix(): path.read_text()
            for path in Path("data/code").rglob("*.json")
        }

    _write(FOLDER.parent / "losses.py", "x = 1\n")
    _write(QUARTERS, f"from own_methods.losses import x\n{SETTINGS}{METHOD}")
    _write(FOLDER / "halves.py", SETTINGS + METHOD)
    shutil.copytree(root / "tests/parts", FOLDER.parent / "unused")
    first = digests()
    read = json.loads(first["pretraining/quarters.json"])
    assert {"own_methods/losses.py", QUARTERS.as_posix(), "histo_monai/pretraining/settings.py"} <= set(read)
    assert "histo_monai/pretraining/moco.py" not in read
    _write(FOLDER.parent / "losses.py", "x = 2\n")
    second = digests()
    assert {name for name in first if first[name] != second[name]} == {"pretraining/quarters.json"}
    resumed = stage_sha256("pretrain", PRETEXTS["quarters"].__module__)
    _write(QUARTERS, f"{SETTINGS}{METHOD}")
    third = digests()
    assert {name for name in first if second[name] != third[name]} == {"pretraining/quarters.json"}
    assert stage_sha256("pretrain", PRETEXTS["quarters"].__module__) != resumed
