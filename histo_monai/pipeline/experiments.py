"""DVC experiments of this repository: params, metrics and files.

Only this module imports DVC; no stage imports it, so that stages run without DVC.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from histo_monai.pipeline.params import Params, parse_params
from histo_monai.utils.errors import InputError
from histo_monai.utils.settings.reader import as_tree


@dataclass(frozen=True)
class Experiment:
    """Finished experiment.

    Attributes:
        name: as in `dvc exp show`.
        rev: git revision.
        params: tree of params.yaml.
        metrics: path of a metrics file -> content.
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
        """Copy a file of this experiment to `target`, from DVC's cache or remote.

        Raises:
            InputError: neither holds the file.
        """
        try:
            self._files.get_file(path.as_posix(), str(target))
        except Exception as error:  # DVC's errors have no common class, and its filesystems raise their own
            reason = " ".join(str(error).split()) or type(error).__name__
            raise InputError(
                f"experiment {self.name}: {path.as_posix()} is not in cache or remote ({reason}). "
                "Fix: `dvc exp pull`, or run it again"
            ) from None


@dataclass(frozen=True)
class Experiments:
    """Experiments of `dvc exp show`.

    Attributes:
        done: finished, the committed run included.
        failed: names.
        waiting: names of queued and running ones.
    """

    done: list[Experiment] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)


def read_experiments(*, all_commits: bool) -> Experiments:
    """Experiments of the current commit, or of all commits with `all_commits`.

    Raises:
        InputError: DVC cannot list experiments, for example outside a repository.
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
        reason = lines[0].removeprefix("ERROR: ") if lines else f"exit {done.returncode}"
        raise InputError(f"dvc exp show: {reason}. Fix: run in the project's root, a git repository with DVC")
    return listed(json.loads(done.stdout))


def listed(baselines: list[Mapping[str, Any]]) -> Experiments:
    """Experiments from `dvc exp show --json`, each revision once."""
    experiments = Experiments()
    listed_revs: set[str] = set()
    for baseline in baselines:
        if baseline["rev"] != "workspace":
            _add(experiments, baseline, baseline.get("name") or baseline["rev"][:7], listed_revs)
        for experiment in baseline.get("experiments") or []:
            state = (experiment.get("executor") or {}).get("state", "success")
            last = experiment["revs"][0]
            name = experiment.get("name") or last.get("name") or last["rev"][:7]
            if state == "failed":
                experiments.failed.append(name)
            elif state in ("queued", "running"):
                experiments.waiting.append(name)
            else:
                _add(experiments, last, name, listed_revs)
    return experiments


def _add(experiments: Experiments, entry: Mapping[str, Any], name: str, listed_revs: set[str]) -> None:
    data = entry.get("data")
    if data is None or entry["rev"] in listed_revs:
        return
    listed_revs.add(entry["rev"])
    params = data["params"].get("params.yaml", {}).get("data")
    metrics = {path: content["data"] for path, content in data["metrics"].items() if "data" in content}
    if params and metrics:
        experiments.done.append(Experiment(name, entry["rev"], params, metrics))


SWEPT = ("alpha", "mu", "n_aug", "pretraining_methods", "semisupervised_methods", "training_seeds")
"""Axes of the curves; experiments of a family differ only in these params and in `pretraining_seeds`."""
_OF_SLIDES = ("slide_level", "heatmap", "aggregate", "mil", "check", "report")
"""Params without effect on patch metrics."""


@dataclass(frozen=True)
class Family:
    """Experiments of one figure.

    Attributes:
        name: dataset, with a number if it has several families.
        experiments: at least one.
        params: params of the first experiment.
        differences: params that differ from the dataset's first family, as " (key=value, ...)"; empty for the first.
    """

    name: str
    experiments: list[Experiment]
    params: Params
    differences: str


def families(experiments: Iterable[Experiment]) -> list[Family]:
    """Experiments grouped by all decisive params except `SWEPT`.

    Raises:
        InputError: params of an experiment are of another version.
    """
    groups: list[_Group] = []
    for experiment in experiments:
        try:
            params = parse_params(experiment.params)
        except InputError as error:
            raise InputError(
                f"experiment {experiment.name}: params of another version ({error.problem}). Fix: "
                f"`dvc exp remove {experiment.name}`"
            ) from None
        decisive, students = _flat(_decisive(params)), _students(params)
        group = next((group for group in groups if group.takes(decisive, students)), None)
        if group is None:
            group = _Group(params, decisive)
            groups.append(group)
        group.members.append(experiment)
        group.students |= students
    named: list[Family] = []
    for group in groups:
        dataset = group.params.dataset
        others = [other for other in groups[: len(named)] if other.params.dataset == dataset]
        name: str = dataset
        differences = ""
        if others:
            first, own = others[0].all(), group.all()
            name = f"{name}-{len(others) + 1}"
            changed = [key for key in sorted(first.keys() | own.keys()) if first.get(key) != own.get(key)]
            differences = " (" + ", ".join(f"{key}={own.get(key)}" for key in changed) + ")"
        named.append(Family(name, group.members, group.params, differences))
    return named


@dataclass
class _Group:
    """Experiments of a family; `students`: settings of their semi-supervised methods."""

    params: Params
    decisive: dict[str, Any]
    students: dict[str, Any] = field(default_factory=dict)
    members: list[Experiment] = field(default_factory=list)

    def takes(self, decisive: Mapping[str, Any], students: Mapping[str, Any]) -> bool:
        same = all(self.students.get(name, settings) == settings for name, settings in students.items())
        return same and decisive == self.decisive

    def all(self) -> dict[str, Any]:
        return self.decisive | _flat({"consistency": {"methods": self.students}})


def _students(params: Params) -> dict[str, Any]:
    """Settings of the semi-supervised methods in use."""
    return {name: as_tree(params.consistency.methods[name]) for name in params.semisupervised_methods}


def _decisive(params: Params) -> dict[str, Any]:
    """Params with effect on the metrics, without sections of other datasets."""
    tree = as_tree(params)
    for key in (*SWEPT, "pretraining_seeds", "compare", *_OF_SLIDES):
        del tree[key]
    if params.source != "phantom":
        del tree["phantom"]
    for section, name in (("corpora", params.pretraining_dataset), ("labels", params.dataset)):
        tree[section] = {name: tree[section][name]}
    tree["finetune"]["paper"] = as_tree(params.finetune.paper.of(params.dataset))
    tree["consistency"]["paper"] = as_tree(params.consistency.paper.of(params.dataset))
    del tree["consistency"]["methods"]  # experiments of a family may use different methods
    return tree


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mapping with dotted keys: {"a": {"b": 1}} -> {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
