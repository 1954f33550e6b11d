"""The experiments that DVC has run in this repository: their params, their metrics, and any file as they left it.

The only module that asks DVC; no stage imports it, so that stages run where DVC is not installed.
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
            InputError: neither has it.
        """
        try:
            self._files.get_file(path.as_posix(), str(target))
        except Exception as error:  # DVC's errors have no common class, and its filesystems raise their own
            reason = " ".join(str(error).split()) or type(error).__name__
            raise InputError(
                f"experiment {self.name}: {path.as_posix()} is not to be had ({reason}); `dvc exp pull` or run it again"
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
        InputError: DVC cannot list them, e.g. outside a repository; the line is DVC's.
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
        raise InputError(
            f"dvc exp show: {reason}; run from the root of the project, a git repository with DVC"
        )
    return listed(json.loads(done.stdout))


def listed(baselines: list[Mapping[str, Any]]) -> Experiments:
    """`dvc exp show --json` -> experiments, each revision once."""
    experiments = Experiments()
    seen: set[str] = set()
    for baseline in baselines:
        if baseline["rev"] != "workspace":
            _add(experiments, baseline, baseline.get("name") or baseline["rev"][:7], seen)
        for experiment in baseline.get("experiments") or []:
            state = (experiment.get("executor") or {}).get("state", "success")
            last = experiment["revs"][0]
            name = experiment.get("name") or last.get("name") or last["rev"][:7]
            if state == "failed":
                experiments.failed.append(name)
            elif state in ("queued", "running"):
                experiments.waiting.append(name)
            else:
                _add(experiments, last, name, seen)
    return experiments


def _add(experiments: Experiments, entry: Mapping[str, Any], name: str, seen: set[str]) -> None:
    data = entry.get("data")
    if data is None or entry["rev"] in seen:
        return
    seen.add(entry["rev"])
    params = data["params"].get("params.yaml", {}).get("data")
    metrics = {path: content["data"] for path, content in data["metrics"].items() if "data" in content}
    if params and metrics:
        experiments.done.append(Experiment(name, entry["rev"], params, metrics))


SWEPT = ("alpha", "mu", "n_aug", "pretraining_methods", "semisupervised_methods", "training_seeds")
"""Params that curves are drawn against; experiments of a family differ in nothing else but `pretraining_seeds`."""
_OF_SLIDES = ("slide_level", "heatmap", "aggregate")
"""Params that no number of patches depends on."""


@dataclass(frozen=True)
class Family:
    """Experiments that belong into one picture.

    Attributes:
        name: of the dataset, numbered where several families have the same.
        experiments: at least one.
        params: of the first.
        differences: what sets it apart from the first family of its dataset, as " (key=value, ...)"; empty for that.
    """

    name: str
    experiments: list[Experiment]
    params: Params
    differences: str


def families(experiments: Iterable[Experiment]) -> list[Family]:
    """Experiments by what decides their numbers beside `SWEPT`: params of their own dataset, corpus and stages.

    Raises:
        InputError: the params of an experiment are not those of this version; names it.
    """
    groups: list[_Group] = []
    for experiment in experiments:
        try:
            params = parse_params(experiment.params)
        except InputError as error:
            raise InputError(
                f"experiment {experiment.name}: its params are of another version ({error}); leave it out by "
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
    """Experiments found to belong together so far; `students`: settings of the semi-supervised methods in them."""

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
    """Settings of the semi-supervised methods that run."""
    return {name: as_tree(params.consistency.methods[name]) for name in params.semisupervised_methods}


def _decisive(params: Params) -> dict[str, Any]:
    """The params that decide the numbers of this experiment; sections of other datasets do not."""
    tree = as_tree(params)
    for key in (*SWEPT, "pretraining_seeds", "compare", *_OF_SLIDES):
        del tree[key]
    if params.source != "phantom":
        del tree["phantom"]
    for section, name in (("corpora", params.pretraining_dataset), ("labels", params.dataset)):
        tree[section] = {name: tree[section][name]}
    tree["finetune"]["paper"] = as_tree(params.finetune.paper.of(params.dataset))
    tree["consistency"]["paper"] = as_tree(params.consistency.paper.of(params.dataset))
    del tree["consistency"]["methods"]  # of those that run, experiments may differ in which
    return tree


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
