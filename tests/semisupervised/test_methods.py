"""Each method against a restatement of its published equations, image by image and class by class."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch

from histo_monai.models.encoder import build_encoder
from histo_monai.models.losses import Classification, Regression
from histo_monai.models.task_model import TaskModel
from histo_monai.semisupervised import METHODS
from histo_monai.semisupervised.protocol import PSEUDO_LABELS, Batch
from histo_monai.semisupervised.rankup import Ranked
from histo_monai.semisupervised.students.mixing import sharpen
from histo_monai.training.schedule import Schedule
from histo_monai.utils.errors import InputError
from histo_monai.utils.randomness import Step
from tests.recipes import RECIPE

B, N, K, SIDE = 4, 6, 3, 32
SETTINGS: dict[str, dict[str, Any]] = {
    "supervised": {},
    "fixmatch": {"threshold": 0.6},
    "adamatch": {"threshold": 0.9},
    "freematch": {"momentum": 0.8, "fairness": 0.3},
    "softmatch": {"momentum": 0.8},
    "mixmatch": {"temperature": 0.5, "beta": 0.75, "ramp_steps": 4},
    "mixed_teacher": {"temperature": 0.5, "beta": 0.75, "momentum": 0.8, "spread_momentum": 0.8},
    "spatial_neighbors": {"epochs": 1, "unaugmented_fraction": None, "stain_jitter": None},  # of the recipe
    "mean_teacher": {"ramp_steps": 4},
    "rankup": {"threshold": 0.7, "ranking": 0.2, "alignment": 0.4},
}
OF_SCORES = ("rankup",)
OF_BOTH = ("supervised", "spatial_neighbors", "mean_teacher", "mixed_teacher")


def _method(name: str, scores: bool = False, **changes: Any) -> Any:
    torch.manual_seed(1)
    scores = scores or name in OF_SCORES
    method = METHODS[name]
    objective: Any = Regression() if scores else Classification(["a", "b", "c"])
    return method(
        model=TaskModel(build_encoder(), "linear", 1 if scores else K),
        objective=objective,
        patch_px=SIDE,
        mpp=None,
        n_aug=2,
        recipe=dataclasses.replace(
            RECIPE, **{key: changes.pop(key) for key in list(changes) if hasattr(RECIPE, key)}
        ),
        settings=method.Settings(
            **({} if name == "supervised" else {"weight": 0.7}) | SETTINGS[name] | changes
        ),
    )


def _batch(scores: bool = False, iteration: int = 1) -> Batch:
    random = torch.Generator().manual_seed(iteration)
    labeled, unlabeled = (
        torch.randint(0, 256, (num, 1, 3, SIDE, SIDE), dtype=torch.uint8, generator=random) for num in (B, N)
    )
    targets = torch.tensor([0.1, 0.9, 0.5, 0.5]) if scores else torch.tensor([0, 2, 1, 1])
    pseudo_labels = torch.rand(N, 1 if scores else K, generator=random)  # of those who ask for them
    pseudo_labels = pseudo_labels if scores else pseudo_labels / pseudo_labels.sum(dim=1, keepdim=True)
    return Batch(labeled, targets, unlabeled, Step(0, 1, iteration), pseudo_labels)


def _logits(*counts: int, seed: int = 0) -> tuple[torch.Tensor, ...]:
    random = torch.Generator().manual_seed(seed)
    return tuple(3 * torch.randn(num, K, generator=random) for num in counts)


def _softmax(row: torch.Tensor) -> list[float]:
    exponents = [math.exp(float(x)) for x in row]
    return [x / sum(exponents) for x in exponents]


def _cross_entropy(row: torch.Tensor, label: int) -> float:
    return -math.log(_softmax(row)[label])


def _labeled_loss(labeled: torch.Tensor, batch: Batch) -> float:
    losses = [_cross_entropy(row, int(label)) for row, label in zip(labeled, batch.targets, strict=True)]
    return sum(losses) / len(losses)


def _argmax(values: list[float]) -> int:
    return values.index(max(values))


def test_fixmatch_is_equation_4() -> None:
    labeled, weak, strong = _logits(B, N, N)
    found = _method("fixmatch").measure((labeled, weak, strong), _batch())
    unlabeled = 0.0
    for of_weak, of_strong in zip(weak, strong, strict=True):
        seen = _softmax(of_weak)
        if max(seen) >= 0.6:
            unlabeled += _cross_entropy(of_strong, _argmax(seen)) / N
    assert 0 < float(found["used"].mean()) < 1
    assert float(found["loss"]) == pytest.approx(_labeled_loss(labeled, _batch()) + 0.7 * unlabeled, rel=1e-5)


def test_adamatch_aligns_class_proportions_and_asks_for_a_part_of_the_labeled_confidence() -> None:
    labeled, weak, strong = _logits(B, N, N, seed=1)
    found = _method("adamatch").measure((labeled, weak, strong), _batch())
    of_labeled, of_weak = ([_softmax(row) for row in rows] for rows in (labeled, weak))
    expected = [sum(row[c] for row in of_labeled) / B for c in range(K)]
    running = [sum(row[c] for row in of_weak) / N for c in range(K)]
    threshold = 0.9 * sum(max(row) for row in of_labeled) / B
    unlabeled, used = 0.0, []
    for seen, of_strong in zip(of_weak, strong, strict=True):
        raised = [seen[c] * expected[c] / running[c] for c in range(K)]
        aligned = [x / sum(raised) for x in raised]
        used.append(float(max(aligned) >= threshold))
        unlabeled += used[-1] * _cross_entropy(of_strong, _argmax(aligned)) / N
    assert found["used"].tolist() == used
    assert 0 < sum(used) < N
    assert float(found["loss"]) == pytest.approx(_labeled_loss(labeled, _batch()) + 0.7 * unlabeled, rel=1e-5)


def test_freematch_follows_thresholds_and_adds_fairness() -> None:
    method = _method("freematch")
    confidence, proportions, histogram = 1 / K, [1 / K] * K, [1 / K] * K
    for step in range(3):
        labeled, weak, strong = _logits(B, N, N, seed=step)
        found = method.measure((labeled, weak, strong), _batch())
        of_weak = [_softmax(row) for row in weak]
        confidence = 0.8 * confidence + 0.2 * sum(max(row) for row in of_weak) / N
        for c in range(K):
            proportions[c] = 0.8 * proportions[c] + 0.2 * sum(row[c] for row in of_weak) / N
            histogram[c] = 0.8 * histogram[c] + 0.2 * sum(_argmax(row) == c for row in of_weak) / N
        unlabeled, kept = 0.0, []
        for seen, of_strong in zip(of_weak, strong, strict=True):
            label = _argmax(seen)
            if max(seen) >= proportions[label] / max(proportions) * confidence:
                kept.append(_softmax(of_strong))
                unlabeled += _cross_entropy(of_strong, label) / N
        wins = [sum(_argmax(row) == c for row in kept) / len(kept) for c in range(K)]
        ratio = [sum(row[c] for row in kept) / len(kept) / wins[c] if wins[c] else 0.0 for c in range(K)]
        wanted = [proportions[c] / histogram[c] for c in range(K)]
        fairness = sum(wanted[c] / sum(wanted) * math.log(ratio[c] / sum(ratio) + 1e-12) for c in range(K))
        expected = _labeled_loss(labeled, _batch()) + 0.7 * unlabeled + 0.3 * fairness
        assert float(found["loss"]) == pytest.approx(expected, rel=1e-4)


def test_softmatch_weighs_by_a_truncated_gaussian_of_the_aligned_confidence() -> None:
    method = _method("softmatch")
    mean, variance, proportions = 1 / K, 1.0, [1 / K] * K
    for step in range(3):
        labeled, weak, strong = _logits(B, N, N, seed=step)
        found = method.measure((labeled, weak, strong), _batch())
        of_weak = [_softmax(row) for row in weak]
        for c in range(K):
            proportions[c] = 0.8 * proportions[c] + 0.2 * sum(row[c] for row in of_weak) / N
        tops = []
        for row in of_weak:
            aligned = [row[c] * (1 / K) / proportions[c] for c in range(K)]
            tops.append(max(aligned) / sum(aligned))
        mean = 0.8 * mean + 0.2 * sum(tops) / N
        variance = 0.8 * variance + 0.2 * float(np.var(tops, ddof=1))
        weights = [
            1.0 if top >= mean else math.exp(-((top - mean) ** 2) / (2 * variance / 4)) for top in tops
        ]
        pairs = zip(weights, of_weak, strong, strict=True)
        unlabeled = sum(w * _cross_entropy(s, _argmax(row)) for w, row, s in pairs) / N
        assert found["used"].tolist() == pytest.approx(weights, rel=1e-4)
        assert float(found["loss"]) == pytest.approx(
            _labeled_loss(labeled, _batch()) + 0.7 * unlabeled, rel=1e-4
        )


def test_the_distance_to_the_mean_teacher_grows_with_the_ramp() -> None:
    method = _method("mean_teacher")
    labeled, teacher, student = _logits(B, N, N)
    distance = 0.0
    for one, other in zip(teacher, student, strict=True):
        distance += sum((a - b) ** 2 for a, b in zip(_softmax(one), _softmax(other), strict=True)) / K / N
    for step in range(6):
        found = method.measure((labeled, teacher, student), _batch())
        ramp = math.exp(-5 * (1 - min(1.0, step / 4)) ** 2)
        expected = _labeled_loss(labeled, _batch()) + 0.7 * ramp * distance
        assert float(found["loss"]) == pytest.approx(expected, rel=1e-5)
        method.after_step()


def test_mixmatch_is_algorithm_1() -> None:
    method, batch = _method("mixmatch"), _batch()
    method.network.eval()  # a mixture has the same statistics whatever its neighbors are
    method.after_step()
    views = method.views(batch)
    found = method.measure(method.outputs(views), batch)
    random = batch.step.generator("mixing")
    weights = random.beta(0.75, 0.75, B + 2 * N)
    order = random.permutation(B + 2 * N)
    with torch.no_grad():
        guessed = []
        for first, second in zip(*(method.network.student(view) for view in views[1:]), strict=True):
            mean = [(a + b) / 2 for a, b in zip(_softmax(first), _softmax(second), strict=True)]
            guessed.append([x**2 / sum(y**2 for y in mean) for x in mean])
        targets = torch.cat([torch.eye(K)[batch.targets], torch.tensor(guessed + guessed)])
        images, loss, distance = torch.cat(views), 0.0, 0.0
        for i in range(B + 2 * N):
            kept = max(weights[i], 1 - weights[i])
            mixture = kept * images[i] + (1 - kept) * images[order[i]]
            wanted = kept * targets[i] + (1 - kept) * targets[order[i]]
            given = _softmax(method.network.student(mixture[None].float())[0])
            if i < B:
                loss -= sum(float(wanted[c]) * math.log(given[c]) for c in range(K)) / B
            else:
                distance += sum((given[c] - float(wanted[c])) ** 2 for c in range(K)) / K / (2 * N)
    assert found["loss"].item() == pytest.approx(float(loss) + 0.7 * 0.25 * distance, rel=1e-3)


def _mixtures(batch: Batch, views: tuple[torch.Tensor, ...], targets: torch.Tensor) -> Any:
    """Image by image: labeled and unlabeled ones, each with its partner, and what they shall be."""
    random = batch.step.generator("mixing")
    weights, order = random.beta(0.75, 0.75, B + N), random.permutation(B + N)
    images = torch.cat([views[0], views[2]])
    for i, weight in enumerate(weights):
        kept = max(weight, 1 - weight)
        yield (
            kept * images[i] + (1 - kept) * images[order[i]],
            kept * targets[i] + (1 - kept) * targets[order[i]],
        )


def _among_themselves(model: torch.nn.Module, views: torch.Tensor) -> torch.Tensor:
    """Outputs with the batch-norm statistics of the views themselves, by a copy: none of the model's own moves."""
    return copy.deepcopy(model).train()(views)


