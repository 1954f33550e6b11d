"""Command `doctor`: is this machine and this project ready to run? One line for each thing, with its remedy."""

from __future__ import annotations

from histo_monai.pipeline.doctor.checks import examine
from histo_monai.pipeline.doctor.finding import print_findings


def run(*, json: bool) -> int:
    """Print PASS, WARN or FAIL for each check; the exit status is 1 where one is FAIL."""
    return print_findings(examine(), as_json=json)
