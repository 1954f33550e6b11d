"""Command `doctor`: check that machine and project are ready to run; one line per check, with its fix."""

from __future__ import annotations

from histo_monai.pipeline.doctor.checks import examine
from histo_monai.pipeline.doctor.finding import print_findings


def run(*, json: bool) -> int:
    """Print PASS, WARN or FAIL for each check; exit status 1 if any check fails."""
    return print_findings(examine(), as_json=json)
