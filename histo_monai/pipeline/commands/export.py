"""Command `export MODEL`: a model for use elsewhere, as MONAI bundle, ONNX, or the bare trunk."""

from __future__ import annotations

import logging
from pathlib import Path

from histo_monai.pipeline import paths
from histo_monai.pipeline.commands.map import Look
from histo_monai.pipeline.params import load_params
from histo_monai.utils.errors import InputError
from histo_monai.wsi.export.bundle import run_command, write_bundle
from histo_monai.wsi.export.onnx import write_onnx
from histo_monai.wsi.export.trunk import write_trunk

_LOG = logging.getLogger(__name__)


def run(model: str, bundle: str | None, onnx: str | None, trunk: str | None, authors: str | None) -> None:
    """Write what is asked for; tissue and batches of a bundle's maps are as params.yaml says, as `map` has it.

    Raises:
        InputError: nothing is asked for, authors of no bundle are named, or the model cannot be used.
        OutputError: a file or folder is there, and was not written so.
    """
    if not (bundle or onnx or trunk):
        raise InputError("nothing is asked for; name --bundle FOLDER, --onnx FILE or --trunk FILE")
    if authors is not None and not bundle:
        raise InputError("--authors are named in a bundle alone; add --bundle FOLDER, or leave them out")
    look = Look() if not paths.PARAMS.exists() else Look.of(load_params(paths.PARAMS))
    if bundle:
        seen = {name: getattr(look, name) for name in ("tissue_mpp", "min_tissue_fraction", "batch_size")}
        write_bundle(Path(model), Path(bundle), seen, authors or "not stated")
        _LOG.info("%s written: %s --slide SLIDE", bundle, run_command(bundle))
    if onnx:
        write_onnx(Path(model), Path(onnx))
        _LOG.info("%s written, and gives what the network gives", onnx)
    if trunk:
        print(write_trunk(Path(model), Path(trunk)))
        _LOG.info("%s written; the lines above load it", trunk)
