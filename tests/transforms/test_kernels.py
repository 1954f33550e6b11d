import json
import os
import subprocess
import sys

import pytest
import torch

from histo_monai.transforms import with_torch, with_triton
from histo_monai.transforms.operations.blur import Blur
from histo_monai.transforms.operations.brightness_contrast import BrightnessContrast
from histo_monai.transforms.operations.noise import pool_length
from histo_monai.transforms.views import PretrainAugmentation

pytestmark = pytest.mark.slow

pytest.importorskip("triton", reason="comes with torch on Linux alone")

HUNDREDTH_OF_A_LEVEL = 0.01 / 255


@pytest.fixture(scope="module")
def distances(root):
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.transforms.interpreted"]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_kernels_give_what_torch_gives(distances):
    assert len(distances) == 11
    assert {name: far for name, far in distances.items() if far > HUNDREDTH_OF_A_LEVEL} == {}


def test_kernels_compile_for_gpus_that_are_not_here(root, tmp_path):
    program = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from histo_monai.transforms import kernels
from histo_monai.transforms.with_triton import KINDS
BUFFERS = dict(warped="*fp32", views="*fp32", table="*fp32", grays="*fp32", step="i32", num_steps="i32", width="i32")
COLUMNS = ("noise", "hue_saturation", "brightness_contrast", "blur", "hed")
assert len(COLUMNS) == len(KINDS)
for kernel, types, constants in (
    (kernels.warp, dict(images="*u8", table="*fp32", warped="*fp32", width="i32"), dict(SIDE=256, SIZE=224, TILE=1024)),
    (kernels.gray_means, BUFFERS | dict(column="i32"), dict(SIZE=224, TILE=4096)),
    (kernels.change, BUFFERS | dict(normals="*fp32", **dict.fromkeys(COLUMNS, "i32")),
     dict(RADIUS=3, SIZE=224, TILE=1024)),
):
    signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    source = ASTSource(kernel, signature, {(kernel.arg_names.index(k),): v for k, v in constants.items()})
    for capability in (75, 90):
        assert triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm["cubin"]
"""
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_pixels_are_changed_in_place_but_for_the_blur_that_brings_them_to_the_views():
    drawn = PretrainAugmentation(32, 0.5).set_random_state(3).randomize(200, 1)
    codes, places = with_triton.plan(drawn)
    blur, other = (
        with_triton.FIRST_KIND + with_triton.KINDS.index(kind) for kind in (Blur, BrightnessContrast)
    )
    assert (codes == blur).any()
    assert (codes == other).any()
    for of_image, where, wanted in zip(codes, places, drawn.schedule, strict=True):
        done, at_views = [], False
        for code, place in zip(of_image, where, strict=True):
            if code == with_triton.NOTHING:
                continue
            assert bool(place & with_triton.READS_VIEWS) == at_views
            moves = bool(place & with_triton.WRITES_VIEWS) != at_views
            assert moves or code != blur
            at_views |= moves
            done += [] if code == with_triton.COPY else [with_triton.KINDS[code - with_triton.FIRST_KIND]]
        assert at_views
        assert done == [type(drawn.operations[number]) for number in wanted if number >= 0]


def test_operations_of_others_are_left_to_torch():
    class Mine(BrightnessContrast):
        pass

    drawn = PretrainAugmentation(32, 0.5).set_random_state(0).randomize(2, 1)
    known = with_triton.does(drawn, torch.device("cuda"))
    mine = [
        Mine(one.brightness, one.contrast) if type(one) is BrightnessContrast else one
        for one in drawn.operations
    ]
    of_others = with_triton.does(
        drawn.__class__(**{**vars(drawn), "operations": tuple(mine)}), torch.device("cuda")
    )
    twice = with_triton.does(
        drawn.__class__(**{**vars(drawn), "operations": (*drawn.operations, drawn.operations[0])}),
        torch.device("cuda"),
    )
    assert (known, of_others, twice) == (True, False, False)
    assert not with_triton.does(drawn, torch.device("cpu"))


def test_a_gpu_uses_them(device: torch.device):
    drawn = PretrainAugmentation(64, 0.7).set_random_state(0).randomize(20, 3)
    assert with_triton.does(drawn, device) == (device.type == "cuda")
    generator = torch.Generator().manual_seed(0)
    patches = torch.randint(0, 256, (60, 3, 128, 128), generator=generator).to(torch.uint8).to(device)
    pool = torch.randn(pool_length(64), generator=generator)
    execution = with_triton if device.type == "cuda" else with_torch
    ours, again = (execution.augment(patches, drawn, pool, 64) for _ in range(2))
    assert torch.equal(ours, again)
    assert (ours - with_torch.augment(patches, drawn, pool, 64)).abs().max() < HUNDREDTH_OF_A_LEVEL
