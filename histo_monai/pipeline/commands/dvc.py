"""Command `dvc`: a DVC command whose stages start at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from histo_monai.pipeline.warm import warm_process


def run(arguments: Sequence[str]) -> int:
    """Run `dvc` with the arguments; its exit status. The stages run in forks of one process with loaded libraries."""
    with warm_process() as variables:
        return run_module("dvc", arguments, variables)


def run_module(module: str, arguments: Sequence[str], variables: Mapping[str, str]) -> int:
    """Exit status of `python -m MODULE`; Ctrl-C reaches it, as does SIGTERM, and it ends its stage and tidies up.

    Args:
        variables: further environment variables, of `warm_process`.
    """
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, env={**os.environ, **variables}) as started:
        interrupts = signal.signal(signal.SIGINT, signal.SIG_IGN)
        terminates = signal.signal(signal.SIGTERM, lambda *_: started.terminate())
        try:
            return started.wait()
        finally:
            signal.signal(signal.SIGINT, interrupts)
            signal.signal(signal.SIGTERM, terminates)
