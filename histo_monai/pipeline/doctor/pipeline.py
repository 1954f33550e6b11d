"""Checks of `doctor`: params, encoder weights, dvc.lock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from histo_monai.models.start import EncoderStart
from histo_monai.pipeline import paths
from histo_monai.pipeline.doctor.finding import Finding
from histo_monai.pipeline.params import Params, load_params
from histo_monai.pipeline.params.file import NO_PROJECT
from histo_monai.utils.errors import InputError

LOCK_FILE = Path("dvc.lock")
_MEND_LOCK = (
    "`git checkout dvc.lock`, or `rm dvc.lock` if it was never committed; then `dvc repro`, which reuses finished "
    "stages from the run cache"
)


def params_file(_params: Params | None) -> Iterator[Finding]:
    """Check that params.yaml can be read and every value is valid."""
    if not paths.PARAMS.is_file():
        yield Finding("WARN", "params.yaml", "not here", NO_PROJECT)
        return
    try:
        params = load_params(paths.PARAMS)
    except InputError as error:
        yield Finding("FAIL", "params.yaml", str(error).removeprefix("params.yaml: "))
        return
    message = (
        f"{params.source} {params.dataset}, methods {', '.join(params.pretraining_methods)}, "
        f"{len(params.pretraining_seeds)} encoders of each, {len(params.training_seeds)} seeds of each encoder"
    )
    yield Finding("PASS", "params.yaml", message)


def weights_file(params: Params | None) -> Iterator[Finding]:
    """Check that the file of `encoder.weights` exists and has the digest `encoder.sha256`."""
    if params is None or params.encoder.weights is None:
        return
    try:
        digest = EncoderStart.of(params.encoder).checked_digest(Path(params.encoder.weights))
    except InputError as error:
        message, _, remedy = str(error).replace(". Fix: ", "; ").partition("; ")
        yield Finding("FAIL", "encoder weights", message, remedy.removesuffix("."))
        return
    yield Finding("PASS", "encoder weights", f"{params.encoder.weights}, SHA-256 {digest}")


def lock_file(_params: Params | None) -> Iterator[Finding]:
    """Check of dvc.lock, which an interrupted DVC leaves empty or truncated."""
    if not LOCK_FILE.exists():
        yield Finding("PASS", "dvc.lock", "does not exist yet: no stage has run")
        return
    if LOCK_FILE.stat().st_size == 0:
        yield Finding("FAIL", "dvc.lock", "0 bytes: DVC was interrupted while writing", _MEND_LOCK)
        return
    try:
        content = yaml.safe_load(LOCK_FILE.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        yield Finding("FAIL", "dvc.lock", f"not YAML ({' '.join(str(error).split())})", _MEND_LOCK)
        return
    stages = content.get("stages", {}) if isinstance(content, dict) and "schema" in content else None
    if not isinstance(stages, dict):
        yield Finding("FAIL", "dvc.lock", "not a DVC lock file: no `schema` or no `stages`", _MEND_LOCK)
        return
    yield Finding("PASS", "dvc.lock", f"{len(stages)} stages")
