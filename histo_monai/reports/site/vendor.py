"""Browser libraries of the report page, fetched when the package is built, never at run time.

    python -m histo_monai.reports.site.vendor    # by hand, if the registry was not reachable then

It imports only the standard library, because it runs before anything is installed.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
NAME = "vendored"
"""Folder beside this file, which git does not track: a copy of the repository that DVC makes for a queued experiment
has none, and takes those of the installed package."""
REGISTRY = "https://registry.npmjs.org"
"""Address of packages for a machine without npm; npm uses its own configuration."""
TIMEOUT_S = 120.0


class Library(NamedTuple):
    """A package of the npm registry.

    Attributes:
        name: of the package, and of the file that it leaves here, with `.js`.
        version: that is fetched.
        sha512: of the package, as the registry states it, base64.
        script: path in the package.
        license: the same, of its license.
    """

    name: str
    version: str
    sha512: str
    script: str
    license: str

    @property
    def files(self) -> dict[str, str]:
        """Path in the package -> name here."""
        return {self.script: f"{self.name}.js", self.license: f"{self.name}.LICENSE"}


VIEWER_LIBRARY = "openseadragon"
"""The viewer's part of `LIBRARIES`; charts use the others."""
LIBRARIES = (
    Library(
        VIEWER_LIBRARY,
        "6.1.1",
        "g4iKe2q8B642SaBT3+x4ZF3/8b1TxPPydyjmtrOLgDrlYWMKd9ZXM+1Cb/xa9DVySkvs/7l6HR1nHKfD5F3Tsw==",
        "build/openseadragon/openseadragon.min.js",
        "LICENSE.txt",
    ),
    Library(
        "vega",
        "6.4.0",
        "rHXCq2LpEWCLMjXBEj7hocY9G0/i5TGYRayGGSj06VTF4+l2IG2Z7oeZKCjWbUh/7hTE/mVhbaOPB72wCElh6g==",
        "build/vega.min.js",
        "LICENSE",
    ),
    Library(
        "vega-lite",
        "6.5.0",
        "fMXF6s0MrIg0UTWnLIfeFtgSLzVhyzSKobzGrh5rhS+mL6FOYFG3m7ouJ4U23gj65EK+gl9FIIT5w7wLNaAzkA==",
        "build/vega-lite.min.js",
        "LICENSE",
    ),
    Library(
        "vega-embed",
        "7.3.0",
        "wQ8s5GaSzqoKgmRfbRolgBrjE2CP7ZKHXqH7NijxMqPjpdWxSs4Dn8tvp9g0giQvh2cK+3p56sxjWWM0wNngGw==",
        "build/vega-embed.min.js",
        "LICENSE",
    ),
)
"""Libraries in loading order."""


def found() -> Path | None:
    """Folder of the libraries, beside this file or in the installed package; None if missing."""
    return next((folder for folder in (HERE / NAME, *_installed()) if not missing(folder)), None)


def _installed() -> Iterator[Path]:
    site = HERE.relative_to(HERE.parents[2]) / NAME
    for package in importlib.metadata.distributions(name="histo_monai"):
        yield Path(str(package.locate_file(str(site))))
        origin = json.loads(package.read_text("direct_url.json") or "{}")
        address = urllib.parse.urlsplit(origin.get("url", ""))
        if address.scheme == "file":  # installed from a folder, with `pip install --editable`
            yield Path(urllib.parse.unquote(address.path)) / site


def missing(folder: Path) -> list[str]:
    """Names of missing files."""
    return [name for library in LIBRARIES for name in library.files.values() if not (folder / name).is_file()]


def fetch(folder: Path) -> None:
    """Fetch missing libraries with npm, else from its public registry.

    Args:
        folder: for scripts and licenses.

    Raises:
        OSError: the registry is not reachable, or a package has an unexpected digest.
    """
    for library in LIBRARIES:
        if all((folder / name).is_file() for name in library.files.values()):
            continue
        package = _by_npm(library) if shutil.which("npm") else _by_url(library)
        digest = base64.b64encode(hashlib.sha512(package).digest()).decode()
        if digest != library.sha512:
            raise OSError(
                f"{library.name} {library.version}: the registry gave another package than expected "
                f"(sha512 {digest[:12]}...)"
            )
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(package)) as files:
            for path, name in library.files.items():
                member = files.extractfile(f"package/{path}")
                assert member is not None  # the digest guarantees this file
                draft = folder / f".{name}"
                draft.write_bytes(member.read())
                draft.replace(folder / name)


def _by_npm(library: Library) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "npm",
            "pack",
            f"{library.name}@{library.version}",
            "--silent",
            "--pack-destination",
            folder,
        ]
        try:
            subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
            return next(Path(folder).glob("*.tgz")).read_bytes()
        except (subprocess.SubprocessError, StopIteration) as error:
            lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
            raise OSError(
                f"npm could not fetch {library.name} {library.version}: {lines[-1] if lines else error!r}"
            ) from None


def _by_url(library: Library) -> bytes:
    url = f"{REGISTRY}/{library.name}/-/{library.name}-{library.version}.tgz"
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        content: bytes = answer.read()
    return content


if __name__ == "__main__":
    try:
        fetch(HERE / NAME)
    except OSError as error:
        sys.exit(f"{error}. Fix: check the connection to the npm registry")
