"""`suggest` with heads on stored features: the patches of slides are not encoded again."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from histo_monai.models.encoder import Encoder
from histo_monai.pipeline.cli import main
from histo_monai.pipeline.commands import suggest
from histo_monai.pipeline.suggestions.search import _outlines_of
from histo_monai.pipeline.suggestions.squares import taken
from histo_monai.pipeline.suggestions.stored import stored_embeddings
from histo_monai.training.embedding import embed
from tests.folders import NewFolder, work_in_copy
from tests.hostile.project import STAGES, params_with, write_own_project

pytestmark = pytest.mark.slow

RUN = ("--method", "random", "--student", "supervised", "--seed", "0")
SUGGEST = ("suggest", *RUN, "--num", "4", "--random", "2")
SUGGESTED = Path("data/suggestions/random-0-supervised-0/suggestions.csv")


@pytest.fixture(scope="module")
def fitted(module_folder: NewFolder) -> Path:
    """Own slides, a random encoder, its features, and a head with its student."""
    folder = module_folder("suggested")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_own_project()
        params_with(encoder__name="resnet18", finetune__mode="head", semisupervised_methods=["supervised"])()
        for call in (
            *STAGES[:2],
            ("features", "--method", "random"),
            ("finetune", "--method", "random", "--seed", "0"),
            ("consistency", *RUN),
        ):
            assert main(call) == 0
    return folder


@pytest.fixture
def project(fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the project."""
    work_in_copy(fitted, tmp_path, monkeypatch)


@pytest.mark.usefixtures("project")
def test_features_and_predictions_are_those_of_the_encoded_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []

    def refuse(self: Encoder, patches: torch.Tensor) -> torch.Tensor:
        raise AssertionError("a patch is encoded")

    def noted(*arguments: Any) -> Any:
        calls.append((arguments, found := stored_embeddings(*arguments)))
        return found

    monkeypatch.setattr(suggest, "stored_embeddings", noted)
    with monkeypatch.context() as patch:
        patch.setattr(Encoder, "forward", refuse)
        assert main(SUGGEST) == 0
    assert pd.read_csv(SUGGESTED)["chosen_by"].tolist() == ["model"] * 4 + ["random"] * 2
    ((assembly, run, _, *tables), found) = calls[0]
    models = assembly.load_run(run)
    for rows, embedding in zip(tables, found, strict=True):
        expected = embed(assembly.in_order(rows).loader, models, assembly.task, features_of="student")
        scale = np.abs(expected.features).max()
        np.testing.assert_allclose(embedding.features, expected.features, atol=2e-3 * scale)
        for name, values in expected.predictions.items():
            np.testing.assert_allclose(embedding.predictions[name], values, atol=0.02)


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("change", ["a file is missing", "another slide", "other cells"])
def test_patches_are_encoded_where_stored_features_do_not_apply(
    change: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = sorted(Path("data/features/random-0").glob("*.h5"))
    if change == "a file is missing":
        for file in files:
            file.unlink()
    elif change == "another slide":
        contents = [file.read_bytes() for file in files]
        for file, content in zip(files, [*contents[1:], contents[0]], strict=True):
            file.write_bytes(content)
    else:
        params_with(index__min_tissue_fraction=0.1)()
    with caplog.at_level(logging.INFO):
        assert main(SUGGEST) == 0
    assert "encoding patches" in caplog.text
    assert len(pd.read_csv(SUGGESTED)) == 6


def test_a_slide_is_known_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels and outlines count on links of their slide, and on no other slide of equal id."""
    monkeypatch.chdir(tmp_path)
    Path("a.tif").touch()
    Path("b.tif").touch()
    Path("link.tif").symlink_to("a.tif")
    square = {"y": 100.0, "x": 90.0, "mpp": 1.0, "side_px": 32.0}
    candidates = pd.DataFrame([{"slide_id": "a", "path": "a.tif", "slide_mpp": 0.5, **square}])
    labeled = pd.DataFrame([{"path": "link.tif", **square}, {"path": "b.tif", **square}])
    found = taken(labeled, candidates)
    assert found[["path", "slide_mpp", "x"]].to_numpy().tolist() == [["link.tif", 0.5, 90.0]]
    known = [("link.tif", "masks/a.geojson"), ("b.tif", "masks/b.geojson")]
    slides = pd.DataFrame({"slide_id": ["s", "a"], "path": ["a.tif", "c.tif"]})
    assert _outlines_of(slides, pd.DataFrame(known, columns=["path", "outlines"])) == {"s": "masks/a.geojson"}
