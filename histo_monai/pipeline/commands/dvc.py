"""Command `dvc`: a DVC command whose stages start at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from histo_monai.pipeline.warm import warm_process


def run(arguments: Sequence[str]) -> int:
    """Run `dvc` with the arguments; its exit status. The stages run in forks of one process with loaded libraries.

    Ctrl-C reaches DVC, which waits for its stage and tidies up; so does SIGTERM.
    """
    with warm_process() as variables:
        command = [sys.executable, "-m", "dvc", *arguments]
        with subprocess.Popen(command, env={**os.environ, **variables}) as started:
            interrupts = signal.signal(signal.SIGINT, signal.SIG_IGN)
            terminates = signal.signal(signal.SIGTERM, lambda *_: started.terminate())
            try:
                return started.wait()
            finally:
                signal.signal(signal.SIGINT, interrupts)
                signal.signal(signal.SIGTERM, terminates)
