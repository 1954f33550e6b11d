"""Does cuCIM's cache of decoded tiles give tiles of one file for tiles of another?

    python benchmarks/cucim_cache.py [--cache nocache] [--files 1000]

Needs cucim, numpy and tifffile alone. Writes files of one tile, each of one gray level, reads every one once, and ends
with status 1 where a pixel is another file's. See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile

import numpy as np
import tifffile


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", choices=["per_process", "nocache"], default="per_process")
    parser.add_argument("--files", type=int, default=1000)
    options = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CUCIM_CONFIG_PATH"] = os.path.join(folder, "cucim.json")
        with open(os.environ["CUCIM_CONFIG_PATH"], "w") as file:
            json.dump({"cache": {"type": options.cache, "memory_capacity": 64, "capacity": 256}}, file)
        from cucim.clara import CuImage  # reads the settings

        for number in range(options.files):
            value, path = number % 251, os.path.join(folder, f"{number}.tif")
            tile = np.full((256, 256, 3), value, np.uint8)
            tifffile.imwrite(path, tile, tile=(256, 256), photometric="rgb")
            pixels = np.asarray(CuImage(path).read_region((0, 0), (256, 256), 0))
            if (pixels != value).any():
                wrong += 1
                print(f"file {number}: {value} was written, {pixels[0, 0, 0]} is read")
    print(f"{wrong} of {options.files} files are read wrongly")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
