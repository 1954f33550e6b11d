"""Command `export MODEL`: model file -> MONAI bundle, folder for WSInfer, ONNX graph or backbone state dict."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from histo_monai.pipeline import paths
from histo_monai.pipeline.commands.map import Look
from histo_monai.pipeline.params import load_params
from histo_monai.utils.errors import InputError
from histo_monai.wsi.export.bundle import run_command, write_bundle
from histo_monai.wsi.export.onnx import write_onnx
from histo_monai.wsi.export.trunk import write_trunk
from histo_monai.wsi.export.wsinfer import write_wsinfer

_LOG = logging.getLogger(__name__)


def run(
    model: str,
    bundle: str | None,
    wsinfer: str | None,
    onnx: str | None,
    trunk: str | None,
    authors: str | None,
) -> None:
    """Write the requested files. A bundle maps slides with the tissue and batch settings of params.yaml, as `map` does.

    Raises:
        InputError: no output is requested, --authors comes without --bundle, or the model cannot be used.
        OutputError: a target exists that this command did not write.
    """
    if not (bundle or wsinfer or onnx or trunk):
        raise InputError(
            "export: no output is named. Fix: give --bundle FOLDER, --wsinfer FOLDER, --onnx FILE or --trunk FILE"
        )
    if authors is not None and not bundle:
        raise InputError(
            "--authors: only a bundle names authors. Fix: add --bundle FOLDER, or leave out --authors"
        )
    look = Look() if not paths.PARAMS.exists() else Look.of(load_params(paths.PARAMS))
    if bundle:
        write_bundle(Path(model), Path(bundle), bundle_settings(look), authors or "not stated")
        _LOG.info("export: bundle=%s command='%s --slide SLIDE'", bundle, run_command(bundle))
    if wsinfer:
        write_wsinfer(Path(model), Path(wsinfer))
        _LOG.info("export: wsinfer=%s, outputs equal the model's", wsinfer)
    if onnx:
        write_onnx(Path(model), Path(onnx))
        _LOG.info("export: onnx=%s, outputs equal the model's", onnx)
    if trunk:
        print(write_trunk(Path(model), Path(trunk)))
        _LOG.info("export: trunk=%s, load it with the lines above", trunk)


def bundle_settings(look: Look) -> dict[str, Any]:
    """Arguments of the bundle's tissue loader."""
    settings = {
        "tissue_mpp": look.tissue.mpp,
        "min_tissue_fraction": look.min_tissue_fraction,
        "batch_size": look.batch_size,
    }
    return settings | ({"artefacts": list(look.tissue.artefacts)} if look.tissue.artefacts else {})