def test_the_mixed_teacher_aligns_sharpens_and_mixes_the_averages_predictions() -> None:
    method = _method("mixed_teacher")
    labeled_proportions, pseudo_label_proportions = [1 / K] * K, [1 / K] * K
    for step in (1, 2, 3):
        batch = _batch(iteration=step)
        method.network.eval()  # a mixture has the same statistics whatever its neighbors are
        for parameter in method.network.student.parameters():
            parameter.data += 0.01 * torch.randn(
                parameter.shape, generator=torch.Generator().manual_seed(step)
            )
        method.after_step()
        views = method.views(batch)
        found = method.measure(method.outputs(views), batch)
        with torch.no_grad():
            pseudo_labels = [_softmax(row) for row in _among_themselves(method.model, views[1])]
            for c in range(K):
                fraction = sum(int(label) == c for label in batch.targets) / B
                labeled_proportions[c] = 0.8 * labeled_proportions[c] + 0.2 * fraction
                pseudo_label_proportions[c] = (
                    0.8 * pseudo_label_proportions[c] + 0.2 * sum(row[c] for row in pseudo_labels) / N
                )
            wanted = []
            for row in pseudo_labels:
                squares = [
                    (row[c] * labeled_proportions[c] / pseudo_label_proportions[c]) ** 2 for c in range(K)
                ]
                wanted.append([x / sum(squares) for x in squares])
            targets = torch.cat([torch.eye(K)[batch.targets], torch.tensor(wanted)])
            losses = []
            for image, target in _mixtures(batch, views, targets):
                given = _softmax(method.network.student(image[None].float())[0])
                losses.append(-sum(float(target[c]) * math.log(given[c]) for c in range(K)))
        expected = sum(losses[:B]) / B + 0.7 * sum(losses[B:]) / N
        assert found["loss"].item() == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("momentum", [0.3, 1.0])
