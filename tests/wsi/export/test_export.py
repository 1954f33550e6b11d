"""Models for use elsewhere give what they give here: on patches, on a whole real slide, and after the way back."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import monai.bundle
import numpy as np
import pytest
import safetensors.torch
import torch

from histo_monai.models.checkpoint import load_model, read_description, save_model
from histo_monai.models.encoder import build_encoder
from histo_monai.models.losses import Classification, Regression
from histo_monai.models.reference import TrainingReference, has_reference
from histo_monai.models.task_model import from_task_model
from histo_monai.pipeline.commands.export import bundle_settings
from histo_monai.pipeline.commands.map import Look
from histo_monai.slides import Box, open_slide
from histo_monai.slides.tiles.usable import TissueRules
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import OutputError
from histo_monai.wsi.export.back import take_back
from histo_monai.wsi.export.bundle import write_bundle
from histo_monai.wsi.export.metadata import SCHEMA
from histo_monai.wsi.export.onnx import predict, write_onnx
from histo_monai.wsi.export.parts import MapWriter, TissueLoader
from histo_monai.wsi.export.trunk import write_trunk
from histo_monai.wsi.heatmaps.heatmap import Heatmap, read_heatmap
from histo_monai.wsi.inference.heatmaps import map_slide
from histo_monai.wsi.inference.models import MapPlan, load_models, mapped_classes
from tests.folders import NewFolder
from tests.wsi.export.task_models import MPP, SIDE, TASKS, save_task_model

LOOK = {"tissue_mpp": 16.0, "min_tissue_fraction": 0.5, "batch_size": 32}


@pytest.fixture(scope="module", params=TASKS)
def model(request: pytest.FixtureRequest, module_folder: NewFolder) -> Path:
    return save_task_model(module_folder(request.param) / "model.safetensors", TASKS[request.param])


@pytest.fixture(scope="module")
def slide(real_slides: Path) -> Path:
    return real_slides / "cmu-1-small-region.svs"


@pytest.fixture(scope="module")
def patches(slide: Path) -> np.ndarray:
    """A hundred, on a grid over the slide, (100, 3, P, P), 0..1."""
    with open_slide(slide) as opened:
        height, width = opened.size_yx
        places = [
            (y, x) for y in np.linspace(100, height - 100, 10) for x in np.linspace(100, width - 100, 10)
        ]
        return opened.read_many([Box(place, SIDE, MPP) for place in places]).astype(np.float32) / 255


@pytest.fixture(scope="module")
def ours(model: Path, slide: Path) -> Heatmap:
    """The map of the slide by this project's own engine."""
    classes = mapped_classes(from_task_model(model)[1]["classes"], None)
    plan = MapPlan(SIDE, MPP, SIDE * MPP, TissueRules(), 0.5, 32)
    device = torch.device("cpu")
    models = load_models({"model": model}, classes, plan, device)
    models.network.eval()  # type: ignore[attr-defined]  # a module
    return map_slide(slide, None, models, plan, device=device, workers=0)


def _predictions(model: Path, patches: np.ndarray) -> np.ndarray:
    network, about = from_task_model(model)
    objective = Classification(about["classes"]) if about["classes"] else Regression()
    with torch.inference_mode():
        return objective.predictions(network.eval()(torch.from_numpy(patches))).numpy()


