"""The checks of `doctor`: one function each, in the order in which they are printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from histo_monai.pipeline import paths
from histo_monai.pipeline.doctor import disk, machine, pipeline, reading, remote, versions
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
    "dvc.lock": pipeline.lock_file,
    "remote": remote.default_remote,
}
"""Name -> check. It takes the params, None where they cannot be read, and may have no finding."""


def examine() -> list[Finding]:
    """Run all checks; one that breaks is a FAIL, and the others run."""
    try:
        params = load_params(paths.PARAMS)
    except InputError:  # The check of that name says why.
        params = None
    findings = []
    for name, check in CHECKS.items():
        try:
            findings += list(check(params))
        except Exception as error:  # Whatever breaks on a broken machine is what is looked for.
            reason = " ".join(str(error).split())
            findings.append(
                Finding("FAIL", name, f"the check itself broke: {type(error).__name__}: {reason}")
            )
    return findings
