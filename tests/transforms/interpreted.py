"""The kernels of a GPU, executed by triton's interpreter on the CPU: greatest distances from `with_torch`, as JSON.

A program of its own, since triton asks for the interpreter as it is imported: TRITON_INTERPRET=1.
"""

import dataclasses
import json

import numpy as np
import torch

from histo_monai.transforms import with_torch, with_triton
from histo_monai.transforms.operations.noise import pool_length
from histo_monai.transforms.sequence import UNUSED
from histo_monai.transforms.views import PretrainAugmentation
from tests.transforms.policies import PHOTOMETRIC, number_of, operations

SIZE = 32


def drawn(num, prob=0.7, **ranges):
    return PretrainAugmentation(SIZE, prob, operations(**ranges)).set_random_state(0).randomize(num, 2)


def only(parameters, schedule):
    return dataclasses.replace(parameters, schedule=schedule)


def distance(parameters, side=SIZE):
    generator = torch.Generator().manual_seed(0)
    patches = torch.randint(0, 256, (parameters.matrices.shape[0] * 2, 3, side, side), generator=generator)
    patches, pool = patches.to(torch.uint8), torch.randn(pool_length(SIZE), generator=generator)
    ours, expected = (
        execution.augment(patches, parameters, pool, SIZE) for execution in (with_triton, with_torch)
    )
    return float((ours - expected).abs().nan_to_num(1.0).max())


def main():
    few = drawn(4)
    none = np.full_like(few.schedule, UNUSED)
    found = {
        operation.__name__: distance(only(few, np.full((4, 1), number_of(operation, few))))
        for operation in PHOTOMETRIC
    }
    far = drawn(6, prob=1.0, scale=(0.3, 2.0), affine_shift=1.5)
    for side in (SIZE, 4 * SIZE, 31):
        found[f"warp of {side} px"] = distance(only(far, np.full_like(far.schedule, UNUSED)), side)
    some = none.copy()
    some[0, :2] = [number_of(PHOTOMETRIC[0], few), number_of(PHOTOMETRIC[-1], few)]
    found |= {"nothing": distance(only(few, none)), "one of four": distance(only(few, some))}
    found["policy"] = distance(drawn(10))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
