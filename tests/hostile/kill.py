"""Kill stages at random moments, start them again, and compare every byte with a run that nobody disturbed.

python -m tests.hostile.kill --kills 20     # from the root of the checkout; --seed for other moments

Two projects with the same inputs run the same stages. In one of them each stage is ended by SIGKILL, as the kernel does
where memory ends, as often as asked; after each kill its output is there as a whole or not at all, and what is started
again must end in the same files. Each stage runs in a process forked from a server that has imported everything.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pandas as pd
import tifffile
import yaml

from tests.papers_way import in_the_papers_way
from tests.ranks import server

ROOT = Path(__file__).resolve().parents[2]
RUN = ("--method", "rsp", "--seed", "0")
PREPARE = (("index",),)
STAGES: dict[tuple[str, ...], str] = {
    ("pretrain", "--method", "rsp"): "data/models/rsp-0",
    ("pretrain", "--method", "moco"): "data/models/moco-0",
    ("pretrain", "--method", "vae"): "data/models/vae-0",
    ("finetune", *RUN): "data/models/rsp-0-0/finetuned",
    ("consistency", *RUN): "data/models/rsp-0-paper-0/student",
    ("heatmap", *RUN): "data/heatmaps/rsp-0-paper-0",
}
"""What is killed, in the order of the pipeline -> the folder that it writes."""
_SIDE_PX = 512
_LIMIT_S = 600.0


@dataclass(frozen=True)
class Kill:
    """One SIGKILL.

    Attributes:
        stage: what was running.
        after_s: seconds since it was started.
        of_s: seconds that it takes undisturbed.
        had_resumed: whether it was itself a stage that had been killed before.
    """

    stage: str
    after_s: float
    of_s: float
    had_resumed: bool


def make_project(folder: Path, *, quick: bool) -> None:
    """Slides of noise, squares with labels, and params that train in seconds; `quick`: the slides bear no labels."""
    params = in_the_papers_way(yaml.safe_load((ROOT / "params.yaml").read_text()))
    params |= {"source": "raw", "dataset": "own", "pretraining_dataset": "own", "patch_px": 32, "alpha": 0.5}
    params |= {"pretraining_methods": ["rsp", "moco", "vae"], "mu": 2, "n_aug": 2}
    params["slide_level"] |= {key: params[key] for key in ("pretraining_methods", "semisupervised_methods")}
    params["corpora"]["own"] |= {"num_train": 8, "num_validation": 4}
    for method in ("rsp", "moco", "vae"):
        params["pretrain"][method] |= {"epochs": 2, "batch_size": 4}
    params["pretrain"]["moco"]["queue_size"] = 8
    params["pretrain"]["vae"]["decoder_width"] = 4
    for stage in ("finetune", "consistency"):
        params[stage]["paper"] |= {"epochs": 2, "batch_size": 4, "milestones": []}
    params["cross_validation"]["num_folds"] = 2
    if quick:
        params["encoder"]["name"] = "test_resnet"
    own = folder / "data/raw/own"
    own.mkdir(parents=True)
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    splits = ["train"] * (2 if quick else 4) + ["validation"] * 2
    slides = pd.DataFrame({"slide_id": [f"s{i}" for i in range(len(splits))], "split": splits})
    slides["path"] = slides["slide_id"] + ".tif"
    slides["patient_id"] = "P" + slides["slide_id"]
    slides["label"] = ["tumor", "normal"] * (len(splits) // 2)
    (slides.drop(columns="label") if quick else slides).to_csv(own / "slides.csv", index=False)
    rows = []
    for number, slide in slides.iterrows():
        _write_slide(own / slide["path"], seed=int(str(number)))
        for y, x in itertools.product((112, 208, 304, 400), (160, 352)):
            square = {"slide_id": slide["slide_id"], "y": y, "x": x, "mpp": 1.0, "label": slide["label"]}
            rows.append({**square, "patient_id": slide["patient_id"], "split": slide["split"]})
    pd.DataFrame(rows).to_csv(own / "patches.csv", index=False)


def _write_slide(path: Path, seed: int) -> None:
    generator = np.random.default_rng(seed)
    pixels = np.full((_SIDE_PX, _SIDE_PX, 3), 245, np.uint8)
    coarse = generator.integers(-40, 40, (56, 56, 1)).repeat(8, 0).repeat(8, 1)
    pixels[32:-32, 32:-32] = np.clip(np.array([200, 110, 170]) + coarse, 0, 255)
    resolution = {"resolution": (10_000, 10_000), "resolutionunit": "CENTIMETER"}
    tifffile.imwrite(path, pixels, tile=(256, 256), photometric="rgb", **resolution)  # type: ignore[arg-type]


def _work(folder: Path, stage: Sequence[str]) -> None:
    os.chdir(folder)
    os.environ |= {
        "HISTO_MONAI_DEVICE": "cpu",
        "HISTO_MONAI_RANKS": "1",
        "HISTO_MONAI_WORKERS": "0",
        "HISTO_MONAI_CPUS": "1",
    }
    with Path("log").open("a") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    from histo_monai.pipeline.cli import main

    sys.exit(main(stage))


class Starter:
    """Starts stages as forks of a server without threads, which has imported what they need."""

    def __init__(self) -> None:
        self._context = server()

    def start(self, folder: Path, stage: Sequence[str]) -> BaseProcess:
        """The process of a stage, running."""
        process = self._context.Process(target=_work, args=(folder, tuple(stage)))
        process.start()
        return process

    def finish(self, folder: Path, stage: Sequence[str]) -> float:
        """Run a stage to its end; seconds."""
        start = time.monotonic()
        process = self.start(folder, stage)
        process.join(_LIMIT_S)
        if process.exitcode != 0:
            process.kill()
            log = (folder / "log").read_text()[-2000:]
            raise AssertionError(f"{' '.join(stage)} ended with {process.exitcode}: {log}")
        return time.monotonic() - start


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder that a stage has left, drafts and locks too."""
    if not folder.exists():
        return {}
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def differences(one: dict[str, bytes], other: dict[str, bytes]) -> list[str]:
    """Names of files that only one has, or whose bytes differ."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def kill_and_resume(folder: Path, *, kills: int, seed: int, quick: bool = False) -> Iterator[Kill]:
    """Kill stages, spread as evenly as can be, and check what they leave; yields each kill that has been made good.

    Args:
        folder: empty.
        kills: how many in all.
        seed: of the moments.
        quick: of the pretrainings RSP alone; no folds of slides.

    Raises:
        AssertionError: a stage that was started again failed, or left other bytes than the undisturbed one; names them.
    """
    moments, starter = random.Random(seed), Starter()
    num_kills: dict[tuple[str, ...], int] = {}
    whole, hurt = folder / "undisturbed", folder / "killed"
    make_project(whole, quick=quick)
    stages = [stage for stage in STAGES if not quick or not {"moco", "vae"} & set(stage)]
    for stage in PREPARE:
        starter.finish(whole, stage)
    shutil.copytree(whole, hurt)
    of_s = {stage: starter.finish(whole, stage) for stage in stages}
    # The last ones are killed once more where it does not come out even.
    for number, stage in enumerate(reversed(stages)):
        num_kills[stage] = kills // len(stages) + (number < kills % len(stages))
    for stage in stages:
        num = num_kills[stage]
        made = [
            Kill(" ".join(stage[:3:2]), after_s, of_s[stage], attempt > 0)
            for attempt, after_s in enumerate(_kills(starter, hurt, whole, stage, of_s[stage], num, moments))
        ]
        starter.finish(hurt, stage)
        odd = differences(contents(whole / STAGES[stage]), contents(hurt / STAGES[stage]))
        assert not odd, f"{' '.join(stage)}, killed {num} times, left other bytes in {', '.join(odd)}"
        assert contents(whole / STAGES[stage]), "nothing was compared"
        yield from made
    for name in ("data/models", "data/heatmaps", "data/checkpoints", "data/raw", "data/index"):
        odd = differences(contents(whole / name), contents(hurt / name))
        assert not odd, f"at the end {name} differs in {', '.join(odd)}"


def _kills(
    starter: Starter,
    hurt: Path,
    whole: Path,
    stage: Sequence[str],
    of_s: float,
    num: int,
    moments: random.Random,
) -> Iterator[float]:
    """Start and kill a stage `num` times; the seconds after which each was killed."""
    output = STAGES[tuple(stage)]
    longest = of_s
    while num:
        start = time.monotonic()
        process = starter.start(hurt, stage)
        process.join(moments.uniform(0, longest))
        process.kill()
        process.join()
        if process.exitcode == 0:  # It was done before: nothing was killed. Sooner, and from the beginning.
            longest /= 2
            shutil.rmtree(hurt / output)
            continue
        assert process.exitcode == -9, (hurt / "log").read_text()[-2000:]
        contents_now = contents(hurt / output)
        half = differences(contents(whole / output), contents_now) if contents_now else []
        assert not half, f"{' '.join(stage)} was killed and left half a folder: {', '.join(half)}"
        num -= 1
        yield time.monotonic() - start


def main() -> None:
    """Print each kill, and how many were made good."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    start, done = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="kill-") as folder:
        for kill in kill_and_resume(Path(folder), kills=arguments.kills, seed=arguments.seed):
            done += 1
            again = ", resumed before" if kill.had_resumed else ""
            print(
                f"{done:3} {kill.stage:16} killed after {kill.after_s:5.2f} of {kill.of_s:.2f} s{again}",
                flush=True,
            )
    spent = time.monotonic() - start
    print(
        f"{done} kills, {done} resumed, all files byte for byte those of the undisturbed run ({spent:.0f} s)"
    )


if __name__ == "__main__":
    main()
