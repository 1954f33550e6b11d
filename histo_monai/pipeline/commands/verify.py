"""Command `verify FOLDER ...`: models, metrics and maps against their seals and records, offline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from histo_monai.pipeline.doctor.finding import print_findings
from histo_monai.pipeline.doctor.results import verify_folder


def run(folders: Sequence[str], *, json: bool) -> int:
    """Print PASS, WARN or FAIL for everything below the folders that can be checked.

    Returns:
        The exit status: 1 where something is not what it was.

    Raises:
        InputError: see `pipeline.doctor.results.verify_folder`.
    """
    findings = [finding for folder in folders for finding in verify_folder(Path(folder))]
    return print_findings(findings, as_json=json)
