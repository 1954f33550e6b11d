"""What a device can do at most: copies within it, copies to it, products of matrices; one line of JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable

import torch
from turns import DeviceClock, asked, take_turns


def main() -> None:
    options = asked()
    device = torch.device(options.device)
    side, mib = (512, 64) if options.quick else (8192, 1024)
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    random = torch.Generator(device).manual_seed(0)  # zeros can be faster than data
    first, second = (torch.randn(side, side, device=device, generator=random).to(dtype) for _ in range(2))
    there = torch.randn(mib * 2**18, device=device, generator=random)
    goal = torch.empty_like(there)
    here = torch.empty(mib * 2**18).pin_memory() if device.type == "cuda" else torch.empty(mib * 2**18)
    here.copy_(there)
    ways: dict[str, Callable[[], object]] = {
        "flops": lambda: first @ second,
        "copied_bytes": lambda: goal.copy_(there),
        "transferred_bytes": lambda: goal.copy_(here, non_blocking=True),
    }
    work = {"flops": 2 * side**3, "copied_bytes": 2 * there.nbytes, "transferred_bytes": here.nbytes}
    times = take_turns(ways, 3 if options.quick else 20, DeviceClock(device))
    found = {name: work[name] / statistics.median(seconds) for name, seconds in times.items()}
    print(json.dumps({"ceilings": found | {"dtype": str(dtype).removeprefix("torch.")}}), flush=True)


if __name__ == "__main__":
    main()
