"""The model that a run recommends: one of all methods and students, selected on validation patches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from histo_monai.utils.errors import InputError
from histo_monai.utils.roles import MODELS
from histo_monai.utils.storage import file_sha256, read_json
from histo_monai.utils.storage.shapes import Rule

HEADLINES = ("accuracy", "icc")
"""Metrics of validation patches that models are compared by: of classes, of scores."""
_KIND = Rule(" or ".join(MODELS), lambda value: value in MODELS)
_EVALUATED = {
    "choice": {"chosen": _KIND},
    "provenance": {"inputs": {str: str}},
    "validation?": {"chosen": {str: {"value": (float, None)}}},
}
NO_LABELS = "no patch is labeled, so no model of patches was trained"


@dataclass(frozen=True)
class Candidate:
    """The model of a run: its fine-tuned model or its student, as the run's choice.json states.

    Attributes:
        method: Of the pretraining.
        encoder: Seed of the pretraining.
        student: The semi-supervised method.
        seed: Of everything after the pretraining.
        kind: "finetuned" or "student".
        path: The file, as the project names it.
        sha256: Its digest.
        metric: "accuracy" or "icc", larger is better.
        value: Of the metric on validation patches; None without validation patches.
    """

    method: str
    encoder: int
    student: str
    seed: int
    kind: str
    path: str
    sha256: str
    metric: str = ""
    value: float | None = None


def read_candidate(
    path: Path,
    mend: str,
    models: Mapping[str, Path],
    *,
    method: str,
    encoder: int,
    student: str,
    seed: int,
) -> Candidate:
    """The model of a run, as its evaluation states it.

    Args:
        path: metrics.json of the evaluation.
        mend: How to make it again, for messages.
        models: "finetuned" and "student" -> the file.
        method: See `Candidate`.
        encoder: See `Candidate`.
        student: See `Candidate`.
        seed: See `Candidate`.

    Raises:
        InputError: The file is missing, of another shape, or states no digest of the model.
    """
    metrics = read_json(path, mend, _EVALUATED)
    kind = metrics["choice"]["chosen"]
    model = models[kind].as_posix()
    digest = metrics["provenance"]["inputs"].get(model)
    if digest is None:
        raise InputError(f"{path}: states no digest of {model}. Fix: {mend}")
    values = metrics.get("validation", {}).get("chosen", {})
    metric = next((name for name in HEADLINES if name in values), "")
    value = values[metric]["value"] if metric else None
    return Candidate(method, encoder, student, seed, kind, model, digest, metric, value)


def recommend(candidates: Sequence[Candidate]) -> dict[str, Any]:
    """The recommended model and the reason, for JSON; `model` is None where validation selects none.

    Method and student are those of the highest mean on validation patches over encoders and seeds; of equal ones the
    first. Encoder and seed are the first: they differ by run-to-run variation alone.

    Args:
        candidates: In the order of params: methods, students, encoders and seeds.
    """
    if not candidates:
        return {"model": None, "why": NO_LABELS}
    groups: dict[str, list[Candidate]] = {}
    for one in candidates:
        groups.setdefault(f"{one.method} + {one.student}", []).append(one)
    values = {name: [one.value for one in group] for name, group in groups.items()}
    means = {
        name: fmean(known)
        for name, of_group in values.items()
        if len(known := [value for value in of_group if value is not None]) == len(of_group)
    }
    if len(groups) > 1 and len(means) < len(groups):
        missing = next(name for name in groups if name not in means)
        why = f"{missing} has no value on validation patches, so nothing selects one of {len(groups)} methods"
        return {"model": None, "why": why}
    name = max(groups, key=lambda group: means.get(group, 0.0))
    first = groups[name][0]
    if len(groups) == 1:
        why = f"{name} is the only method of the run"
    else:
        why = f"{name} has the highest {first.metric} of {len(groups)} methods on validation patches"
    about = asdict(first)
    return {
        "model": about.pop("path"),
        **{key: about[key] for key in ("sha256", "method", "encoder", "student", "seed", "kind")},
        "why": f"{why}; its choice.json selects its {first.kind} model",
        "metric": first.metric if means else None,
        "validation": {group: round(mean, 6) for group, mean in means.items()},
    }


_SHAPE = {
    "model": (str, None),
    "why": str,
    "sha256?": str,
    "method?": str,
    "encoder?": int,
    "student?": str,
    "seed?": int,
    "kind?": _KIND,
}


def read_recommendation(path: Path) -> dict[str, Any]:
    """The recommended model of a run, as `recommend` gives it; its file is as it was.

    Args:
        path: Of the JSON, below the project that is the working folder.

    Raises:
        InputError: The JSON is missing or names no model, or the model is missing or has changed.
    """
    if not path.is_file():
        raise InputError(f"{path}: no recommended model. Fix: run `dvc repro compare`, or name a model")
    found = read_json(path, "run `dvc repro compare` again", _SHAPE)
    if found["model"] is None:
        raise InputError(f"{path}: recommends no model: {found['why']}. Fix: name a model")
    model = Path(found["model"])
    if not model.is_file():
        raise InputError(f"{model}: not there, {path} recommends it. Fix: run `dvc pull` or `dvc repro`")
    if file_sha256(model) != found.get("sha256"):
        raise InputError(f"{model}: changed after {path} was written. Fix: run `dvc repro compare`")
    return found
