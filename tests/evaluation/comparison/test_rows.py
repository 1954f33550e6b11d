from __future__ import annotations

from itertools import combinations

import pytest

from histo_monai.evaluation.comparison.rows import REFERENCE, Row, families, stacked_row

METHODS, STUDENTS = ("random", "rsp"), ("paper", "fixmatch")
NETWORKS = [Row(method, training) for training in ("finetune", *STUDENTS) for method in METHODS]
FROZEN = [Row(method, training) for training in ("linear", "knn") for method in METHODS]
STACKED = [stacked_row(method, student) for student in STUDENTS for method in METHODS]


@pytest.mark.parametrize("row", [*NETWORKS, *FROZEN, *STACKED, REFERENCE])
def test_a_row_is_read_from_its_id_and_is_one_of_three_kinds(row: Row) -> None:
    assert Row.of(row.id) == row
    assert row.is_network == (row in NETWORKS)
    assert row.is_baseline == (row in [*FROZEN, *STACKED])
    assert bool(row.student) == any(student in row.training for student in STUDENTS)


def test_ids_of_rows() -> None:
    rows = [Row("rsp", "finetune"), Row("rsp", "knn"), stacked_row("rsp", "paper"), REFERENCE]
    assert [row.id for row in rows] == ["rsp-finetune", "rsp-knn", "rsp-paper+color", "color"]
    assert stacked_row("rsp", "paper").student == "paper"


def test_more_baselines_leave_the_main_family_as_it_is() -> None:
    main = [*NETWORKS, REFERENCE]
    pairs = [(first.id, second.id) for first, second in combinations(main, 2)]
    assert families(main) == {"models": pairs, "baselines": []}
    assert families([*main, *FROZEN, *STACKED])["models"] == pairs


def test_a_baseline_is_tested_against_the_networks_of_its_method_and_color() -> None:
    pairs = families([*NETWORKS, REFERENCE, *FROZEN, *STACKED])["baselines"]
    of_baseline = {
        baseline.id: [second for first, second in pairs if first == baseline.id]
        for baseline in [*FROZEN, *STACKED]
    }
    assert sum(map(len, of_baseline.values())) == len(pairs) == len(set(pairs))
    assert of_baseline["rsp-linear"] == ["rsp-finetune", "rsp-paper", "rsp-fixmatch", "color"]
    assert of_baseline["random-knn"] == ["random-finetune", "random-paper", "random-fixmatch", "color"]
    assert of_baseline["rsp-fixmatch+color"] == ["rsp-finetune", "rsp-fixmatch", "color"]
