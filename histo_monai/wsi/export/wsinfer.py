"""Folders that WSInfer and its QuPath extension run: TorchScript network, config.json, card, known outputs.

Format: Kaczmarzyk et al. 2024, model-config 1.0 of WSInfer's model zoo.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from PIL import Image
from torch import nn

from histo_monai.models.card import CARD_SHAPE, model_facts
from histo_monai.models.checkpoint import read_description, write_tensors
from histo_monai.models.description import predicted_px
from histo_monai.models.task_model import from_task_model
from histo_monai.utils.errors import InputError
from histo_monai.utils.escapes import markdown
from histo_monai.utils.storage import own_folder, write_json
from histo_monai.wsi.inference.models import patches_mpp

GRAPH, CONFIG, CARD = "torchscript_model.pt", "config.json", "README.md"
GOLDEN = "golden.safetensors"
"""Tensors `patches`, (n, 3, P, P), 0..1, and the model's `probabilities` of them, (n, K)."""
SCORE = ("score", "rest")
"""Classes of a score: QuPath's extension takes a softmax, of which a single output is always 1."""
LARGEST_DIFFERENCE = 1e-5
"""Largest difference in a probability of the known patches."""
_NUM_GOLDEN = 5
_LEAST = 1e-7


class _Logits(nn.Module):
    """Patches -> logits whose softmax is the model's prediction: probabilities of classes, or score and its rest."""

    def __init__(self, network: nn.Module, is_score: bool) -> None:
        super().__init__()
        self.network, self._is_score = network, is_score

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        outputs = self.network(patches)
        if not self._is_score:
            return outputs
        score = outputs.clamp(_LEAST, 1 - _LEAST)
        return torch.cat([score.log(), (1 - score).log()], dim=1)


def write_wsinfer(model: Path, folder: Path) -> None:
    """Write the folder; it appears complete or not at all.

    Args:
        model: model.safetensors.
        folder: new, or an earlier export. QuPath shows its name.

    Raises:
        InputError: the model cannot be used, reads the field around its patch, has no µm/px, or the written graph gives
            other predictions.
        OutputError: the folder holds other files.
    """
    network, about = from_task_model(model)
    if predicted_px(about) < about["patch_px"]:
        raise InputError(
            f"{model}: predicts the middle of each patch, and tiles of WSInfer do not overlap. Fix: export --bundle, "
            "or set features.field: 1 and train again"
        )
    config = _config(about, patches_mpp(about, model))
    beside = model.with_suffix(".json")
    facts = model_facts(read_description(beside, {**CARD_SHAPE, "dataset": str, "stage": str}))
    graph = _Logits(network.eval(), is_score=not about["classes"]).eval()
    side = about["patch_px"]
    patches = torch.rand(_NUM_GOLDEN, 3, side, side, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        golden = {"patches": patches, "probabilities": graph(patches).softmax(dim=1)}
    with own_folder(folder, [model, beside]) as draft:
        with torch.no_grad(), warnings.catch_warnings(action="ignore"):  # TorchScript is what WSInfer loads
            torch.jit.save(torch.jit.trace(graph, patches[:2], check_trace=False), str(draft / GRAPH))
        write_json(draft / CONFIG, config)
        write_tensors(draft / GOLDEN, golden)
        card = _card(folder.absolute().name, facts, config)
        (draft / CARD).write_text(card, encoding="utf-8", errors="backslashreplace")
        check_wsinfer(draft, model)


def check_wsinfer(folder: Path, model: Path | None = None) -> None:
    """Run the graph on the known patches, one at a time and together.

    Args:
        folder: an export.
        model: what to name in the error; default: the folder.

    Raises:
        InputError: the predictions differ from the known ones.
    """
    golden = safetensors.torch.load_file(folder / GOLDEN)
    patches = golden["patches"]
    with warnings.catch_warnings(action="ignore"):
        graph = torch.jit.load(str(folder / GRAPH), map_location="cpu").eval()
    with torch.no_grad():
        for outputs in (graph(patches), torch.cat([graph(patch) for patch in patches.split(1)])):
            difference = (outputs.softmax(dim=1) - golden["probabilities"]).abs().max().item()
            if not difference <= LARGEST_DIFFERENCE:
                raise InputError(
                    f"{model or folder}: as TorchScript it gives probabilities that differ by up to {difference:.2g}. "
                    "Fix: export --onnx or --bundle"
                )


def _config(about: Mapping[str, Any], mpp: float) -> dict[str, Any]:
    """Content of config.json. The graph normalizes pixels and enlarges patches; WSInfer reduces tiles to patches."""
    classes = list(about["classes"] or SCORE)
    # Means of areas, as in `map`.
    resize = {"size": about["patch_px"], "interpolation": Image.Resampling.BOX.value}
    return {
        "spec_version": "1.0",
        "architecture": about["encoder"]["name"],
        "num_classes": len(classes),
        "patch_size_pixels": about["patch_px"],
        "spacing_um_px": mpp,
        "class_names": classes,
        "transform": [{"name": "Resize", "arguments": resize}, {"name": "ToTensor"}],
    }


def _card(name: str, facts: Mapping[str, str], config: Mapping[str, Any]) -> str:
    rows = "\n".join(f"| {key} | {markdown(value)} |" for key, value in facts.items())
    kind = (
        "`score` is the predicted score, `rest` is 1 - score."
        if config["class_names"] == list(SCORE)
        else "Each class has a probability; they sum to 1. QuPath gives a tile the most probable class."
    )
    return f"""# {markdown(name)}

| | |
|---|---|
{rows}

## Run it
In QuPath: *Extensions > WSInfer*, name the folder above this one as local model directory, select the model, select
tissue, run. On a command line: `wsinfer run --wsi-dir SLIDES --results-dir RESULTS --model-path {GRAPH} --config
{CONFIG}`.

{kind} A tile has {config["patch_size_pixels"]} px of {config["spacing_um_px"]:g} µm.

## Limits
On slides of another µm/px WSInfer rounds tiles to whole pixels, and QuPath reduces them by a filter of its own, so that
probabilities differ from those of `histo-monai map`. `{GOLDEN}` holds {_NUM_GOLDEN} patches and their probabilities.
"""
