import numpy as np
import pytest
import torch

from histo_monai.transforms.sequence import (
    UNUSED,
    apply_in_sequence,
    compose_in_sequence,
    random_distinct_schedule,
    random_schedule,
)


def test_each_image_goes_through_its_own_operations_in_its_own_order():
    operations = (
        lambda images, parameters: images + parameters[:, 0].view(-1, 1, 1, 1),
        lambda images, parameters: images * parameters[:, 0].view(-1, 1, 1, 1),
    )
    added, factors = [1.0, 2.0, 3.0, 4.0, 5.0], [10.0, 20.0, 30.0, 40.0, 50.0]
    schedule = np.array([[0, 1], [1, 0], [0, UNUSED], [UNUSED, UNUSED], [UNUSED, 1]])
    parameters = (torch.tensor(added)[:, None], torch.tensor(factors)[:, None])
    result = apply_in_sequence(torch.ones(5, 3, 2, 2), schedule, operations, parameters)
    expected = [(1 + 1) * 10, 1 * 20 + 2, 1 + 3, 1, 1 * 50]
    assert result[:, 0, 0, 0].tolist() == expected


def test_unscheduled_operations_are_never_called():
    def refuse(images, parameters):
        raise AssertionError("called")

    images = torch.ones(3, 3, 2, 2)
    schedule = np.full((3, 2), UNUSED)
    assert torch.equal(apply_in_sequence(images, schedule, (refuse,), (torch.zeros(3, 1),)), images)


def test_images_are_what_each_alone_would_be_in_fewer_calls_than_step_by_step():
    rng, num, kinds = np.random.default_rng(0), 40, 5
    factors = torch.from_numpy(rng.uniform(0.5, 2, (kinds, num, 1)))
    calls = []

    def operation(kind):
        def apply(images, own):  # does not commute with the others
            calls.append(kind)
            return (images + kind) * own.view(-1, 1, 1, 1)

        return apply

    schedule = random_schedule(np.random.RandomState(0), num, kinds, 0.6)
    schedule[::2] = schedule[::2, ::-1]  # unused steps first
    images = torch.from_numpy(rng.random((num, 3, 2, 2)))
    expected = images.clone()
    for row, own in enumerate(schedule):
        for kind in own[own != UNUSED]:
            expected[row] = (expected[row] + kind) * factors[kind, row]
    result = apply_in_sequence(images, schedule, [operation(kind) for kind in range(kinds)], factors)
    assert torch.equal(result, expected)
    assert len(calls) < sum(len(set(step) - {UNUSED}) for step in schedule.T.tolist())


def test_operations_meet_their_images_together():
    sizes = []

    def count(images, parameters):
        sizes.append(len(images))
        return images

    schedule = np.array([[0, UNUSED], [0, 0], [UNUSED, 0], [0, 0]])
    apply_in_sequence(torch.ones(4, 3, 2, 2), schedule, (count,), (torch.zeros(4, 1),))
    assert sizes == [4, 2]


def test_operations_are_selected_with_their_probability_in_every_order():
    schedule = random_schedule(np.random.RandomState(0), 20_000, 3, 0.3)
    counts = [(schedule == operation).any(axis=1).mean() for operation in range(3)]
    # Four standard deviations of a fraction of 20,000: 4 sqrt(0.3 · 0.7 / 20000) = 0.013.
    assert np.allclose(counts, 0.3, atol=0.013)
    pairs = schedule[(schedule != UNUSED).all(axis=1)]
    orders, frequency = np.unique(pairs, axis=0, return_counts=True)
    assert len(orders) == 6
    # About 540 rows with all three, 90 of each order; 4 standard deviations are 35.
    assert np.abs(frequency - len(pairs) / 6).max() < 4 * np.sqrt(len(pairs) * 5 / 36)


def test_probability_zero_and_one_select_nothing_and_everything():
    assert (random_schedule(np.random.RandomState(0), 50, 4, 0.0) == UNUSED).all()
    everything = random_schedule(np.random.RandomState(0), 50, 4, 1.0)
    assert (np.sort(everything, axis=1) == np.arange(4)).all()


@pytest.mark.parametrize("count", [1, 4])
def test_distinct_operations_stand_at_every_step_equally_often(count):
    schedule = random_distinct_schedule(np.random.RandomState(0), 8000, 4, count)
    assert schedule.shape == (8000, count)
    ordered = np.sort(schedule, axis=1)
    assert (ordered[:, 1:] > ordered[:, :-1]).all()
    for step in schedule.T:
        counts = np.bincount(step, minlength=4)
        assert np.abs(counts - 2000).max() < 4 * np.sqrt(8000 * 0.25 * 0.75)


def test_fewer_distinct_operations_are_the_first_of_more():
    few, many = (random_distinct_schedule(np.random.RandomState(0), 50, 10, count) for count in (3, 10))
    assert (few == many[:, :3]).all()


def test_each_sample_s_matrices_are_composed_in_its_own_order():
    rng = np.random.default_rng(0)
    first, second = torch.from_numpy(rng.normal(size=(2, 5, 2, 3, 3)))
    schedule = np.array([[0, 1], [1, 0], [0, UNUSED], [UNUSED, UNUSED], [7, 1]])
    composed = compose_in_sequence([first, second], schedule)
    unchanged = torch.eye(3, dtype=torch.float64).expand(2, 3, 3)
    expected = [first[0] @ second[0], second[1] @ first[1], first[2], unchanged, second[4]]
    assert torch.allclose(composed, torch.stack(expected))
