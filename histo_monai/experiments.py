"""The experiments that DVC has run in this repository: their params, their metrics, and any file as they left it.

The only module that asks DVC; no stage imports it, so that stages run where DVC is not installed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Experiment:
    """One that ended well.

    Attributes:
        name: as `dvc exp show` prints it.
        rev: git revision.
        params: the tree of params.yaml.
        metrics: path of a metrics file -> its content.
    """

    name: str
    rev: str
    params: Mapping[str, Any]
    metrics: Mapping[str, Any]

    @cached_property
    def _files(self) -> Any:
        from dvc.api import DVCFileSystem

        return DVCFileSystem(str(Path.cwd()), rev=self.rev)

    def fetch(self, path: Path, target: Path) -> None:
        """Copy a file, as this experiment left it, to `target`; from DVC's cache, or from the remote if it is there.

        Raises:
            ValueError: neither has it.
        """
        try:
            self._files.get_file(path.as_posix(), str(target))
        except Exception as error:  # DVC's errors have no common class, and its filesystems raise their own
            told = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(
                f"experiment {self.name}: {path.as_posix()} is not to be had ({told}); `dvc exp pull` or run it again"
            ) from None


@dataclass(frozen=True)
class Experiments:
    """What `dvc exp show` lists.

    Attributes:
        done: those that ended well, the committed run itself among them.
        failed: names of those that did not.
        waiting: names of those that are queued or running.
    """

    done: list[Experiment] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)


def read_experiments(*, all_commits: bool) -> Experiments:
    """The experiments of the current commit, or of all.

    Args:
        all_commits: also those whose starting point is another commit, whose code may be another.

    Raises:
        ValueError: DVC cannot list them, e.g. outside a repository; the line is DVC's.
    """
    command = [
        sys.executable,
        "-m",
        "dvc",
        "exp",
        "show",
        "--json",
        *(["--all-commits"] if all_commits else []),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        told = lines[0].removeprefix("ERROR: ") if lines else f"exit {done.returncode}"
        raise ValueError(f"dvc exp show: {told}; run from the root of the project, a git repository with DVC")
    return listed(json.loads(done.stdout))


def listed(baselines: list[Mapping[str, Any]]) -> Experiments:
    """`dvc exp show --json` -> experiments, each revision once."""
    found = Experiments()
    seen: set[str] = set()
    for baseline in baselines:
        if baseline["rev"] != "workspace":
            _add(found, baseline, baseline.get("name") or baseline["rev"][:7], seen)
        for experiment in baseline.get("experiments") or []:
            state = (experiment.get("executor") or {}).get("state", "success")
            last = experiment["revs"][0]
            name = experiment.get("name") or last.get("name") or last["rev"][:7]
            if state == "failed":
                found.failed.append(name)
            elif state in ("queued", "running"):
                found.waiting.append(name)
            else:
                _add(found, last, name, seen)
    return found


def _add(found: Experiments, entry: Mapping[str, Any], name: str, seen: set[str]) -> None:
    data = entry.get("data")
    if data is None or entry["rev"] in seen:
        return
    seen.add(entry["rev"])
    params = data["params"].get("params.yaml", {}).get("data")
    metrics = {path: told["data"] for path, told in data["metrics"].items() if "data" in told}
    if params and metrics:
        found.done.append(Experiment(name, entry["rev"], params, metrics))