def test_the_mixed_teacher_stretches_scores_to_the_spread_of_the_labels(momentum: float) -> None:
    method = _method("mixed_teacher", scores=True, spread_momentum=momentum)
    followed = [0.0, 0.0, 0.0]
    for step in range(3):
        batch = _batch(scores=True, iteration=step + 1)
        method.network.eval()
        views = method.views(batch)
        found = method.measure(method.outputs(views), batch)
        with torch.no_grad():
            pseudo_labels = _among_themselves(method.model, views[1]).clamp(0, 1)[:, 0].tolist()
            seen = [np.std(batch.targets.numpy()), np.std(pseudo_labels), np.mean(pseudo_labels)]
            kept = min(momentum, step / (step + 1))
            followed = [kept * old + (1 - kept) * new for old, new in zip(followed, seen, strict=True)]
            if momentum < 1:
                stretch = min(3.0, followed[0] / followed[1])
                pseudo_labels = [
                    min(1.0, max(0.0, followed[2] + stretch * (pseudo_label - followed[2])))
                    for pseudo_label in pseudo_labels
                ]
            targets = torch.cat([batch.targets, torch.tensor(pseudo_labels)])[:, None].float()
            losses = [
                float((method.network.student(image[None].float())[0] - target) ** 2)
                for image, target in _mixtures(batch, views, targets)
            ]
        expected = sum(losses[:B]) / B + 0.7 * sum(losses[B:]) / N
        assert found["loss"].item() == pytest.approx(expected, rel=1e-3)
        method.after_step()


