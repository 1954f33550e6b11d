"""ONNX graphs of models with normalization and softmax, compared with the model before the file is written."""

from __future__ import annotations

import contextlib
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from histo_monai.models.checkpoint import load_model
from histo_monai.models.losses import Classification, Objective, Regression
from histo_monai.models.task_model import from_task_model, load_encoder
from histo_monai.utils.errors import InputError, check_installed
from histo_monai.utils.storage import check_folder, check_outputs, whole_file

LARGEST_DIFFERENCE = 1e-4
"""Maximum difference between graph and network in outputs of noise patches."""
INPUT = "patches"


class _Predictor(nn.Module):
    """Network from patches to probabilities or scores."""

    def __init__(self, network: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.network, self._objective = network, objective

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        return self._objective.predictions(self.network(patches))


def write_onnx(model: Path, path: Path) -> None:
    """Write an ONNX graph.

    Input: "patches" (n, 3, P, P), float32, 0..1, any n. Output: "probabilities" (n, K), "score" (n, 1) or "features"
    (n, D). Properties state µm/px, side of the patches, and classes (JSON list).

    Args:
        model: model.safetensors or encoder.safetensors.
        path: ends in .onnx.

    Raises:
        InputError: the model cannot be used, the packages of `export` are missing, or graph and network differ.
        OutputError: the file exists.
    """
    if path.suffix != ".onnx":
        raise InputError(f"{path}: not an .onnx file name. Fix: name a file that ends in .onnx")
    check_folder(path.parent)
    check_outputs([path], [model], written={})
    check_installed(("onnx", "onnxruntime", "onnxscript"), "export")
    network, name, about = _network(model)
    side = about["patch_px"]
    patches = torch.rand(4, 3, side, side, generator=torch.Generator().manual_seed(0))
    with whole_file(path) as draft:
        _export(network, patches, name, draft)
        _add_properties(draft, about)
        with torch.inference_mode():
            wanted = network(patches).numpy()
        found = predict(draft, patches.numpy())
        difference = float(np.abs(found - wanted).max())
        if not difference <= LARGEST_DIFFERENCE:
            raise InputError(
                f"{model}: {about['encoder']['name']} as ONNX differs by up to {difference:.2g}; no file is written. "
                "Fix: export --bundle"
            )


def predict(path: Path, patches: np.ndarray) -> np.ndarray:
    """Outputs of the graph for patches (n, 3, P, P), float32, 0..1, by onnxruntime on the CPU."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {INPUT: patches})
    return np.asarray(found)


def _network(model: Path) -> tuple[nn.Module, str, dict[str, Any]]:
    _, about = load_model(model)
    if about.get("kind") == "encoder":
        encoder, about = load_encoder(model)
        return encoder.eval(), "features", about
    task_model, about = from_task_model(model)
    classes = about["classes"]
    objective: Objective = Classification(classes) if classes else Regression()
    return _Predictor(task_model, objective).eval(), "probabilities" if classes else "score", about


def _export(network: nn.Module, patches: torch.Tensor, name: str, path: Path) -> None:
    """Write a graph for any number of patches."""
    with warnings.catch_warnings(action="ignore"), _quiet("torch.onnx", "onnxscript", "onnx_ir"):
        program = torch.onnx.export(
            network,
            (patches,),
            dynamo=True,
            verbose=False,
            input_names=[INPUT],
            output_names=[name],
            dynamic_shapes=({0: torch.export.Dim("n", min=1, max=2**20)},),
        )
    if program is None:
        raise RuntimeError("torch.onnx returned no program")
    program.save(str(path))


@contextlib.contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """Limit the loggers of the ONNX export to errors."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _add_properties(path: Path, about: Mapping[str, Any]) -> None:
    import onnx

    proto = onnx.load(path)
    metadata = {
        "patch_px": about["patch_px"],
        "mpp": about.get("mpp") or ", ".join(f"{mpp:g}" for mpp in about["mpps"]),
        "classes": json.dumps(about.get("classes") or []),
        "encoder": about["encoder"]["name"],
        "pixels": "RGB, 0..1; normalization is part of the graph",
    }
    for key, value in metadata.items():
        proto.metadata_props.add(key=key, value=str(value))
    onnx.checker.check_model(proto, full_check=True)
    onnx.save(proto, path)
