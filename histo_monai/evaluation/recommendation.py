"""Recommended model of a run: one of all methods and students, selected on validation patches."""

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
"""Metrics of validation patches for the selection: of classes, of scores."""
_KIND = Rule(" or ".join(MODELS), lambda value: value in MODELS)
_EVALUATED = {
    "choice": {"chosen": _KIND},
    "provenance": {"inputs": {str: str}},
    "validation?": {"chosen": {str: {"value": (float, None)}}},
}
NO_LABELS = "no patch is labeled, so no model of patches was trained"


@dataclass(frozen=True)
class Candidate:
    """Model of a run: its fine-tuned model or its student, as in the run's choice.json.

    Attributes:
        method: pretraining method.
        encoder: seed of the pretraining.
        student: semi-supervised method.
        seed: seed after the pretraining.
        kind: "finetuned" or "student".
        path: file, relative to the project.
        sha256: digest of the file.
        metric: "accuracy" or "icc", larger is better.
        value: of the metric on validation patches; None without validation patches.
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
    """Model of a run, from its evaluation.

    Args:
        path: metrics.json of the evaluation.
        mend: remedy, for messages.
        models: "finetuned" and "student" -> file.

    Raises:
        InputError: the file is missing, of another shape, or states no digest of the model.
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
    """Recommended model and reason, for JSON; `model` is None where validation selects none.

    Method and student have the highest mean on validation patches over encoders and seeds; of equal means the first.
    Encoder and seed are the first, as they differ by run-to-run variation alone.

    Args:
        candidates: in the order of params: methods, students, encoders and seeds.
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
    """Recommended model of a run, from JSON; the model file is unchanged.

    Args:
        path: of the JSON, relative to the project, which is the working folder.

    Raises:
        InputError: the JSON is missing or names no model, or the model is missing or has changed.
    """
    if not path.is_file():
        raise InputError(f"{path}: no recommended model. Fix: run `dvc repro compare`, or name a model")
    recommendation = read_json(path, "run `dvc repro compare` again", _SHAPE)
    if recommendation["model"] is None:
        raise InputError(f"{path}: recommends no model: {recommendation['why']}. Fix: name a model")
    model = Path(recommendation["model"])
    if not model.is_file():
        raise InputError(f"{model}: not there, {path} recommends it. Fix: run `dvc pull` or `dvc repro`")
    if file_sha256(model) != recommendation.get("sha256"):
        raise InputError(f"{model}: changed after {path} was written. Fix: run `dvc repro compare`")
    return recommendation