def test_rankup_learns_order_as_fixmatch_does_and_aligns_scores_to_the_labels() -> None:
    random = torch.Generator().manual_seed(0)
    scores = tuple(torch.rand(num, 1, generator=random) for num in (B, N, N))
    ranks = tuple(2 * torch.randn(num, generator=random) for num in (B, N, N))
    batch = _batch(scores=True)
    found = _method("rankup").measure(Ranked(scores, ranks), batch)

    def loss_of(difference: float, wanted: float) -> float:
        higher = 1 / (1 + math.exp(-difference))
        return -wanted * math.log(higher) - (1 - wanted) * math.log(1 - higher)

    ranking, unlabeled, num_used = [], 0.0, 0
    for i in range(B):
        for j in range(i + 1, B):
            first, second = float(batch.targets[i]), float(batch.targets[j])
            wanted = 0.5 if first == second else float(first > second)
            ranking.append(loss_of(float(ranks[0][i] - ranks[0][j]), wanted))
    pairs = [(i, j) for i in range(N) for j in range(i + 1, N)]
    for i, j in pairs:
        higher = 1 / (1 + math.exp(-float(ranks[1][i] - ranks[1][j])))
        if max(higher, 1 - higher) >= 0.7:
            num_used += 1
            unlabeled += loss_of(float(ranks[2][i] - ranks[2][j]), float(higher > 0.5))
    weak = scores[1].squeeze(1).tolist()
    quantiles = [np.quantile([0.1, 0.9, 0.5, 0.5], (sorted(weak).index(score) + 0.5) / N) for score in weak]
    distance = np.mean([(float(s) - q) ** 2 for s, q in zip(scores[2], quantiles, strict=True)])
    supervised = np.mean([(float(s) - float(t)) ** 2 for s, t in zip(scores[0], batch.targets, strict=True)])
    expected = supervised + 0.2 * np.mean(ranking) + 0.7 * unlabeled / len(pairs) + 0.4 * distance
    assert 0 < num_used < len(pairs)
    assert float(found["loss"]) == pytest.approx(float(expected), rel=1e-4)


