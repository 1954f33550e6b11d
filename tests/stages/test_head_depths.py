"""Several depths of the encoder: stored in one pass, compared by heads, mapped and exported as one network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import tifffile
import torch

from histo_monai.data.features.store import read_features
from histo_monai.data.features.tables import features_of_rows
from histo_monai.data.tables.patches import read_patches
from histo_monai.finetuning.heads.settings import SelectionSettings
from histo_monai.models.checkpoint import load_model
from histo_monai.models.encoder import Encoder
from histo_monai.models.settings import COLOR, FIELD
from histo_monai.models.task_model import TaskModel, from_task_model
from histo_monai.pipeline.cli import main
from histo_monai.pipeline.params.head_sections import HeadParams
from histo_monai.pipeline.stored_features import StoredRows
from histo_monai.slides import Box, open_slide
from histo_monai.slides.tiles.usable import TissueRules
from histo_monai.wsi.api import load_model as load_trained
from histo_monai.wsi.api import predict
from histo_monai.wsi.inference.models import MapPlan
from histo_monai.wsi.inference.stream import SlidePatches
from tests.folders import NewFolder, work_in_copy
from tests.hostile.project import STAGES, params_with, write_own_project

pytestmark = pytest.mark.slow

ENCODE = ("features", "--method", "random")
FINETUNE = ("finetune", "--method", "random", "--seed", "0")
RUN = ("--method", "random", "--student", "supervised", "--seed", "0")
MODEL = Path("data/models/random-0-0/finetuned/model.safetensors")
FOLDER = Path("data/features/random-0")


@pytest.fixture(scope="module")
def fitted(module_folder: NewFolder) -> tuple[Path, int]:
    """Own slides, features of three depths, a head; and the number of patches that the encoder saw."""
    folder = module_folder("depths")
    counts: list[int] = []
    forward = Encoder.forward

    def counted(self: Encoder, patches: torch.Tensor) -> torch.Tensor:
        if not patches.is_meta:
            counts.append(
                int((patches.flatten(1) != 0).any(1).sum())
            )  # Small batches are filled up with zeros.
        return forward(self, patches)

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_own_project()
        params_with(
            encoder__name="resnet18",
            finetune__mode="head",
            semisupervised_methods=["supervised"],
            slide_level__semisupervised_methods=["supervised"],
            labels__own__unlabeled=30,
            features__depth=[None, 3, 1],
            features__views=["flip"],
            features__precision="float32",
            features__batchnorm_patches=0,
        )()
        for call in STAGES[:2]:
            assert main(call) == 0
        patch.setattr(Encoder, "forward", counted)
        assert main(ENCODE) == 0
        num_encoded = sum(counts)
        for call in (FINETUNE, ("consistency", *RUN), ("evaluate", *RUN)):
            assert main(call) == 0
        assert sum(counts) == num_encoded
    return folder, num_encoded


@pytest.fixture
def project(fitted: tuple[Path, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the project with its head."""
    work_in_copy(fitted[0], tmp_path, monkeypatch)


