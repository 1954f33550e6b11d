"""The two images install by one script from one base; no engine that builds images is needed to see that."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = "/usr/src/histo_monai/containers/install.sh"


def test_both_images_have_one_base_and_one_script(root: Path) -> None:
    docker = (root / "Dockerfile").read_text()
    apptainer = (root / "containers/apptainer.def").read_text()
    (base,) = re.findall(r"^FROM (.+)$", docker, flags=re.MULTILINE)
    assert re.findall(r"^From: (.+)$", apptainer, flags=re.MULTILINE) == [base]
    assert docker.count(SCRIPT) == apptainer.count(SCRIPT) == 1
    subprocess.run(["sh", "-n", root / "containers/install.sh"], check=True)


def test_hadolint_finds_nothing_in_the_dockerfile(root: Path) -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([hadolint, root / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
