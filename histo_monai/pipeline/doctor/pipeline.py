"""The project: params, the file of weights, DVC's lock file."""

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
    "`git checkout dvc.lock`, or `rm dvc.lock` where it was never committed, then `dvc repro`: what was run already "
    "comes from the run cache"
)


def params_file(_params: Params | None) -> Iterator[Finding]:
    """It can be read, and every value is one that a stage can use."""
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
    """The file that `encoder.weights` names is there, and is the one of `encoder.sha256`."""
    if params is None or params.encoder.weights is None:
        return
    try:
        digest = EncoderStart.of(params.encoder).checked_digest(Path(params.encoder.weights))
    except InputError as error:
        message, _, remedy = str(error).replace(". Fix: ", "; ").partition("; ")
        yield Finding("FAIL", "encoder weights", message, remedy)
        return
    yield Finding("PASS", "encoder weights", f"{params.encoder.weights}, SHA-256 {digest}")


def lock_file(_params: Params | None) -> Iterator[Finding]:
    """A DVC that was killed while it wrote dvc.lock leaves it empty or cut off, and refuses it afterwards."""
    if not LOCK_FILE.exists():
        yield Finding("PASS", "dvc.lock", "not there yet: nothing has been run")
        return
    if LOCK_FILE.stat().st_size == 0:
        yield Finding("FAIL", "dvc.lock", "0 bytes: DVC was killed while it wrote it", _MEND_LOCK)
        return
    try:
        content = yaml.safe_load(LOCK_FILE.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        yield Finding("FAIL", "dvc.lock", f"not YAML ({' '.join(str(error).split())})", _MEND_LOCK)
        return
    stages = content.get("stages", {}) if isinstance(content, dict) and "schema" in content else None
    if not isinstance(stages, dict):
        yield Finding("FAIL", "dvc.lock", "not a lock file of DVC: no `schema` or no `stages`", _MEND_LOCK)
        return
    yield Finding("PASS", "dvc.lock", f"{len(stages)} stages")