def test_neighbors_learn_pseudo_labels_of_classes() -> None:
    labeled, unlabeled = _logits(B, N)
    batch = _batch()
    assert batch.pseudo_labels is not None
    found = _method("spatial_neighbors").measure((labeled, unlabeled), batch)
    loss = 0.0
    for given, pseudo_label in zip(unlabeled, batch.pseudo_labels.tolist(), strict=True):
        loss -= sum(p * math.log(q) for p, q in zip(pseudo_label, _softmax(given), strict=True)) / N
    assert float(found["loss"]) == pytest.approx(_labeled_loss(labeled, batch) + 0.7 * loss, rel=1e-5)
    assert found[PSEUDO_LABELS].tolist() == [
        _argmax(pseudo_label) for pseudo_label in batch.pseudo_labels.tolist()
    ]
    other = dataclasses.replace(batch, pseudo_labels=batch.pseudo_labels.flip(0))  # of other patches: noticed
    assert float(found["loss"]) != pytest.approx(
        float(_method("spatial_neighbors").measure((labeled, unlabeled), other)["loss"])
    )


def test_neighbors_learn_scores_as_they_are() -> None:
    batch = _batch(scores=True)
    assert batch.pseudo_labels is not None
    labeled, unlabeled = torch.tensor([[0.2], [0.4], [0.6], [0.8]]), torch.linspace(0, 1, N).unsqueeze(1)
    found = _method("spatial_neighbors", scores=True).measure((labeled, unlabeled), batch)
    of_labeled = sum((float(s) - float(t)) ** 2 for s, t in zip(labeled, batch.targets, strict=True)) / B
    apart = [(float(s) - float(g)) ** 2 for s, g in zip(unlabeled, batch.pseudo_labels, strict=True)]
    assert float(found["loss"]) == pytest.approx(of_labeled + 0.7 * sum(apart) / N, rel=1e-5)


def test_hard_pseudo_labels_of_each_class_are_drawn_equally_often_and_soft_ones_are_not() -> None:
    method = _method("spatial_neighbors")
    sure = torch.eye(K)[[0] * 90 + [1] * 9 + [2]]
    chances = method.sampling_probabilities(sure)
    assert chances.sum() == pytest.approx(1)
    assert [chances[part].sum() for part in (slice(90), slice(90, 99), slice(99, 100))] == pytest.approx(
        [1 / 3] * 3
    )
    half = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    assert method.sampling_probabilities(half) == pytest.approx([1 / 6, 1 / 6, 2 / 3])
    soft = torch.tensor([[0.8, 0.2, 0.0]] * 9 + [[0.4, 0.6, 0.0]])
    often = method.sampling_probabilities(soft) @ soft.numpy()
    assert soft.mean(dim=0)[1] < often[1] < 0.4 < 0.6 < often[0]
    assert _method("spatial_neighbors", scores=True).sampling_probabilities(
        torch.rand(5, 1)
    ) == pytest.approx([0.2] * 5)


def test_adabn_reports_a_model_without_batch_norm(caplog: pytest.LogCaptureFixture) -> None:
    method, parts = METHODS["adabn"], {"objective": Classification(["a", "b", "c"]), "patch_px": SIDE}
    parts |= {"mpp": None, "n_aug": 2, "recipe": RECIPE, "settings": method.Settings()}
    method(model=TaskModel(build_encoder(), "linear", K), **parts)
    assert not caplog.records
    bare = TaskModel(build_encoder(), "linear", K)
    bare.encoder = torch.nn.Identity()
    method(model=bare, **parts)
    assert "no batch-norm" in caplog.text