@pytest.mark.slow
def test_a_bundle_maps_a_slide_with_the_same_scores(
    model: Path, slide: Path, ours: Heatmap, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle"
    write_bundle(model, bundle, LOOK, "a laboratory")
    monai.bundle.run(
        config_file=str(bundle / "configs/inference.json"),
        meta_file=str(bundle / "configs/metadata.json"),
        bundle_root=str(bundle),
        slide=str(slide),
        logging_file=False,
    )
    theirs = read_heatmap(bundle / f"eval/{slide.stem}.csv")
    assert len(ours.cells) > 100
    np.testing.assert_array_equal(ours.cells, theirs.cells)
    assert set(ours.values) == set(theirs.values)
    for name, values in ours.values.items():
        assert np.ptp(values) > 0.01
        np.testing.assert_allclose(theirs.values[name], values, atol=1e-4)
    maps = sorted(path.name for path in (bundle / "eval").glob("*.tif"))
    wanted = {"model": [f"{slide.stem}.tif"]}
    several = sorted(f"{slide.stem}.{name.removeprefix('model:')}.tif" for name in ours.values)
    assert maps == wanted.get("".join(ours.values), several)
    with pytest.raises(OutputError, match="exists, and this command did not write it"):
        MapWriter(
            TissueLoader(str(slide), SIDE, MPP, **LOOK),
            str(bundle / "eval"),
            str(bundle / "models/model.json"),
        )


@pytest.mark.slow
def test_onnx_gives_the_same_numbers_on_patches_and_on_a_slide(
    model: Path, slide: Path, ours: Heatmap, patches: np.ndarray, tmp_path: Path
) -> None:
    import onnx

    graph = tmp_path / "model.onnx"
    write_onnx(model, graph)
    assert len(patches) == 100
    np.testing.assert_allclose(predict(graph, patches), _predictions(model, patches), atol=1e-4)
    loader = TissueLoader(str(slide), SIDE, MPP, **LOOK)  # type: ignore[arg-type]  # one is a whole number
    about = {entry.key: entry.value for entry in onnx.load(graph).metadata_props}
    classes = json.loads(about["classes"])
    found = np.empty((len(ours.cells), len(classes) or 1), np.float32)
    for batch in loader:
        found[batch["cell"].numpy()] = predict(graph, batch["image"].numpy())
    for name, values in ours.values.items():
        label = name.partition(":")[2] or ("tumor" if classes else "")
        column = classes.index(label) if classes else 0
        np.testing.assert_allclose(found[:, column], values, atol=1e-4)
    assert (about["mpp"], about["patch_px"]) == ("1.0", "64")
    with pytest.raises(OutputError, match="exists"):
        write_onnx(model, graph)


@pytest.mark.slow
@pytest.mark.parametrize(("head", "name"), [("pair", "resnet18"), ("linear", "vit_tiny_patch16_224")])
def test_other_heads_and_transformers_become_onnx_too(head: str, name: str, tmp_path: Path) -> None:
    model = save_task_model(tmp_path / "model.safetensors", ["a", "b"], head, name)
    write_onnx(model, tmp_path / "m.onnx")
    noise = np.random.default_rng(0).random((5, 3, SIDE, SIDE), np.float32)
    np.testing.assert_allclose(predict(tmp_path / "m.onnx", noise), _predictions(model, noise), atol=1e-4)


def test_metadata_has_every_field_that_the_specification_demands(model: Path, tmp_path: Path) -> None:
    write_bundle(model, tmp_path / "bundle", LOOK, "a laboratory")
    about = json.loads((tmp_path / "bundle/configs/metadata.json").read_bytes())
    assert about["schema"] == SCHEMA
    schema = tmp_path / "schema.json"  # its mandatory fields, as the specification lists them
    schema.write_text(json.dumps(_SCHEMA))
    monai.bundle.verify_metadata(str(tmp_path / "bundle/configs/metadata.json"), filepath=str(schema))
    monai.bundle.verify_net_in_out(
        "network_def",
        str(tmp_path / "bundle/configs/metadata.json"),
        str(tmp_path / "bundle/configs/inference.json"),
        device="cpu",
        bundle_root=str(tmp_path / "bundle"),
    )
    del about["authors"]
    (tmp_path / "worse.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match="'authors' is a required property"):
        monai.bundle.verify_metadata(str(tmp_path / "worse.json"), filepath=str(schema))


_TENSORS = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": {
        "type": "object",
        "properties": {
            **{key: {"type": "string"} for key in ("type", "format", "dtype", "modality")},
            **{"num_channels": {"type": "integer"}, "is_patch_data": {"type": "boolean"}},
            **{key: {"type": "array"} for key in ("spatial_shape", "value_range")},
            "channel_def": {"type": "object"},
        },
        "required": [
            *("type", "format", "modality", "num_channels", "spatial_shape", "dtype", "value_range"),
            *("is_patch_data", "channel_def"),
        ],
    },
}
_TEXTS = (
    *("schema", "version", "monai_version", "pytorch_version", "numpy_version", "task", "description"),
    *("authors", "copyright"),
)
_SCHEMA = {
    "type": "object",
    "properties": {
        **{key: {"type": "string", "minLength": 1} for key in _TEXTS},
        "required_packages_version": {"type": "object"},
        "network_data_format": {
            "type": "object",
            "properties": {"inputs": _TENSORS, "outputs": _TENSORS},
            "required": ["inputs", "outputs"],
        },
    },
    "required": [*_TEXTS, "required_packages_version", "network_data_format"],
}


def test_a_bundle_that_nobody_touched_comes_back_as_it_was(model: Path, tmp_path: Path) -> None:
    write_bundle(model, tmp_path / "bundle", LOOK, "a laboratory")
    back = take_back(tmp_path / "bundle", tmp_path / "back", None)
    assert back.read_bytes() == model.read_bytes()
    assert load_model(back)[1] == load_model(model)[1]


