"""Checks of `doctor`, one function each, in print order."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from histo_monai.pipeline import paths
from histo_monai.pipeline.doctor import cost, disk, machine, pipeline, reading, remote, versions
from histo_monai.pipeline.doctor.finding import Finding
from histo_monai.pipeline.params import Params, load_params
from histo_monai.utils.errors import InputError

Check = Callable[[Params | None], Iterable[Finding]]

CHECKS: dict[str, Check] = {
    "packages": versions.packages,
    "dvc": versions.dvc,
    "reading": reading.libraries,
    "own slides": reading.own_slides,
    "params.yaml": pipeline.params_file,
    "encoder weights": pipeline.weights_file,
    "environment": machine.environment,
    "device": machine.device,
    "memory": machine.memory,
    "disk": disk.space,
    "features": cost.of_features,
    "dvc.lock": pipeline.lock_file,
    "remote": remote.default_remote,
}
"""Name -> check of the params, None if they cannot be read; it yields any number of findings."""


def examine() -> list[Finding]:
    """Findings of all checks; a check that raises is one FAIL."""
    try:
        params = load_params(paths.PARAMS)
    except InputError:  # The check of the params reports it.
        params = None
    findings = []
    for name, check in CHECKS.items():
        try:
            findings += list(check(params))
        except Exception as error:  # A broken machine may raise anything; report it.
            reason = " ".join(str(error).split())
            findings.append(Finding("FAIL", name, f"the check failed with {type(error).__name__}: {reason}"))
    return findings