def _mapped(model: TaskModel, input_px: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Tumor probabilities of a slide by the command `map`, and by the network on the inputs around the cells."""
    assert main(("map", "data/raw/own/s6.tif", "--model", str(MODEL), "--output", "maps")) == 0
    scores = pd.read_csv("maps/s6.map.csv")
    plan = MapPlan(input_px, 1.0, 32.0, TissueRules(), 0.5, 64)
    patches = SlidePatches.find(Path("data/raw/own/s6.tif"), None, plan)
    by_cell = {}
    with torch.inference_mode():
        for pixels, numbers in patches.batches(torch.device("cpu"), 0):
            probabilities = model.eval()(pixels).softmax(dim=1)[:, 1].numpy()
            cells = map(tuple, patches.cells[numbers].tolist())
            by_cell.update(zip(cells, probabilities, strict=True))
    cells = scores[["row", "column"]].itertuples(index=False, name=None)
    (column,) = [
        name for name in scores if name not in ("row", "column", "y", "x", "tissue", "model_distance")
    ]
    return scores[column].to_numpy(), np.array([by_cell[cell] for cell in cells])


def test_each_patch_and_view_is_encoded_once(
    fitted: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(fitted[0])
    files = FOLDER.rglob("*.h5")
    assert fitted[1] == 2 * sum(len(read_features(path).patch_id) for path in files)


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("depth", [1, 3, None])
def test_features_of_each_depth_are_those_of_a_run_of_this_depth(depth: int | None) -> None:
    views = ("", "flip")
    files = sorted(FOLDER.rglob("*.h5"))
    several = {
        (path, view): np.array(read_features(path, view=view, stage=depth or 0).features)
        for path in files
        for view in views
    }
    params_with(features__depth=depth)()
    assert main(ENCODE) == 0
    assert sorted(FOLDER.rglob("*.h5")) == files
    for (path, view), values in several.items():
        alone = read_features(path, view=view, depth=depth or 0).features
        np.testing.assert_allclose(values, alone, rtol=1e-6, atol=1e-6)
        assert values.std() > 0


@pytest.mark.usefixtures("project")
def test_a_mixture_of_depths_is_one_network_that_is_mapped_and_exported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model, description = from_task_model(MODEL)
    depths = {loss["depth"] for loss in description["selection"]["losses"]}
    assert depths == {"stage 1", "stage 3", "whole encoder", "all depths"}
    assert description["encoder"]["num_features"] == model.encoder.num_features == sum(model.encoder.widths)
    _check_map_and_export(model)
    capsys.readouterr()
    assert main(("export", str(MODEL), "--trunk", "trunk.safetensors")) == 1
    assert "stage 1, 3 of resnet18" in capsys.readouterr().err


@pytest.mark.usefixtures("project")
def test_color_beside_the_encoder_is_one_network_too(monkeypatch: pytest.MonkeyPatch) -> None:
    side_by_side = property(lambda _: SelectionSettings(depths="concatenated"))
    monkeypatch.setattr(HeadParams, "settings", side_by_side)
    params_with(features__depth=[0, None], features__views=[])()
    for call in (ENCODE, FINETUNE, ("consistency", *RUN), ("evaluate", *RUN), ("heatmap", *RUN)):
        assert main(call) == 0
    model, description = from_task_model(MODEL)
    assert description["encoder"]["earlier_stages"] == [COLOR]
    assert model.encoder.widths == (64, 512)
    _check_map_and_export(model)


@pytest.mark.usefixtures("project")
def test_the_field_around_a_patch_is_one_network_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_features(next(FOLDER.glob("*.h5"))).features
    side_by_side = property(lambda _: SelectionSettings(depths="concatenated"))
    monkeypatch.setattr(HeadParams, "settings", side_by_side)
    params_with(features__depth=None, features__field=2, features__views=[])()
    for call in (ENCODE, FINETUNE, ("consistency", *RUN), ("evaluate", *RUN), ("heatmap", *RUN)):
        assert main(call) == 0
    path = next(FOLDER.glob("*.h5"))
    np.testing.assert_allclose(read_features(path).features, before, rtol=1e-6, atol=1e-6)
    model, description = from_task_model(MODEL)
    assert description["encoder"]["earlier_stages"] == [FIELD]
    assert (description["encoder"]["field"], description["patch_px"]) == (2, 64)
    _check_features_of_field(model.encoder)
    _check_map_and_export(model, 64)
    scores = pd.read_csv("maps/s6.map.csv")
    stage = pd.read_csv(next(Path("data/heatmaps").rglob("s6.csv")))
    np.testing.assert_array_equal(stage[["row", "column"]], scores[["row", "column"]])
    (mine,) = [name for name in scores if name not in stage and name not in ("y", "x", "model_distance")]
    np.testing.assert_allclose(stage["student"], scores[mine], atol=1e-5)
    bundle = json.loads(Path("bundle/configs/inference.json").read_text())
    assert (bundle["loader"]["patch_px"], bundle["stride_um"]) == (64, 32.0)
    assert main(("suggest", *RUN, "--num", "2")) == 0
    slide, refused = ("data/raw/own/s6.tif",), ("--output", "refused")
    for call, word in (
        (("features", *slide, "--model", str(MODEL), *refused), "field around a patch"),
        (("export", str(MODEL), "--wsinfer", "refused"), "predicts the middle"),
        (("export", str(MODEL), "--trunk", "refused.safetensors"), "stage"),
    ):
        capsys.readouterr()
        assert main(call) == 1
        (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
        assert word in line
    with open_slide(Path(*slide)) as opened:
        boxes = [Box((float(y), float(x)), 64, 1.0) for y, x in scores[["y", "x"]].to_numpy()]
        probabilities = predict(load_trained(MODEL), opened, boxes)
    np.testing.assert_allclose(scores[mine], probabilities[:, 1], atol=1e-5)


def _check_features_of_field(encoder: Encoder) -> None:
    """Stored features of squares are those of pixels read, cropped, resized and encoded one by one."""
    rows = read_patches(Path("data/index/patches.csv"))
    rows = rows[rows["y"].notna()].iloc[:5].reset_index(drop=True)
    assert len(rows) == 5
    trunk = encoder.trunk.eval()

    def encoded(pixels: np.ndarray) -> np.ndarray:
        patch = torch.from_numpy(pixels.transpose(2, 0, 1)[None] / np.float32(255))
        patch = torch.nn.functional.interpolate(patch, (32, 32), mode="bilinear", antialias=True)
        with torch.inference_mode():
            return trunk((patch - encoder.mean) / encoder.std)[0].numpy()

    of_field = features_of_rows(FOLDER / "patches", rows, stage=FIELD)
    of_patch = features_of_rows(FOLDER / "patches", rows)
    for number, row in enumerate(rows.itertuples()):
        pixels = np.pad(tifffile.imread(row.path), ((32, 32), (32, 32), (0, 0)), constant_values=255)
        y, x = int(row.y) + 32, int(row.x) + 32
        field = pixels[y - 32 : y + 32, x - 32 : x + 32]
        np.testing.assert_allclose(of_field[number], encoded(field), rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(of_patch[number], encoded(field[16:48, 16:48]), rtol=1e-3, atol=1e-3)


def _check_map_and_export(model: TaskModel, input_px: int = 32) -> None:
    """Map, ONNX and bundle of the model give what the network gives."""
    mapped, expected = _mapped(model, input_px)
    assert len(mapped) > 20
    np.testing.assert_allclose(mapped, expected, atol=1e-5)
    into_qupath = () if model.encoder.field > 1 else (("--wsinfer", "in_qupath"),)
    for call in (("--onnx", "head.onnx"), ("--bundle", "bundle"), *into_qupath):
        assert main(("export", str(MODEL), *call)) == 0
    assert main(("import", "bundle", "--output", "imported")) == 0
    patches = torch.rand(3, 3, input_px, input_px)
    again, _ = from_task_model("imported/model.safetensors")
    with torch.inference_mode():
        outputs = model(patches)
        assert torch.equal(again.eval()(patches), outputs)
    session = onnxruntime.InferenceSession("head.onnx")
    (found,) = session.run(None, {session.get_inputs()[0].name: patches.numpy()})
    np.testing.assert_allclose(found, outputs.softmax(dim=1), atol=1e-4)


@pytest.mark.usefixtures("project")
def test_a_head_at_the_one_depth_that_separates_classes_has_an_encoder_that_ends_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored_at = StoredRows.at

    def drawn(self: StoredRows, rows: pd.DataFrame, depth: int | None) -> Any:
        """Features of stage 1 that state the class, and noise elsewhere, near the features of the encoder."""
        real = stored_at(self, rows, depth)
        noise = np.random.default_rng((len(rows), (depth or 0) + 1)).normal(size=real.shape)
        noise += (rows["label"] == "tumor").to_numpy()[:, None] * (depth == 1)
        return (real.mean(axis=0) + noise * real.std()).astype(np.float32)

    params_with(finetune__head__rule="best")()
    monkeypatch.setattr(StoredRows, "at", drawn)
    assert main(FINETUNE) == 0
    state, description = load_model(MODEL)
    (part,) = description["selection"]["parts"]
    assert part["depth"] == "stage 1"
    assert description["encoder"]["stages"] == 1
    assert "earlier_stages" not in description["encoder"]
    assert not [name for name in state if "layer2" in name]
    model, _ = from_task_model(MODEL)
    np.testing.assert_allclose(*_mapped(model), atol=1e-5)
    monkeypatch.setattr(StoredRows, "at", stored_at)
    for call in (("consistency", *RUN), ("evaluate", *RUN), ("heatmap", *RUN)):
        assert main(call) == 0


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("changes", "call", "words"),
    [
        (
            {"finetune__mode": "last", "semisupervised_methods": ["paper"]},
            FINETUNE,
            ("features.depth", "set finetune.mode: head"),
        ),
        ({"features__depth": [1, 1]}, ENCODE, ("features.depth", "none twice")),
        ({"features__depth": []}, ENCODE, ("features.depth",)),
        ({"features__depth": 0}, ENCODE, ("features.depth", "add null")),
        ({"features__field": 2}, FINETUNE, ("patch_px is 32, expected 64",)),
        ({"features__depth": [1, 9]}, ENCODE, ("no stage 9", "from 1 to 3")),
        ({"features__depth": [1, 2]}, FINETUNE, ("depth is 0, expected 2",)),
        ({"features__depth": [2, None]}, FINETUNE, ("after stage 2", "features.depth")),
    ],
)
def test_depths_that_cannot_be_used_are_one_line(
    changes: dict[str, object],
    call: tuple[str, ...],
    words: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    params_with(**changes)()
    assert main(call) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
    assert all(word in line for word in words), line


@pytest.mark.usefixtures("project")
def test_images_show_no_field_around_them(capsys: pytest.CaptureFixture[str]) -> None:
    params_with(features__field=2)()
    table = pd.read_csv("data/index/patches.csv")
    table.loc[:2, ["y", "x", "slide_mpp"]] = np.nan
    table.to_csv("data/index/patches.csv", index=False)
    for call in (("check",), ENCODE):
        assert main(call) == 1
        (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
        assert "features.field: 2, but 3 patches are images" in line
        assert "set features.field: 1" in line


@pytest.mark.usefixtures("project")
def test_a_new_depth_encodes_again_and_the_same_depths_do_not() -> None:
    files = sorted(FOLDER.rglob("*.h5"))
    before = [(path.stat().st_ino, path.read_bytes()) for path in files]
    assert main(ENCODE) == 0
    assert [(path.stat().st_ino, path.read_bytes()) for path in files] == before
    params_with(features__depth=[2, None])()
    assert main(ENCODE) == 0
    for path, (_, content) in zip(files, before, strict=True):
        assert path.read_bytes() != content
        assert (
            read_features(path, stage=2).features.shape[1] == 2 * 128
        )  # layer2 of a ResNet-18 has 128 channels
