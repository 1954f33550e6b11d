"""No command of README and docs without a place where it is run, or at least parsed by what would run it."""

from __future__ import annotations

import argparse
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml
from dvc.cli import parse_args
from dvc.utils.hydra import apply_overrides, get_hydra_sweeps

from histo_monai.pipeline.arguments import build_parser
from histo_monai.pipeline.commands import init
from histo_monai.pipeline.params import check_run, load_params
from tests.documentation.commands import (
    CHECKED,
    EXPERIMENT,
    OF_THE_PAPER,
    RUN_ELSEWHERE,
    RUN_HERE,
    Command,
    commands,
    inline,
    pages,
)

ALL = [command for path in pages() for command in commands(path)]
OUR_PROGRAM = r"^(histo-monai|python -m histo_monai) "


def _starting(*start: str) -> list[Command]:
    return _once(command for command in ALL if command.text.startswith(start))


def _once(some: Iterable[Command]) -> list[Command]:
    return list({command.text: command for command in some}.values())


def test_every_command_of_the_pages_has_a_place_where_it_is_tested() -> None:
    places = [*RUN_ELSEWHERE, *RUN_HERE, EXPERIMENT, *CHECKED]
    assert len(ALL) > 150
    homeless = [str(one) for one in ALL if not any(re.fullmatch(place, one.text) for place in places)]
    assert not homeless


def test_every_place_has_a_command_and_every_test_that_is_named_is_there(root: Path) -> None:
    for place in (*RUN_ELSEWHERE, *RUN_HERE, *CHECKED):
        assert any(re.fullmatch(place, command.text) for command in ALL), place
    for named in RUN_ELSEWHERE.values():
        path, _, name = named.partition("::")
        assert f"def {name}(" in (root / path).read_text(), named


def _of_ours() -> list[Command]:
    of_text = [command for path in pages() for command in inline(path)]
    return _once(one for one in [*ALL, *of_text] if re.match(OUR_PROGRAM, one.text))


@pytest.mark.parametrize("command", _of_ours(), ids=str)
def test_a_call_of_our_program_parses_and_asks_for_a_run_of_the_committed_params(
    command: Command, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(re.sub(OUR_PROGRAM, "", command.text))
    if words[0] in ("--version", "--print-completion"):
        with pytest.raises(SystemExit) as ended:
            build_parser().parse_args(words)
        assert ended.value.code == 0
        assert capsys.readouterr().out
        return
    if words == ["init"]:  # the name of the command, in a sentence
        return
    given = vars(build_parser().parse_args(words))
    if given.get("method") is not None:
        asked = {key: given[key] for key in ("method", "encoder", "student", "seed") if key in given}
        assert check_run(load_params(root / "params.yaml"), **asked)


@pytest.mark.parametrize("command", _starting("dvc "), ids=str)
def test_a_call_of_dvc_parses_and_names_stages_or_data(command: Command, root: Path) -> None:
    given = parse_args(shlex.split(command.text)[1:])
    stages = yaml.safe_load((root / "dvc.yaml").read_text())["stages"]
    for target in getattr(given, "targets", None) or ():
        assert target.startswith("data/") or target.partition("@")[0] in stages


@pytest.mark.parametrize("command", _starting("dvc exp run"), ids=str)
def test_an_experiment_is_one_that_params_allow(command: Command, root: Path, tmp_path: Path) -> None:
    overrides = parse_args(shlex.split(command.text)[1:]).set_param
    path = tmp_path / "params.yaml"
    base = "params/paper.yaml" if command.page == OF_THE_PAPER else "params.yaml"
    source = root / base
    if command.text in (init.PRETRAIN, init.TRAIN):  # for a project of one's own slides
        init.run(str(tmp_path / "project"), dataset="own")
        source = tmp_path / "project/params.yaml"
    for changes in _each(overrides):
        shutil.copy(source, path)
        apply_overrides(path, changes)
        params = load_params(path)
        assert params.source == "raw" or params.dataset != "own"


def _each(overrides: list[str]) -> Iterable[list[str]]:
    """Of a sweep its corners, the first and the last: what lies between is of the same kind."""
    if not overrides:
        return [[]]
    sweeps = list(get_hydra_sweeps({"params.yaml": overrides}))
    return [sweep["params.yaml"] for sweep in (sweeps[0], sweeps[-1])]


@pytest.mark.parametrize("command", _starting("make "), ids=str)
def test_what_is_made_is_a_target(command: Command, root: Path) -> None:
    targets = re.findall(r"(?m)^([a-z-]+):", (root / "Makefile").read_text())
    assert set(command.text.split()[1:]) <= set(targets)


def test_extras_that_the_pages_name_are_there(root: Path) -> None:
    with (root / "pyproject.toml").open("rb") as file:
        extras = set(tomllib.load(file)["project"]["optional-dependencies"])
    text = "\n".join(path.read_text() for path in pages())
    named = set(re.findall(r"(?:histo_monai|'\.)\[([a-z0-9]+)\]", text))
    assert {"s3", "ssh", "export"} <= named <= extras


class _ParsedError(Exception):
    """Ends a script after it has read its arguments."""


@pytest.mark.parametrize("command", _starting("benchmarks/gpu.sh"), ids=str)
def test_the_command_of_a_gpu_takes_the_arguments_that_the_page_gives(command: Command, root: Path) -> None:
    """--list runs no part."""
    arguments = shlex.split(command.text, comments=True)[1:]
    done = subprocess.run(
        [root / "benchmarks/gpu.sh", *arguments, "--list"],
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("tests ")


@pytest.mark.parametrize("command", _starting("python benchmarks/", "python -m benchmarks"), ids=str)
def test_a_benchmark_takes_the_arguments_that_the_page_gives(
    command: Command, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, *words = shlex.split(command.text, comments=True)[1:]
    is_module = start == "-m"
    name = words[0] if is_module else start
    parse = argparse.ArgumentParser.parse_args

    def stop(parser: argparse.ArgumentParser, *arguments: Any) -> NoReturn:
        parse(parser, *arguments)
        raise _ParsedError

    monkeypatch.chdir(root)
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    monkeypatch.syspath_prepend(str(root))
    monkeypatch.setattr(sys, "argv", words if is_module else [start, *words])
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    with pytest.raises(_ParsedError):
        (runpy.run_module if is_module else runpy.run_path)(name, run_name="__main__")