@pytest.mark.parametrize("model", ["two"], indirect=True)
def test_labeled_patches_and_thresholds_come_back_with_the_weights_that_they_are_of(
    model: Path, tmp_path: Path
) -> None:
    state, about = load_model(model)
    rows = np.random.default_rng(0).random((8, 512), np.float32)
    reference = TrainingReference.fit(rows, np.arange(8))
    assert reference is not None
    labeled = tmp_path / "model.safetensors"
    save_model(labeled, {**state, **reference.tensors()}, {**about, "conformal": {"rates": []}})
    write_bundle(labeled, tmp_path / "bundle", LOOK, "a laboratory")
    back = take_back(tmp_path / "bundle", tmp_path / "back", None)
    assert back.read_bytes() == labeled.read_bytes()
    weights = tmp_path / "bundle/models/model.pt"
    assert take_back(weights, tmp_path / "like", labeled).read_bytes() == labeled.read_bytes()
    trained = torch.load(weights, weights_only=True)
    trained["head.linear.bias"] += 1.5
    torch.save(trained, weights)
    trained_since = take_back(tmp_path / "bundle", tmp_path / "trained", None)
    assert not has_reference(trained_since)
    assert "conformal" not in read_description(trained_since.with_suffix(".json"))


def test_weights_that_were_trained_since_come_back_without_the_metrics_of_others(
    model: Path, patches: np.ndarray, tmp_path: Path
) -> None:
    write_bundle(model, tmp_path / "bundle", LOOK, "a laboratory")
    weights = tmp_path / "bundle/models/model.pt"
    state = torch.load(weights, weights_only=True)
    state["head.linear.bias"] += 1.5
    torch.save({f"module.{name}": tensor for name, tensor in state.items()}, weights)
    back = take_back(tmp_path / "bundle", tmp_path / "back", None)
    network, about = from_task_model(back)
    assert about["metrics"] == {}
    assert set(about["imported"]) == {"file_sha256", "in_place_of"}
    assert torch.equal(network.state_dict()["head.linear.bias"], state["head.linear.bias"])
    like = take_back(weights, tmp_path / "like", model)
    assert like.read_bytes() == back.read_bytes()


@pytest.mark.parametrize("model", ["two"], indirect=True)
def test_what_does_not_fit_is_reported_and_nothing_is_written(model: Path, tmp_path: Path) -> None:
    write_bundle(model, tmp_path / "bundle", LOOK, "a laboratory")
    weights = tmp_path / "bundle/models/model.pt"
    state = torch.load(weights, weights_only=True)
    del state["head.linear.bias"]
    torch.save(state, weights)
    with pytest.raises(InputError, match=r"head\.linear\.bias is missing"):
        take_back(tmp_path / "bundle", tmp_path / "back", None)
    with pytest.raises(InputError, match="Fix: give --like MODEL"):
        take_back(weights, tmp_path / "back", None)
    with pytest.raises(InputError, match=r"bundle: .* Fix: leave out --like"):
        take_back(tmp_path / "bundle", tmp_path / "back", model)
    with pytest.raises(InputError, match=r"gone\.pt: not found\. Fix: name a bundle"):
        take_back(tmp_path / "gone.pt", tmp_path / "back", model)
    weights.unlink()
    with pytest.raises(InputError, match=r"no bundle, models/model\.pt is missing"):
        take_back(tmp_path / "bundle", tmp_path / "back", None)
    with pytest.raises(InputError, match=r"m\.pb: .* ends in \.onnx"):
        write_onnx(model, tmp_path / "m.pb")
    assert not (tmp_path / "back").exists()
    (tmp_path / "bundle/docs/notes.md").write_text("mine")
    with pytest.raises(OutputError, match="did not write it"):
        write_bundle(model, tmp_path / "bundle", LOOK, "a laboratory")


