"""Memory that was used once is kept."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

CODE = """
import resource, sys
import numpy as np
from histo_monai.utils.process.memory import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()

def touch():
    arrays = [np.ones(3 * 2**20, np.uint8) for _ in range(16)]  # numpy asks for large pages above 4 MiB
    return sum(int(array[::4096].sum()) for array in arrays)

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

touch()
before = faults()
print(sum(touch() for _ in range(10)), faults() - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="another C library than glibc")
def test_what_is_freed_is_used_again_and_no_number_changes() -> None:
    """Truth: the kernel's count of the pages that it filled with zeros; 10 x 48 MiB are 122,880 of 4 KiB."""
    results = {}
    for way in ("keep", "give back"):
        done = subprocess.run(
            [sys.executable, "-c", CODE, way], capture_output=True, text=True, check=True
        ).stdout.split()
        results[way] = (int(done[0]), int(done[1]))
    assert results["keep"][0] == results["give back"][0] == 10 * 16 * 768
    assert results["keep"][1] < 1000 < 100_000 < results["give back"][1]
