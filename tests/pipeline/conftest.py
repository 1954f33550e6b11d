"""A clone in which `dvc repro` has run once, on a small simulated dataset, and an SSH server of our own."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.absent import skip_outside_ci
from tests.folders import NewFolder
from tests.pipeline.warm import TRAININGS, warm

Shell = Callable[..., str]


class Finished(NamedTuple):
    """A clone, what its first `dvc repro` printed, and what `git status` showed then. Its dvc.lock is committed."""

    folder: Path
    output: str
    untracked: str


class Server(NamedTuple):
    """Where an SSH server answers, on this machine only; the folder to keep things in; the key that it accepts."""

    address: str
    storage: Path
    keyfile: Path


@pytest.fixture(scope="session")
def commands(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for PATH whose `dvc` and `python -m histo_monai` need not import what all of them import."""
    folder = tmp_path_factory.mktemp("commands")
    stages = [
        f"histo_monai.pipeline.stages.{path.stem}"
        for path in (root / "histo_monai/pipeline/stages").glob("[a-z]*.py")
    ]
    dvc = [
        "dvc.cli.parser",
        "dvc.repo",
        "dvc.repo.reproduce",
        "dvc.dependency",
        "dvc.stage.run",
        "dvc_ssh",
        "s3fs",
    ]
    with (
        warm(
            "python",
            "histo_monai",
            [*stages, *TRAININGS, "tests.pipeline.forests"],
            folder,
            ["-m", "histo_monai"],
        ),
        warm("dvc", "dvc", dvc, folder),
    ):
        yield folder


@pytest.fixture(scope="session")
def shell(commands: Path) -> Shell:
    """Runs a command in a folder and gives its output; one that fails where it should not fails the test."""
    who = {f"GIT_{role}_NAME": "test" for role in ("AUTHOR", "COMMITTER")}
    where = {f"GIT_{role}_EMAIL": "test@example.org" for role in ("AUTHOR", "COMMITTER")}
    path = os.pathsep.join(map(str, (commands, Path(sys.executable).parent, os.environ["PATH"])))
    settings = {"PATH": path, "DVC_NO_ANALYTICS": "1", "HISTO_MONAI_DEVICE": "cpu"}
    environment = os.environ | who | where | settings

    def run(command: str, cwd: Path, fails: bool = False) -> str:
        done = subprocess.run(
            command, shell=True, cwd=cwd, env=environment, capture_output=True, text=True, check=False
        )
        output = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, f"{command}: exit status {done.returncode}\n{output}"
        return output

    return run


def copy_tracked(root: Path, folder: Path, shell: Shell) -> None:
    """The files that git tracks, as they are now, into a folder."""
    for name in shell("git ls-files --cached --others --exclude-standard", root).split():
        if (root / name).is_file() and name != "dvc.lock":  # the lock of a run in this very checkout
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, folder / name)


@pytest.fixture(scope="session")
def finished(root: Path, shell: Shell, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The files that git tracks, as they are now, in a repository of their own with tiny params; all stages run."""
    folder = tmp_path_factory.mktemp("clone")
    copy_tracked(root, folder, shell)
    params = yaml.safe_load((folder / "params.yaml").read_text())
    params |= {"patch_px": 32, "alpha": 0.25, "mu": 7, "pretraining_methods": ["random", "rsp"]}
    params["slide_level"]["pretraining_methods"] = ["rsp"]
    params["phantom"] |= {"num_slides": 12, "num_test_slides": 4, "num_patches": 90, "slide_side_px": 768}
    params["corpora"]["camelyon16"] |= {"num_train": 24, "num_validation": 6, "num_normal": 2, "num_tumor": 2}
    counts = {"num_tumor": 16, "num_normal": 16}
    params["cross_validation"]["num_folds"] = 2
    params["heatmap"]["seen"] = True
    params["mil"] |= {"num_folds": 2, "epochs": 2}
    params["aggregate"] |= {"C": [1.0], "gamma": [0.01], "num_folds": 2, "num_permutations": 3}
    params["compare"]["num_replicates"] = 200
    params["labels"]["camelyon16"] |= dict.fromkeys(("train", "separate_validation", "test"), counts) | {
        "unlabeled": 24
    }
    params["pretrain"]["rsp"] |= {"epochs": 2, "batch_size": 8}
    params["semisupervised_methods"] = ["spatial_neighbors"]
    for stage in ("finetune", "consistency"):
        params[stage]["recipe"] |= {"epochs": 1, "steps_per_epoch": 2, "batch_size": 4}
        params[stage]["recipe"]["batchnorm_patches"] = 32
    params["features"] |= {"stride_um": 64.0, "batchnorm_patches": 32}
    params["consistency"]["methods"]["spatial_neighbors"]["epochs"] = 1
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    shell("git init -q && git add -A && git commit -qm start", folder)
    output = shell("dvc repro", folder)
    untracked = shell("git status --porcelain", folder)
    shell("git add data/.gitignore dvc.lock && git commit -qm run", folder)  # as DVC advises
    return Finished(folder, output, untracked)


@pytest.fixture(scope="module")
def server(module_folder: NewFolder) -> Iterator[Server]:
    """OpenSSH's sshd, run by this user with keys and settings of its own; in CI its absence is a failure."""
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin:/sbin")
    if sshd is None:
        skip_outside_ci("there is no sshd: apt-get install openssh-server", "push to a real SSH server")
    folder = module_folder("ssh")
    (folder / "storage").mkdir()
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\n"
        "PasswordAuthentication no\nStrictModes no\nUsePAM no\nPidFile none\nSubsystem sftp internal-sftp\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(
            mode=0o755, exist_ok=True
        )  # where sshd locks itself in; its package makes it at boot
    log = folder / "log"
    with subprocess.Popen([sshd, "-D", "-f", folder / "sshd_config", "-E", log]) as process:
        try:
            _wait_for_greeting(process, port, log)
            yield Server(f"{getpass.getuser()}@127.0.0.1:{port}", folder / "storage", folder / "user")
        finally:
            process.terminate()


def _wait_for_greeting(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(100):
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
                if line.recv(4) == b"SSH-":
                    return
        except OSError:
            pass
        if process.poll() is not None:
            break
        time.sleep(0.1)
    pytest.fail(f"sshd does not answer: {log.read_text()}")
