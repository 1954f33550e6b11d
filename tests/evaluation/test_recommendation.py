"""Which model a run recommends: by validation patches, never by the test."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from histo_monai.evaluation.recommendation import Candidate, read_candidate, read_recommendation, recommend
from histo_monai.utils.errors import InputError

BASE = Candidate("random", 0, "paper", 0, "finetuned", "data/random", "0" * 64, "accuracy", 0.7)


def _candidate(method: str, value: float | None, seed: int = 0, kind: str = "finetuned") -> Candidate:
    return replace(BASE, method=method, seed=seed, kind=kind, path=f"data/{method}-{seed}", value=value)


def test_the_highest_mean_over_seeds_wins_and_its_first_seed_is_taken() -> None:
    """By hand: rsp has the highest single value, moco the highest mean."""
    values = {"random": (0.70, 0.72), "rsp": (0.60, 0.95), "moco": (0.79, 0.81)}
    candidates = [
        _candidate(method, value, seed) for method, of in values.items() for seed, value in enumerate(of)
    ]
    found = recommend(candidates)
    assert (found["model"], found["method"], found["seed"]) == ("data/moco-0", "moco", 0)
    assert found["validation"] == {"random + paper": 0.71, "rsp + paper": 0.775, "moco + paper": 0.8}
    assert found["why"].startswith("moco + paper has the highest accuracy of 3 methods on validation patches")


def test_the_choice_between_fine_tuned_model_and_student_is_that_of_the_run() -> None:
    found = recommend([_candidate("random", 0.5), _candidate("rsp", 0.6, kind="student")])
    assert found["kind"] == "student"
    assert found["why"].endswith("its choice.json selects its student model")


def test_of_equal_values_the_first_method_is_taken() -> None:
    assert recommend([_candidate("rsp", 0.6), _candidate("moco", 0.6)])["method"] == "rsp"


def test_without_validation_patches_nothing_selects_one_of_several_methods() -> None:
    found = recommend([_candidate("random", 0.7), _candidate("rsp", None)])
    assert found == {
        "model": None,
        "why": "rsp + paper has no value on validation patches, so nothing selects one of 2 methods",
    }
    assert recommend([]) == {"model": None, "why": "no patch is labeled, so no model of patches was trained"}


def test_the_only_method_needs_no_validation_patches() -> None:
    found = recommend([_candidate("rsp", None)])
    assert (found["model"], found["metric"], found["validation"]) == ("data/rsp-0", None, {})
    assert (
        found["why"]
        == "rsp + paper is the only method of the run; its choice.json selects its finetuned model"
    )


def test_a_candidate_is_what_the_evaluation_states(tmp_path: Path) -> None:
    path, models = tmp_path / "metrics.json", {"finetuned": Path("a"), "student": Path("b")}
    of_run = {"method": "rsp", "encoder": 1, "student": "paper", "seed": 2}
    metrics = {
        "choice": {"chosen": "student"},
        "provenance": {"inputs": {"b": "1" * 64}},
        "validation": {"chosen": {"icc": {"value": 0.8}}, "student": {"icc": {"value": 0.9}}},
    }
    path.write_text(json.dumps(metrics))
    expected = Candidate("rsp", 1, "paper", 2, "student", "b", "1" * 64, "icc", 0.8)
    assert read_candidate(path, "run it", models, **of_run) == expected
    path.write_text(json.dumps({**metrics, "choice": {"chosen": "finetuned"}}))
    with pytest.raises(InputError, match=r"states no digest of a\. Fix: run it"):
        read_candidate(path, "run it", models, **of_run)


def test_what_is_recommended_is_there_and_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path, model = Path("chosen.json"), Path("model.safetensors")
    with pytest.raises(
        InputError, match=r"chosen\.json: no recommended model\. Fix: run `dvc repro compare`"
    ):
        read_recommendation(path)
    path.write_text(json.dumps(recommend([])))
    with pytest.raises(InputError, match="recommends no model: no patch is labeled"):
        read_recommendation(path)
    digest = hashlib.sha256(b"weights").hexdigest()
    path.write_text(json.dumps(recommend([replace(BASE, path=model.name, sha256=digest)])))
    with pytest.raises(InputError, match=r"model\.safetensors: not there, chosen\.json recommends it"):
        read_recommendation(path)
    model.write_bytes(b"weights")
    assert read_recommendation(path)["model"] == model.name
    model.write_bytes(b"others")
    with pytest.raises(
        InputError, match=r"changed after chosen\.json was written\. Fix: run `dvc repro compare`"
    ):
        read_recommendation(path)
