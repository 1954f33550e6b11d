"""Labeled training patches in a model's file, against naive loops and drawn features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from histo_monai.models.checkpoint import save_model
from histo_monai.models.encoder import build_encoder
from histo_monai.models.reference import (
    MOST_ROWS,
    TrainingReference,
    has_reference,
    load_reference,
    stored_rows,
)
from histo_monai.models.task_model import TaskModel, describe_task_model, from_task_model, load_encoder
from histo_monai.models.weights import fit


def _tissue(num: int, shift: NDArray[np.float64], seed: int) -> NDArray[np.float32]:
    """Features as of a network's last layer: positive, of one tissue, eight patches a patient."""
    random = np.random.default_rng(seed)
    patients = np.repeat(random.normal(0, 0.1, (-(-num // 8), len(shift))), 8, axis=0)[:num]
    return np.exp(shift + patients + random.normal(0, 0.3, (num, len(shift)))).astype(np.float32)


COLON, LIVER = np.random.default_rng(0).normal(0, 1, (2, 40))


def _naive(one: NDArray[np.float32], others: NDArray[np.float32]) -> float:
    """1 minus the largest cosine of a vector to some vectors."""
    cosines = [float(one @ other) / float(np.linalg.norm(one) * np.linalg.norm(other)) for other in others]
    return 1 - max(cosines)


def test_the_distance_is_1_minus_the_largest_cosine_as_a_multiple_of_the_distance_between_patients() -> None:
    training, patients = _tissue(64, COLON, 1), np.repeat([f"p{n}" for n in range(8)], 8)
    patches = np.concatenate([_tissue(8, COLON, 2), _tissue(8, LIVER, 3)])
    reference = TrainingReference.fit(training, patients)
    assert reference is not None
    between = sorted(
        _naive(one, training[patients != patient]) for one, patient in zip(training, patients, strict=True)
    )
    place = 0.95 * 63  # Linear interpolation between the 60th and the 61st of 64 values.
    threshold = between[59] + (place - 59) * (between[60] - between[59])
    expected = [_naive(one, training) / threshold for one in patches]
    np.testing.assert_allclose(reference(torch.from_numpy(patches)), expected, rtol=1e-4)


@pytest.mark.parametrize("seed", range(10))
def test_other_tissue_is_unlike_the_training_and_new_patients_are_not(seed: int) -> None:
    training = TrainingReference.fit(_tissue(240, COLON, seed), np.arange(240) // 8)
    assert training is not None
    new, other = (training(torch.from_numpy(_tissue(160, shift, 100 + seed))) > 1 for shift in (COLON, LIVER))
    assert other.all()
    assert new.float().mean() < 0.25


def test_labels_of_one_patient_give_no_threshold() -> None:
    assert TrainingReference.fit(_tissue(8, COLON, 0), np.zeros(8)) is None


def test_equal_features_have_no_distance() -> None:
    reference = TrainingReference.fit(np.ones((4, 3), np.float32), np.arange(4))
    assert reference is not None
    assert (reference(torch.ones(2, 3)) < 1e-6).all()


def test_nearly_equal_features_keep_the_digits_of_their_distance() -> None:
    random = np.random.default_rng(4)
    training, patches = 1 + random.normal(0, 0.01, (2, 12, 40))  # distances of 1e-4
    reference = TrainingReference.fit(training.astype(np.float32), np.arange(12))
    assert reference is not None
    nearest = np.array([_naive(one, training) for one in patches])
    found = reference(torch.from_numpy(patches.astype(np.float32))) * reference.threshold
    np.testing.assert_allclose(found, nearest, rtol=1e-4)


def test_of_many_labels_some_are_stored_at_random_and_always_the_same() -> None:
    np.testing.assert_array_equal(stored_rows(MOST_ROWS), np.arange(MOST_ROWS))
    some = stored_rows(4 * MOST_ROWS)
    assert len(set(some.tolist())) == len(some) == MOST_ROWS
    np.testing.assert_array_equal(some, stored_rows(4 * MOST_ROWS))
    of_quarters = np.bincount(some // MOST_ROWS)
    assert ((of_quarters > 200) & (of_quarters < 300)).all()  # 250, deviation 12.


def test_autocast_leaves_distances_in_float32() -> None:
    reference = TrainingReference.fit(_tissue(64, COLON, 1), np.arange(64) // 8)
    assert reference is not None
    patches = torch.from_numpy(_tissue(16, COLON, 2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(reference(patches), reference(patches))
        cast = reference(patches)
    assert torch.equal(cast, reference(patches))


def _save(path: Path, reference: TrainingReference | None) -> TaskModel:
    torch.manual_seed(0)
    encoder = build_encoder().description(architecture="", head="linear", patch_px=32, mpps=[1.0])
    encoder |= {"method": "random", "source": "raw", "corpus": "own"}
    model = TaskModel(build_encoder(), "linear", 2)
    about = describe_task_model(encoder, classes=["a", "b"], patch_px=32, mpp=1.0)
    save_model(path, {**model.state_dict(), **(reference.tensors() if reference else {})}, about)
    return model


def test_a_models_file_holds_them_beside_its_network(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    reference = TrainingReference.fit(_tissue(64, np.zeros(512), 1), np.arange(64) // 8)
    assert reference is not None
    saved = _save(path, reference)
    loaded = load_reference(path)
    assert loaded is not None
    patches = torch.from_numpy(_tissue(16, np.zeros(512), 2))
    np.testing.assert_allclose(loaded(patches), reference(patches), rtol=0.01)
    network, _ = from_task_model(path)
    assert all(torch.equal(tensor, saved.state_dict()[name]) for name, tensor in network.state_dict().items())
    load_encoder(path)


def test_an_earlier_file_holds_none(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    _save(path, None)
    assert not has_reference(path)
    assert load_reference(path) is None


def test_an_encoder_starts_from_the_file_of_a_model(tmp_path: Path) -> None:
    encoder = build_encoder()
    reference = TrainingReference.fit(_tissue(64, COLON, 1), np.arange(64) // 8)
    assert reference is not None
    tensors = {f"encoder.trunk.{name}": tensor for name, tensor in encoder.trunk.state_dict().items()}
    found = fit(
        {**tensors, **reference.tensors()}, encoder.trunk, torch.nn.Identity(), tmp_path / "model.safetensors"
    )
    assert found.trunk.keys() == encoder.trunk.state_dict().keys()
