from __future__ import annotations

import pytest

from histo_monai.files.processes import map_over_processes


def _doubled(number: int) -> int:
    return 2 * number


@pytest.mark.parametrize("processes", [1, 2])
def test_results_come_in_the_order_of_the_arguments(processes: int) -> None:
    results = map_over_processes(_doubled, range(9), processes=processes, title="t", unit="slide")
    assert list(results) == [0, 2, 4, 6, 8, 10, 12, 14, 16]


@pytest.mark.parametrize("processes", [1, 2])
def test_the_bar_counts_images_where_a_call_handles_many(
    processes: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("histo_monai.process.progress.is_watched", lambda: True)
    work = map_over_processes(
        _doubled, [1, 2, 3], processes=processes, title="images", unit="image", sizes=[64, 64, 2]
    )
    assert list(work) == [2, 4, 6]
    last = capsys.readouterr().err.split("\r")[-1]
    assert "130/130" in last
    assert "image/s" in last
