"""`histo-monai dvc`: stages in forks of one process, which differ in nothing but their start."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from histo_monai.pipeline.paths import REPORT
from histo_monai.pipeline.warm import ADDRESS, warm_process

HERE = [sys.executable, "-m", "histo_monai"]
SERVED = [*HERE, "report", "--serve"]


@pytest.fixture(scope="module")
def variables() -> Iterator[dict[str, str]]:
    with warm_process() as of_process:
        yield {**os.environ, **of_process}


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A folder with a report, which `report --serve` serves until it is interrupted."""
    (tmp_path / REPORT).mkdir(parents=True)
    (tmp_path / REPORT / "index.html").write_text("<p>x</p>")
    return tmp_path


def _ran(command: list[str], folder: Path, environ: dict[str, str]) -> tuple[int, str, str]:
    ended = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize(
    "command", [["encoders", "uni2-h"], ["--version"], ["map"], ["convert", "a.xml", "b.geojson"]]
)
def test_a_command_in_a_fork_prints_and_ends_as_it_does_alone(
    command: list[str], variables: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "a.xml").write_text("<ASAP_Annotations/>" if command[0] == "convert" else "")
    alone = _ran([*HERE, *command], tmp_path, {**os.environ})
    (tmp_path / "b.geojson").unlink(missing_ok=True)
    assert _ran([*HERE, *command], tmp_path, variables) == alone


def _stat(process: Path) -> list[str]:
    """State, number of the parent, and more (`man proc_pid_stat`) of a process, given by its folder in /proc."""
    return (process / "stat").read_text().rsplit(")", 1)[1].split()


def _children() -> list[Path]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            found += [process] * (_stat(process)[1] == str(os.getpid()))
    return found


def test_a_command_prints_the_same_when_all_libraries_are_loaded(
    variables: dict[str, str], tmp_path: Path
) -> None:
    """MONAI loads numcodecs, which warns of deprecation as the process ends."""
    [process] = [
        each for each in _children() if b"\0histo_monai.pipeline.warm\0" in (each / "cmdline").read_bytes()
    ]
    before = ""
    while (now := _stat(process)[11]) != before:  # its processor time: it still loads
        before = now
        time.sleep(1)
    assert "numcodecs" in (process / "maps").read_text()
    command = [*HERE, "encoders", "uni2-h"]
    assert _ran(command, tmp_path, variables) == _ran(command, tmp_path, {**os.environ})


def test_the_process_that_asks_loads_nothing(variables: dict[str, str], tmp_path: Path) -> None:
    timed = {**variables, "PYTHONPROFILEIMPORTTIME": "1"}
    status, out, imported = _ran([*HERE, "--version"], tmp_path, timed)
    assert (status, out.split()[0]) == (0, "histo-monai")
    assert "histo_monai.pipeline.warm" in imported
    assert not re.search(r"\b(argparse|numpy|torch)\b", imported)


def test_folder_and_environment_are_those_of_the_process_that_asks(
    variables: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "µ.xml").write_text("<ASAP_Annotations>")
    command = [*HERE, "convert", "µ.xml", "b.geojson"]
    status, _, error = _ran(command, tmp_path, variables)
    assert (status, "µ.xml" in error, "Traceback" in error) == (1, True, False)
    traced = _ran(command, tmp_path, {**variables, "HISTO_MONAI_TRACEBACK": "1"})
    assert "Traceback" in traced[2]


def test_a_command_of_another_copy_of_the_package_runs_its_own_code(
    variables: dict[str, str], root: Path, tmp_path: Path
) -> None:
    own = tmp_path / "histo_monai"
    own.symlink_to(root / "histo_monai")
    timed = {**variables, "PYTHONPROFILEIMPORTTIME": "1", "PYTHONPATH": ""}
    status, _, imported = _ran([*HERE, "--version"], tmp_path, timed)
    assert (status, "argparse" in imported) == (0, True)


def test_no_other_user_can_reach_the_process(variables: dict[str, str]) -> None:
    assert Path(variables[ADDRESS]).parent.stat().st_mode & 0o777 == 0o700


def test_without_the_process_commands_run_as_ever(tmp_path: Path) -> None:
    gone = {**os.environ, ADDRESS: str(tmp_path / "socket")}
    assert _ran([*HERE, "--version"], tmp_path, gone)[0] == 0