@pytest.mark.parametrize(
    ("name", "scores"),
    [*((name, name in OF_SCORES) for name in SETTINGS), *((name, True) for name in OF_BOTH)],
)
def test_a_step_trains_the_student_alone_and_the_average_follows_with_its_statistics(
    name: str, scores: bool
) -> None:
    method = _method(name, scores)
    optimizer = method.optimizer(Schedule(1, "sgd", 0.05, 0.0, ()))
    before = {key: value.clone() for key, value in method.model.state_dict().items()}
    expected = {key: value.clone() for key, value in before.items()}
    for step in (1, 2, 3):
        batch = _batch(scores, step)
        method.network.train()
        measured = method.measure(method.outputs(method.views(batch)), batch)
        assert set(measured) == set(method.measures)
        measured["loss"].mean().backward()
        assert all(parameter.grad is None for parameter in method.model.parameters())
        optimizer.step()
        optimizer.zero_grad()
        method.after_step()
        kept = min(0.9, 1 - 1 / (step + 1))
        student = method.network.student.state_dict()
        for key, value in expected.items():
            new = kept * value + (1 - kept) * student[key] if value.is_floating_point() else student[key]
            expected[key] = new.clone()
    after = method.model.state_dict()
    moved = [key for key in after if key.endswith("running_mean")]
    assert moved
    assert all((after[key] != before[key]).any() for key in moved)
    for key, value in expected.items():
        torch.testing.assert_close(after[key], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in SETTINGS if name not in (*OF_SCORES, *OF_BOTH)])
def test_methods_of_classes_refuse_scores_in_one_line(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} learns classes"):
        _method(name, scores=True)


def test_the_trunk_has_a_rate_of_its_own() -> None:
    head, trunk = _method("fixmatch").optimizer(Schedule(1, "adam", 0.01, 0.0, ())).param_groups
    assert (head["lr"], trunk["lr"]) == (0.01, pytest.approx(0.001))
    assert sum(p.numel() for p in trunk["params"]) > 10**7


def test_pseudo_labels_of_strong_views_of_other_images_would_be_noticed() -> None:
    labeled, weak, strong = _logits(B, N, N)
    method = _method("fixmatch")
    right = method.measure((labeled, weak, strong), _batch())["loss"]
    assert float(right) != pytest.approx(
        float(method.measure((labeled, weak, strong.flip(0)), _batch())["loss"])
    )


@pytest.mark.parametrize(
    ("name", "scores"),
    [(name, name in OF_SCORES) for name in SETTINGS] + [(name, True) for name in OF_BOTH],
)
def test_a_method_of_pseudo_labels_gives_one_for_every_unlabeled_patch(name: str, scores: bool) -> None:
    method, batch = _method(name, scores), _batch(scores)
    found = method.measure(method.outputs(method.views(batch)), batch)
    assert (PSEUDO_LABELS in found) == (PSEUDO_LABELS in method.measures) == (name != "supervised")
    if PSEUDO_LABELS in found:
        assert found[PSEUDO_LABELS].shape == (N,)
        assert not found[PSEUDO_LABELS].requires_grad
        assert found[PSEUDO_LABELS].is_floating_point() == scores


def test_pseudo_labels_are_the_targets_of_the_unlabeled_loss() -> None:
    """Truth: each method's own words for it, row by row."""
    batch = _batch()
    labeled, weak, strong = _logits(B, N, N, seed=1)
    plain = [_argmax(_softmax(row)) for row in weak]
    for name in ("fixmatch", "freematch", "softmatch"):
        assert _method(name).measure((labeled, weak, strong), batch)[PSEUDO_LABELS].tolist() == plain
    assert _method("mean_teacher").measure((labeled, weak, strong), batch)[PSEUDO_LABELS].tolist() == plain
    of_labeled, of_weak = ([_softmax(row) for row in rows] for rows in (labeled, weak))
    ratios = [sum(row[c] for row in of_labeled) / B / (sum(row[c] for row in of_weak) / N) for c in range(K)]
    aligned = [_argmax([p * ratio for p, ratio in zip(row, ratios, strict=True)]) for row in of_weak]
    assert _method("adamatch").measure((labeled, weak, strong), batch)[PSEUDO_LABELS].tolist() == aligned
    assert aligned != plain
    mixmatch = _method("mixmatch")
    views = mixmatch.views(batch)
    with torch.no_grad():
        means = sum(mixmatch.network.student(view).softmax(dim=1) for view in views[1:])
    outputs = mixmatch.outputs(views)
    assert mixmatch.measure(outputs, batch)[PSEUDO_LABELS].tolist() == means.argmax(dim=1).tolist()


def test_sharpening_at_low_temperatures_takes_the_largest() -> None:
    probabilities = torch.tensor([[0.3, 0.25, 0.25, 0.2], [0.26, 0.25, 0.25, 0.24]])
    np.testing.assert_allclose(sharpen(probabilities, 0.01)[0], [1, 0, 0, 0], atol=1e-6)
    powers = probabilities.double() ** 2
    np.testing.assert_allclose(sharpen(probabilities, 0.5), powers / powers.sum(1, keepdim=True), rtol=1e-6)