@pytest.mark.parametrize("model", ["two"], indirect=True)
def test_without_the_packages_of_the_extra_the_line_states_what_to_install(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(
        InputError, match=r"onnxscript: not installed\. Fix: pip install '\./histo_monai\[export\]'"
    ):
        write_onnx(model, tmp_path / "m.onnx")


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224"])
def test_the_four_lines_load_the_trunk_without_this_package(
    name: str, patches: np.ndarray, tmp_path: Path
) -> None:
    model = save_task_model(tmp_path / "model.safetensors", ["a", "b"], name=name)
    lines = write_trunk(model, tmp_path / "trunk.safetensors")
    assert len(lines.splitlines()) == 4
    import timm
    import torchvision

    known: dict[str, Any] = {
        **{"torch": torch, "timm": timm, "torchvision": torchvision, "safetensors": safetensors},
        "patches": torch.from_numpy(patches),
    }
    with torch.inference_mode():
        exec(lines, known)
        wanted = from_task_model(model)[0].encoder.eval()(known["patches"])
    torch.testing.assert_close(known["features"], wanted, rtol=1e-5, atol=1e-5)
    with safetensors.safe_open(tmp_path / "trunk.safetensors", "pt") as file:
        about = file.metadata()
    assert (json.loads(about["mpp"]), about["patch_px"]) == (MPP, str(SIDE))


TINY = {"depth": 2, "embed_dim": 48, "num_heads": 3}


@pytest.mark.parametrize(
    ("name", "side", "arguments"),
    [
        ("rsp-resnet18", None, None),
        ("resnet18", 96, None),
        ("uni2-h", 56, TINY),
        ("virchow2", 56, TINY | {"reg_tokens": 2}),
        ("vit_tiny_patch16_224", 96, {"init_values": 1e-5}),
    ],
)
def test_the_lines_of_a_published_encoder_give_its_features(
    name: str, side: int | None, arguments: dict[str, Any] | None, patches: np.ndarray, tmp_path: Path
) -> None:
    import timm
    import torchvision

    encoder = build_encoder(name, SIDE, side_px=side, arguments=arguments)
    about = encoder.description(architecture="trunk", head="linear", patch_px=SIDE, mpps=[1.0])
    about |= {"kind": "encoder", "method": "pretrained", "source": "raw", "corpus": "own"}
    state = {f"encoder.{key}": tensor for key, tensor in encoder.state_dict().items()}
    save_model(tmp_path / "encoder.safetensors", state, about)
    lines = write_trunk(tmp_path / "encoder.safetensors", tmp_path / "trunk.safetensors")
    given = torch.from_numpy(patches[:12])
    known: dict[str, Any] = {
        **{"torch": torch, "timm": timm, "torchvision": torchvision, "safetensors": safetensors},
        "patches": given,
    }
    with torch.inference_mode():
        exec(lines, known)
        torch.testing.assert_close(known["features"], encoder.eval()(given), rtol=1e-5, atol=1e-5)
    with safetensors.safe_open(tmp_path / "trunk.safetensors", "pt") as file:
        header = file.metadata()
    assert header["side"] == str(side or 256)
    assert json.loads(header.get("arguments", "null")) == arguments
    expected = "class and mean of patches" if name == "virchow2" else "vector"
    assert header["output"] == expected


def test_the_header_of_the_default_trunk_has_no_new_key(tmp_path: Path) -> None:
    model = save_task_model(tmp_path / "model.safetensors", ["a", "b"])
    write_trunk(model, tmp_path / "trunk.safetensors")
    with safetensors.safe_open(tmp_path / "trunk.safetensors", "pt") as file:
        assert set(file.metadata()) == {"format", "name", "mean", "std", "patch_px", "mpp", "card"}


@pytest.mark.parametrize("model", ["score"], indirect=True)
def test_a_trunk_that_others_do_not_build_is_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="depth is stage 1 of resnet18, which torchvision and timm cannot build"
    ):
        write_trunk(model, tmp_path / "trunk.safetensors")
    assert not list(tmp_path.glob("trunk*"))


@pytest.mark.slow
def test_an_encoder_becomes_onnx_that_gives_features(patches: np.ndarray, tmp_path: Path) -> None:
    encoder = build_encoder("resnet18", SIDE)
    about = encoder.description(architecture="trunk", head="linear", patch_px=SIDE, mpps=[1.0, 2.0, 4.0])
    about |= {"kind": "encoder", "method": "rsp", "source": "raw", "corpus": "own"}
    state = {f"encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
    save_model(tmp_path / "encoder.safetensors", state, about)
    write_onnx(tmp_path / "encoder.safetensors", tmp_path / "e.onnx")
    with torch.inference_mode():
        wanted = encoder.eval()(torch.from_numpy(patches)).numpy()
    np.testing.assert_allclose(predict(tmp_path / "e.onnx", patches), wanted, atol=1e-4)


def test_look_of_a_folder_without_params_is_that_of_map() -> None:
    assert bundle_settings(Look()) == LOOK | {"batch_size": 256}
