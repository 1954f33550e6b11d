"""A Slurm of two nodes on this machine: Debian's daemons, run by this user, who answer on loopback only."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.absent import skip_outside_ci

NODES = ("n1", "n2")
DAEMONS = ("munged", "slurmctld", "slurmd")
SETTINGS = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=2
PartitionName=cpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
"""Nodes have four processors each, whatever this machine has."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


@contextlib.contextmanager
def two_nodes(folder: Path) -> Iterator[Path]:
    """Start the daemons; the path of their slurm.conf, for SLURM_CONF. In CI their absence is a failure."""
    path = f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"
    programs = {name: shutil.which(name, path=path) for name in DAEMONS}
    if None in programs.values():
        skip_outside_ci(
            "there is no Slurm: apt-get install slurm-wlm munge", "run the recipes of docs/cluster.md"
        )
    host = socket.gethostname().split(".")[0]
    for name in ("state", "munge", *NODES):
        (folder / name).mkdir(mode=0o700)
    key = folder / "munge" / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(1024))
    conf = folder / "slurm.conf"
    lines = SETTINGS.format(host=host, port=free_port(), user=getpass.getuser(), folder=folder)
    nodes = (
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=4 RealMemory=4000\n"
        for name in NODES
    )
    conf.write_text(lines + "".join(nodes))
    munge = {"key-file": key, "socket": folder / "munge.socket", "pid-file": folder / "munge/pid"}
    munge |= {"log-file": folder / "munge/log", "seed-file": folder / "munge/seed"}
    calls = [
        [programs["munged"], "--foreground", "--force", *(f"--{key}={value}" for key, value in munge.items())]
    ]
    calls += [[programs["slurmctld"], "-D", "-f", conf]]
    calls += [[programs["slurmd"], "-D", "-f", conf, "-N", name] for name in NODES]
    with contextlib.ExitStack() as stack:
        for call in calls:
            process = subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            _wait_for(folder / "munge.socket")
        stack.callback(_cancel_jobs, conf)
        wait_until_idle(conf)
        yield conf


def _cancel_jobs(conf: Path) -> None:
    """Jobs would outlive the daemons."""
    ask(conf, "scancel", "--user", getpass.getuser())
    for _ in range(100):
        if not ask(conf, "squeue", "-h").strip():
            return
        time.sleep(0.1)


def _wait_for(path: Path) -> None:
    for _ in range(100):
        if path.exists():
            return
        time.sleep(0.1)
    pytest.fail(f"munged does not answer: {(path.parent / 'munge/log').read_text()}")


def wait_until_idle(conf: Path) -> None:
    """Until both nodes take jobs."""
    for _ in range(300):
        states = ask(conf, "sinfo", "-h", "-N", "-o", "%T")
        if states.split() == ["idle"] * len(NODES):
            return
        time.sleep(0.1)
    logs = "".join(path.read_text() for path in conf.parent.glob("*.log"))
    pytest.fail(f"nodes are not idle: {states}\n{logs}")


def ask(conf: Path, *call: str) -> str:
    """What one of Slurm's commands prints."""
    done = subprocess.run(
        call, env=os.environ | {"SLURM_CONF": str(conf)}, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr
