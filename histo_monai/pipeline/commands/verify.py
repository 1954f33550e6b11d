"""Command `verify FOLDER ...`: check models, metrics and maps against seals and records, offline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from histo_monai.pipeline.doctor.finding import print_findings
from histo_monai.pipeline.doctor.results import verify_folder


def run(folders: Sequence[str], *, json: bool) -> int:
    """Print PASS, WARN or FAIL for each checkable file; exit status 1 if any check fails.

    Raises:
        InputError: a folder is missing or holds no checkable file.
    """
    findings = [finding for folder in folders for finding in verify_folder(Path(folder))]
    return print_findings(findings, as_json=json)
