"""A few kills of those that `python -m tests.hostile.kill` does by the dozen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile.kill import contents, differences, kill_and_resume


@pytest.mark.slow
def test_stages_that_are_killed_at_random_moments_end_in_the_bytes_of_an_undisturbed_run(
    tmp_path: Path,
) -> None:
    kills = list(kill_and_resume(tmp_path, kills=5, seed=1, quick=True))
    assert len(kills) == 5
    killed = {kill.stage.removesuffix(" rsp") for kill in kills}
    assert killed == {"pretrain", "finetune", "consistency", "heatmap"}
    assert all(kill.after_s > 0 for kill in kills)


def test_a_byte_or_a_file_that_differs_is_named(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name / "folder").mkdir(parents=True)
        (tmp_path / name / "folder/same").write_text("same")
    (tmp_path / "one/model").write_bytes(b"\0")
    (tmp_path / "other/model").write_bytes(b"\1")
    (tmp_path / "other/.draft").touch()
    assert differences(contents(tmp_path / "one"), contents(tmp_path / "other")) == [".draft", "model"]
    assert contents(tmp_path / "nothing") == {}
