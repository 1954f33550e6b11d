"""Rows of the table, built by timm, against published shapes and counts."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch

from histo_monai.models.checkpoint import save_model
from histo_monai.models.encoder import build_encoder, encoder_from
from histo_monai.models.encoders.architectures import architecture
from histo_monai.models.encoders.published import PUBLISHED

COUNTS = {
    "uni": 303_350_784,
    "uni2-h": 681_394_176,
    "virchow": 631_229_184,
    "virchow2": 631_239_424,
    "h-optimus-0": 1_134_774_272,
    "h-optimus-1": 1_134_774_272,
    "prov-gigapath": 1_134_953_984,
    "phikon": 85_798_656,
    "phikon-v2": 303_351_808,
    "hibou-b": 85_741_056,
    "hibou-l": 303_659_264,
    "midnight-12k": 1_136_480_768,
}
"""Parameters of the published files, as third-party benchmarks count them after loading.

That of Prov-GigaPath is printed by the notebook `demo/run_gigapath.ipynb` of its publisher, too.
"""
ROUNDED = {"h0-mini": 85.7, "lunit-dino-s16": 86.7 / 4, "lunit-dino-s8": 86.7 / 4}
"""Millions of parameters: as third-party code states them, or float32 bytes of the file / 4."""
NOT_BUILT = {  # vectors of the width that a file holds beyond the trunk
    "phikon-v2": 1,  # mask token
    "hibou-b": 2,  # mask token; position of the class token, which is added to the class token
    "hibou-l": 2,
    "midnight-12k": 1 + 37**2 - 16**2,  # mask token; positions of 518 px, resampled to 224 px
}
STATED = {  # name -> width of a token, positions, blocks
    "uni": (1024, 197, 24),
    "uni2-h": (1536, 256, 24),
    "virchow": (1280, 257, 32),
    "virchow2": (1280, 261, 32),
    "h-optimus-0": (1536, 256, 40),
    "h-optimus-1": (1536, 256, 40),
    "h0-mini": (768, 256, 12),
    "prov-gigapath": (1536, 197, 40),
    "phikon": (768, 197, 12),
    "phikon-v2": (1024, 197, 24),
    "hibou-b": (768, 256, 12),
    "hibou-l": (1024, 256, 24),
    "midnight-12k": (1536, 257, 40),
    "lunit-dino-s16": (384, 197, 12),
    "lunit-dino-s8": (384, 785, 12),
}
SMALL: dict[str, dict[str, Any]] = {name: {"depth": 2, "embed_dim": 48, "num_heads": 3} for name in STATED}


def _on_meta(name: str) -> torch.nn.Module:
    with torch.device("meta"):
        return architecture(name).build(PUBLISHED[name].side_px)


def _num_parameters(name: str) -> int:
    return sum(tensor.numel() for tensor in _on_meta(name).parameters())


@pytest.mark.parametrize("name", STATED)
def test_a_transformer_has_the_published_shapes(name: str) -> None:
    width, positions, blocks = STATED[name]
    shapes = {key: tuple(tensor.shape) for key, tensor in _on_meta(name).state_dict().items()}
    assert shapes["pos_embed"] == (1, positions, width)
    assert shapes[f"blocks.{blocks - 1}.norm1.weight"] == (width,)
    assert f"blocks.{blocks}.norm1.weight" not in shapes
    assert not any(key.startswith(("head.", "fc_norm.")) for key in shapes)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_table_states_the_parameters_that_are_built(name: str) -> None:
    assert _num_parameters(name) == PUBLISHED[name].num_parameters
    assert PUBLISHED[name].sources


@pytest.mark.parametrize("name", COUNTS)
def test_a_transformer_has_every_parameter_of_the_published_file(name: str) -> None:
    vectors = NOT_BUILT.get(name, 0)
    assert _num_parameters(name) + vectors * STATED[name][0] == COUNTS[name]


@pytest.mark.parametrize("name", ROUNDED)
def test_a_transformer_has_the_rounded_number_of_parameters(name: str) -> None:
    assert _num_parameters(name) / 1e6 == pytest.approx(ROUNDED[name], abs=0.05)


def test_registers_of_virchow2_have_positions() -> None:
    """Virchow2's file has 8 vectors of 1280 more than Virchow's: four registers and their positions."""
    assert COUNTS["virchow2"] - COUNTS["virchow"] == (4 + 4) * 1280
    assert STATED["virchow2"][1] - STATED["virchow"][1] == 4


def test_convolutional_rows_have_the_published_parameters_without_their_classifiers() -> None:
    assert _num_parameters("rsp-resnet18") == 11_689_512 - (512 + 1) * 1000  # torchvision's ResNet-18
    assert _num_parameters("efficientnet-lite0") == 4_652_008 - (1280 + 1) * 1000  # EfficientNet-Lite0


@pytest.mark.parametrize(
    ("name", "registers"), [("uni2-h", 8), ("virchow2", 4), ("h0-mini", 4), ("hibou-l", 4)]
)
def test_registers_and_gated_layers_are_those_published(name: str, registers: int) -> None:
    state = _on_meta(name).state_dict()
    assert state["reg_token"].shape[1] == registers
    assert state["blocks.0.mlp.fc1.weight"].shape[0] == 2 * state["blocks.0.mlp.fc2.weight"].shape[1]
    assert "blocks.0.ls1.gamma" in state


@pytest.mark.parametrize("name", STATED)
def test_a_forward_of_a_small_copy_has_one_vector_for_each_patch(name: str) -> None:
    encoder = build_encoder(name, 64, arguments=SMALL[name]).eval()
    halves = 2 if PUBLISHED[name].output != "vector" else 1
    with torch.no_grad():
        features = encoder(torch.rand(2, 3, 64, 64))
    assert features.shape == (2, 48 * halves) == (2, encoder.num_features)
    again = encoder_from(encoder.about()).eval()
    again.load_state_dict(encoder.state_dict())
    with torch.no_grad():
        assert torch.equal(again(torch.ones(1, 3, 64, 64)), encoder(torch.ones(1, 3, 64, 64)))


def test_class_token_and_mean_of_patch_tokens_leave_registers_out() -> None:
    encoder = build_encoder("virchow2", 224, arguments=SMALL["virchow2"]).eval()
    patches = torch.rand(1, 3, 224, 224)
    with torch.no_grad():
        tokens = encoder.trunk.forward_features((patches - encoder.mean) / encoder.std)
        assert tokens.shape[1] == 1 + 4 + 16 * 16
        expected = torch.cat([tokens[:, 0], sum(tokens[:, k] for k in range(5, 261)) / 256], dim=1)
        torch.testing.assert_close(encoder(patches), expected)


def test_the_default_encoder_has_the_bytes_that_it_had_before_the_table(tmp_path: Path) -> None:
    """Digests of commit 7a8fc93, with all tensors 1."""
    encoder = build_encoder()
    assert set(encoder.about()) == {"name", "img_px", "num_features", "mean", "std", "weights"}
    state = {f"encoder.{name}": torch.ones_like(tensor) for name, tensor in encoder.state_dict().items()}
    about = encoder.description(architecture="trunk", head="linear", patch_px=64, mpps=[1.0, 2.0, 4.0])
    start = {"kind": "encoder", "method": "rsp", "source": "raw", "corpus": "own"}
    save_model(tmp_path / "encoder.safetensors", state, start | about)
    digests = {path.suffix: hashlib.sha256(path.read_bytes()).hexdigest() for path in tmp_path.iterdir()}
    assert digests == {
        ".safetensors": "eb06836aeae8d4c8df45adeb599db49994cc69f1a0896efb07a52c00f852de38",
        ".json": "59d334dc0fa7a3fd483577e82f9b9099d85816b140976f0dfeedc74805679314",
    }


def test_patches_are_resized_to_the_side_of_the_table_or_of_params() -> None:
    patches = torch.rand(1, 3, 64, 64)
    arguments = SMALL["uni"]
    for side, expected in ((None, 224), (96, 96)):
        encoder = build_encoder("uni", 64, arguments=arguments, side_px=side).eval()
        enlarged = torch.nn.functional.interpolate(
            patches, (expected, expected), mode="bilinear", antialias=True
        )
        with torch.no_grad():
            assert torch.equal(encoder(patches), encoder(enlarged))
            assert encoder(torch.rand(1, 3, 80, 80)).shape == (1, 48)


@pytest.mark.parametrize("name", ["rsp-resnet18", "efficientnet-lite0"])
def test_a_convolutional_row_gives_its_width(name: str) -> None:
    assert build_encoder(name, 64).num_features == PUBLISHED[name].num_features