def _addresses(page: Path, environ: dict[str, str]) -> tuple[subprocess.Popen[str], int]:
    """A command that serves, and the number of the process that does."""
    served = subprocess.Popen(
        SERVED, cwd=page, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert served.stdout is not None
    assert "http://" in served.stdout.readline()
    running = [
        int(folder.name)
        for folder in Path("/proc").glob("[0-9]*")
        if folder.name != str(served.pid) and _works_in(folder, page)
    ]
    assert len(running) == 1
    return served, running[0]


def _works_in(folder: Path, page: Path) -> bool:
    try:
        return (folder / "cwd").readlink() == page
    except OSError:
        return False


def _ends(number: int) -> bool:
    for _ in range(100):
        if not Path(f"/proc/{number}").exists():
            return True
        time.sleep(0.1)
    return False


def test_a_fork_ends_with_the_process_that_asked(variables: dict[str, str], page: Path) -> None:
    served, running = _addresses(page, variables)
    served.kill()
    assert _ends(running)
    served.communicate()


def test_a_fork_that_is_killed_is_a_failure(variables: dict[str, str], page: Path) -> None:
    served, running = _addresses(page, variables)
    os.kill(running, signal.SIGKILL)
    assert served.wait(30) == 128 + signal.SIGKILL
    served.communicate()


def test_dvc_runs_stages_and_passes_on_its_status(tmp_path: Path) -> None:
    def run(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command.split(), cwd=tmp_path, capture_output=True, text=True, check=False)

    assert run(f"{sys.executable} -m dvc init --no-scm --quiet").returncode == 0
    (tmp_path / "a.xml").write_text("<ASAP_Annotations/>")
    stage = f"{sys.executable} -m histo_monai convert a.xml b.geojson"
    (tmp_path / "dvc.yaml").write_text(
        f"stages:\n  convert:\n    cmd: {stage}\n    deps: [a.xml]\n    outs: [b.geojson]\n"
    )
    by_dvc = run(f"{sys.executable} -m dvc repro")
    locked = (tmp_path / "dvc.lock").read_bytes()
    (tmp_path / "dvc.lock").unlink()
    (tmp_path / "b.geojson").unlink()
    ours = run(f"{sys.executable} -m histo_monai dvc repro --force")
    assert (by_dvc.returncode, ours.returncode) == (0, 0), by_dvc.stderr + ours.stderr
    assert (tmp_path / "dvc.lock").read_bytes() == locked
    (tmp_path / "a.xml").write_text("<")
    failed = run(f"{sys.executable} -m histo_monai dvc repro")
    assert failed.returncode != 0
    assert "a.xml" in failed.stderr


def test_a_long_temporary_folder_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("x" * 90)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with warm_process() as of_process:
        assert _ran([*HERE, "--version"], tmp_path, {**os.environ, **of_process})[0] == 0


def test_ctrl_c_waits_for_dvc_and_its_stage(tmp_path: Path) -> None:
    """DVC waits for a stage that tidies up; the command ends after both."""
    subprocess.run([sys.executable, "-m", "dvc", "init", "--no-scm", "--quiet"], cwd=tmp_path, check=True)
    (tmp_path / "slow.py").write_text(
        "import pathlib, time\n"
        "try:\n    pathlib.Path('began').touch()\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    time.sleep(1.5)\n    pathlib.Path('tidy').touch()\n    raise SystemExit(1)\n"
    )
    (tmp_path / "dvc.yaml").write_text(f"stages:\n  slow:\n    cmd: {sys.executable} slow.py\n")
    started = subprocess.Popen(
        [*HERE, "dvc", "repro"],
        cwd=tmp_path,
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
        # As in a terminal: a process that was started in the background ignores Ctrl-C, and so do its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while not (tmp_path / "began").exists():
        time.sleep(0.1)
    os.killpg(started.pid, signal.SIGINT)
    _, error = started.communicate(timeout=60)
    assert (tmp_path / "tidy").exists()
    assert started.returncode not in (0, -signal.SIGINT)
    assert "failed to reproduce" in error


def test_a_fork_ends_as_python_ends(tmp_path: Path) -> None:
    """Threads finish, exit functions run, and streams are written; the process of the fork has nothing left to free."""
    program = (
        "import atexit, concurrent.futures, sys, threading, time\n"
        "from histo_monai.pipeline import warm\n"
        "class Freed:\n"
        "    def __del__(self): print('freed')\n"
        "freed = Freed()\n"
        "def late(text):\n"
        "    time.sleep(0.2)\n"
        "    sys.stdout.write(text + '\\n')\n"  # print writes the end apart: two threads would mix
        "atexit.register(print, 'exit function')\n"
        "threading.Thread(target=late, args=['thread']).start()\n"
        "pool = concurrent.futures.ThreadPoolExecutor(1)\n"
        "pool.submit(late, 'pool')\n"
        "warm._end(3)\n"
    )
    status, out, err = _ran([sys.executable, "-c", program], tmp_path, {**os.environ})
    assert (status, err) == (3, "")
    assert sorted(out.split("\n")) == ["", "exit function", "pool", "thread"]
    assert out.endswith("exit function\n")


def test_the_process_imports_no_method_of_the_project(tmp_path: Path) -> None:
    """Its text may change before a stage runs, and a broken one is an error of the stage that reads it."""
    method = tmp_path / "own_methods/semisupervised/mine.py"
    method.parent.mkdir(parents=True)
    method.write_text("raise NameError('broken')\n")
    for mode, trains in (("head", False), ("all", True)):
        params = {"semisupervised_methods": ["mine"], "finetune": {"mode": mode}}
        (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
        asked = "import sys; from histo_monai.pipeline.warm import _trains_networks as f; print(f())"
        asked += "; print(any(name.startswith('own_methods') for name in sys.modules))"
        assert _ran([sys.executable, "-c", asked], tmp_path, dict(os.environ)) == (
            0,
            f"{trains}\nFalse\n",
            "",
        )
