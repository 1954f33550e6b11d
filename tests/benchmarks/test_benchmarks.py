"""`python -m benchmarks`: its table of known times."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def module(root: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """A function that loads a file of benchmarks/ under a name of its own."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(
            f"of_benchmarks_{name}", root / "benchmarks" / f"{name}.py"
        )
        assert spec is not None
        assert spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, loaded)
        spec.loader.exec_module(loaded)
        return loaded

    return load


def test_ways_take_turns_and_the_first_round_does_not_count(module: Callable[[str], ModuleType]) -> None:
    now, calls = [0.0], []

    def way(name: str, seconds: list[float]) -> Callable[[], None]:
        def work() -> None:
            calls.append(name)
            now[0] += seconds[sum(call == name for call in calls) - 1]

        return work

    ways = {"a": way("a", [9.0, 1.0, 2.0, 3.0]), "b": way("b", [8.0, 0.5, 0.25, 0.75])}
    times = module("turns").take_turns(ways, 3, lambda: now[0])
    assert times == {"a": [1.0, 2.0, 3.0], "b": [0.5, 0.25, 0.75]}
    assert calls == ["a", "b", "b", "a", "a", "b", "b", "a"]


def test_ratios_are_of_speed_and_of_what_took_turns(module: Callable[[str], ModuleType]) -> None:
    row = {
        "what": "x",
        "clock": "cpu",
        "ours": [1.0, 2.0, 4.0],  # a neighbor takes more and more of the machine
        "peer": [8.0, 7.0, 16.0],
        "limit": [0.5, 1.8, 2.0],
        "per": 4,
    }
    found = module("__main__").with_ratios("part", row)
    assert (found["ours"], found["peer"], found["limit"]) == ("500 ms", "2000 ms", "450 ms")
    assert (found["ours/peer"], found["ours/limit"]) == (4.0, 0.5)  # medians have 0.9
    alone = module("__main__").with_ratios("part", row | {"peer": [], "limit": []})
    assert (alone["peer"], alone["ours/peer"], alone["ours/limit"]) == ("-", None, None)


def test_a_part_that_fails_leaves_the_others(
    module: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    program = module("__main__")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "bad.py").write_text(
        "print('{\"note\": \"half\"}', flush=True)\nraise SystemExit('no disk')\n"
    )
    row = {
        "what": "good", "clock": "wall", "ours": [1.0], "peer": [3.0], "peer_is": "p", "limit": [], "limit_is": "",
        "per": 1, "unit": "call",
    }  # fmt: skip
    (tmp_path / "parts" / "good.py").write_text(f"import json\nprint(json.dumps({row!r}))\n")
    monkeypatch.setattr(program, "HERE", tmp_path)
    monkeypatch.setattr(program, "PARTS", ("bad", "good"))
    assert program.main(["--out", str(tmp_path / "out")]) == 1
    printed = capsys.readouterr()
    assert printed.err.splitlines() == ["bad: note: half", "bad: failed: no disk"]
    (shown,) = (text for text in printed.out.splitlines() if text.startswith("good"))
    assert shown.split() == ["good", "good", "wall", "1000", "ms", "3000", "ms", "-", "3.0", "-"]
    written = json.loads((tmp_path / "out" / "benchmarks.json").read_text())
    assert [row["ours/peer"] for row in written["rows"]] == [3.0]
    assert written["rows"][0]["seconds"] == row
    assert written["machine"]["cores"] >= 1
    assert (tmp_path / "out" / "benchmarks.png").stat().st_size > 1000


def test_a_folder_that_cannot_be_written_is_a_sentence(
    module: Callable[[str], ModuleType], tmp_path: Path, capsys
) -> None:
    (tmp_path / "file").write_text("")
    assert module("__main__").main(["--out", str(tmp_path / "file")]) == 1
    assert capsys.readouterr().err.endswith("name another folder by --out\n")


@pytest.mark.slow
def test_the_index_and_the_masks_are_measured_for_real(root: Path, tmp_path: Path) -> None:
    """Two parts that take seconds, as a user calls them."""
    command = [
        sys.executable,
        "-m",
        "benchmarks",
        "--quick",
        "--only",
        "masks",
        "tables",
        "--out",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "benchmarks.json").read_text())["rows"]
    assert {row["part"] for row in rows} == {"masks", "tables"}
    assert all(0 < row[ratio] < 1000 for row in rows for ratio in ("ours/peer", "ours/limit") if row[ratio])
    assert len(
        [text for text in done.stdout.splitlines() if text.split()[:1] in (["masks"], ["tables"])]
    ) == len(rows)
