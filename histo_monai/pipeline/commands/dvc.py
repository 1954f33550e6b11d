"""Command `dvc`: a DVC command whose stages start at once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from histo_monai.pipeline.warm import warm_process


def run(arguments: Sequence[str]) -> int:
    """Run `dvc` with the arguments; its exit status. The stages run in forks of one process with loaded libraries."""
    with warm_process() as variables:
        command = [sys.executable, "-m", "dvc", *arguments]
        return subprocess.run(command, env={**os.environ, **variables}, check=False).returncode
