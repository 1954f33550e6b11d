"""Files of tensors: what comes in, what is refused by name, and that nothing is unpacked before it is measured."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from histo_monai.utils.errors import InputError
from histo_monai.utils.files.tensors import KINDS, in_the_way, read_tensors

BASE = torch.arange(24, dtype=torch.float32).reshape(4, 6)
FORMATS = {"zip": True, "of torch 1.5 and before": False}


@pytest.mark.parametrize("new", FORMATS.values(), ids=FORMATS)
def test_names_of_one_storage_and_views_come_in_as_tensors_of_their_own(new: bool, tmp_path: Path) -> None:
    given = {
        **{"one": BASE, "again": BASE, "upper": BASE[:2], "lower": BASE[2:], "turned": BASE.T},
        **{"strided": BASE[:, ::2], "broadcast": torch.ones(1).expand(3), "empty": BASE[:0]},
        **{"parameter": nn.Parameter(BASE), "negative": torch._neg_view(BASE)},
    }
    path = tmp_path / "w.pt"
    torch.save(given, path, _use_new_zipfile_serialization=new)
    tensors = read_tensors(path)
    assert all(torch.equal(tensors[name], tensor) for name, tensor in given.items())
    (tmp_path / "again.safetensors").write_bytes(
        safetensors.torch.save(tensors)
    )  # which refuses shared memory
    tensors["one"].zero_()
    assert torch.equal(tensors["again"], BASE)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_ordinary_numbers_come_in_as_they_are(kind: torch.dtype, tmp_path: Path) -> None:
    torch.save({"a": BASE.to(kind)}, tmp_path / "w.pt")
    safetensors.torch.save_file({"a": BASE.to(kind)}, tmp_path / "w.safetensors")
    for name in ("w.pt", "w.safetensors"):
        tensor = read_tensors(tmp_path / name)["a"]
        assert tensor.dtype == kind
        assert torch.equal(tensor, BASE.to(kind))


def _nested() -> torch.Tensor:
    return torch.nested.nested_tensor([BASE, BASE])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("make", "word"),
    [
        (BASE.to_sparse, "sparse_coo"),
        (BASE.to_sparse_csr, "sparse_csr"),
        (lambda: torch.quantize_per_tensor(BASE, 0.1, 0, torch.qint8), "qint8"),
        (lambda: BASE.to(torch.float8_e4m3fn), "float8_e4m3fn"),
        (lambda: BASE.to(torch.float8_e5m2), "float8_e5m2"),
        (lambda: BASE.to("meta"), "meta"),
        (lambda: BASE.to(torch.complex64), "complex64"),
        (lambda: BASE.to(torch.complex64).conj(), "complex64"),
        (lambda: BASE.to(torch.uint16), "uint16"),
        (_nested, "nested"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_no_network_here_has_is_refused_by_name(
    make: Callable[[], torch.Tensor], word: str, tmp_path: Path
) -> None:
    path = tmp_path / "w.pt"
    torch.save({"fine": BASE, "layer.weight": make()}, path)
    with pytest.raises(InputError, match=rf"layer\.weight \(.*{word}"):
        read_tensors(path)


@pytest.mark.parametrize("new", FORMATS.values(), ids=FORMATS)
def test_a_tensor_of_more_numbers_than_its_file_is_refused_before_it_is_copied(
    new: bool, tmp_path: Path
) -> None:
    path = tmp_path / "w.pt"
    torch.save({"a": torch.ones(1).expand(10**13)}, path, _use_new_zipfile_serialization=new)
    with pytest.raises(InputError, match="40000000000000 bytes"):
        read_tensors(path)


def packed(path: Path, num_mib: int) -> None:
    """An archive of torch whose storage is zeros, packed."""
    torch.save({"a": torch.zeros(4)}, path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members.items():
            with archive.open(name, "w", force_zip64=True) as member:
                for _ in range(num_mib if name.endswith("/data/0") else 0):
                    member.write(bytes(2**20))
                member.write(content)


def test_a_member_that_unpacks_to_hundreds_of_times_its_file_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    packed(path, 256)
    assert path.stat().st_size < 2**22
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from histo_monai.utils.files.tensors import read_tensors\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n"
        "    read_tensors(Path(sys.argv[1]))\n"
        "except ValueError as error:\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    grown, _, line = done.stdout.partition(" ")
    assert "a packed archive" in line
    assert int(grown) * 1024 < 2**26


def test_members_that_lie_over_each_other_are_refused(tmp_path: Path) -> None:
    """A thousand entries of one megabyte that is there once: the directory says more than the file has."""
    path = tmp_path / "w.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("w/data.pkl", b"x" * 2**20)
        first = archive.filelist[0]
        archive.filelist += [first] * 1000
    with pytest.raises(InputError, match="packed archive"):
        read_tensors(path)


@pytest.mark.parametrize(
    ("beside", "culprit"),
    [
        (np.zeros(3), "multiarray._reconstruct"),
        (Path("x"), "pathlib"),
        (nn.Linear(2, 2), "torch.nn.modules.linear.Linear"),
        (print, "print"),
    ],
    ids=["an array of numpy", "a path", "a module", "a function"],
)
@pytest.mark.parametrize("new", FORMATS.values(), ids=FORMATS)
def test_what_stands_beside_the_tensors_is_named_without_codes_of_a_terminal(
    beside: Any, culprit: str, new: bool, tmp_path: Path
) -> None:
    path = tmp_path / "w.pt"
    torch.save({"state_dict": {"a": BASE}, "best": beside}, path, _use_new_zipfile_serialization=new)
    with pytest.raises(InputError, match=culprit) as caught:
        read_tensors(path)
    assert str(caught.value).isprintable()
    assert len(str(caught.value).removeprefix(str(path))) < 300


@pytest.mark.parametrize(
    ("names", "prefix"),
    [
        (["_orig_mod.a", "_orig_mod.b.weight", "x"], "_orig_mod."),
        (["model.resnet.a", "model.resnet.b.weight"], "model.resnet."),
        (["a", "b.weight"], ""),
        (["0.a", "0.b.weight", "1.a"], "0."),
        (["x", "y.z"], ""),
        ([], ""),
    ],
)
def test_what_stands_before_all_names_is_found(names: list[str], prefix: str) -> None:
    assert in_the_way(names, ["a", "b.weight"]) == prefix
