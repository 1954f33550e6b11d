"""MONAI bundles: a folder that `monai.bundle` runs, from a fine-tuned model or a student."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from histo_monai.models.card import CARD_SHAPE, license_limits, model_facts
from histo_monai.models.checkpoint import read_description, write_tensors
from histo_monai.models.reference import reference_tensors
from histo_monai.models.task_model import from_task_model
from histo_monai.utils.errors import InputError
from histo_monai.utils.escapes import markdown
from histo_monai.utils.storage import own_folder, write_json
from histo_monai.wsi.export.metadata import inference, metadata
from histo_monai.wsi.inference.models import patches_mpp

METADATA, INFERENCE = Path("configs/metadata.json"), Path("configs/inference.json")
WEIGHTS, DESCRIPTION = Path("models/model.pt"), Path("models/model.json")
REFERENCE = Path("models/reference.safetensors")
CARD, LICENSE = Path("docs/README.md"), Path("docs/license.txt")


def write_bundle(model: Path, folder: Path, look: Mapping[str, Any], authors: str) -> None:
    """Write a bundle; the folder appears complete or not at all.

    Args:
        model: model.safetensors.
        folder: new, or an earlier export.
        look: tissue_mpp, min_tissue_fraction, batch_size and artefacts of maps.
        authors: of the model.

    Raises:
        InputError: the model cannot be used, or has no µm/px.
        OutputError: the folder holds other files.
    """
    name = folder.absolute().name
    if "#" in name or not name.isprintable():
        raise InputError(
            f"{folder}: MONAI opens no bundle with '#' or a control character in its name. Fix: rename it"
        )
    network, about = from_task_model(model)
    patches_mpp(about, model)
    beside = model.with_suffix(".json")
    whole = read_description(beside, {**CARD_SHAPE, "dataset": str, "stage": str})
    with own_folder(folder, [model, beside]) as draft:
        for part in ("configs", "models", "docs"):
            (draft / part).mkdir()
        write_json(draft / METADATA, metadata(about, authors))
        write_json(draft / INFERENCE, inference(about, look))
        torch.save(network.state_dict(), draft / WEIGHTS)
        if reference := reference_tensors(model):
            write_tensors(draft / REFERENCE, reference)
        shutil.copyfile(beside, draft / DESCRIPTION)
        for path, text in ((CARD, _card(whole, name)), (LICENSE, _license(whole))):
            (draft / path).write_text(text, encoding="utf-8", errors="backslashreplace")


def _license(about: Mapping[str, Any]) -> str:
    started_from = about["encoder"]["weights"]
    if not started_from:
        return "The weights were trained from random weights; the authors state the license.\n"
    limits = license_limits(started_from["license"])
    explained = f" ({limits})" if limits else ""
    return f"The initial weights have this license: {started_from['license'] or 'not stated'}{explained}\n"


def _card(about: Mapping[str, Any], name: str) -> str:
    facts = "\n".join(f"| {key} | {markdown(value)} |" for key, value in model_facts(about).items())
    return f"""# {markdown(name)}

| | |
|---|---|
{facts}

## Map a slide
    pip install './histo_monai[export]'
    {run_command(name)} --slide ./slide.svs

writes `eval/slide.csv` in the bundle (scores and positions of cells) and `slide.tif` (a map for QuPath, aligned with
the slide). Options: `--mpp 0.25` for a slide without a resolution, `--stride_um` for smaller cells, `--output_dir`.
MONAI runs an argument that begins with `$` as code and reads `@` and `%` as references: begin paths with `./` or `/`.

## Import
`histo-monai import BUNDLE --output model` writes `model.safetensors`: the exported weights, or weights that MONAI
trained since.

## Limits
The scores are valid only for patches of this size and resolution.
{_LIMIT[bool(about["classes"])]}
"""


_LIMIT = {
    True: "Probabilities are not calibrated unless the project's results state it.",
    False: "Scores are clipped to 0..1.",
}


def run_command(bundle: str) -> str:
    """Shell command that runs a bundle, without the slide; MONAI reads a path after `./` as text."""
    root = bundle if Path(bundle).is_absolute() else f"./{bundle}"
    config = shlex.quote(f"{root}/{INFERENCE}")
    return f"python -m monai.bundle run --config_file {config} --bundle_root {shlex.quote(root)}"


def check_bundle(folder: Path) -> None:
    """Refuse a folder that is no bundle of this project.

    Raises:
        InputError: files are missing.
    """
    for needed in (METADATA, WEIGHTS):
        if not (folder / needed).is_file():
            raise InputError(f"{folder}: no bundle, {needed} is missing. Fix: name a bundle")
    if not (folder / DESCRIPTION).is_file():
        raise InputError(
            f"{folder}: a bundle of another project without {DESCRIPTION}. Fix: set encoder.weights to its {WEIGHTS} "
            "(docs/encoders.md)"
        )
