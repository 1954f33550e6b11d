"""What checks cost: of an index and of maps of a simulated dataset, in one process, each check's seconds and fraction.

    python benchmarks/checking.py                                            # 8 training and 4 test slides of 2048 px
    python benchmarks/checking.py --slides 36 --test-slides 24 --side-px 3072  # as in the default experiment

A check is named by its module or function (`CHECKS`); those that this version does not have are left out, and one
inside another is counted once, in the outer one. All runs in one process, so that no check hides in another. `--run-s`
is how long the whole experiment takes with the same dataset: the last column has fractions of it.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import inspect
import os
import pkgutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ |= {"HISTO_MONAI_CPUS": "1", "HISTO_MONAI_WORKERS": "0", "HISTO_MONAI_RANKS": "1"}

import torch
import yaml

import histo_monai
from histo_monai.models.checkpoint import save_model
from histo_monai.models.encoder import build_encoder
from histo_monai.models.task_model import TaskModel, describe_task_model
from histo_monai.pipeline.cli import main as call

ROOT = Path(__file__).resolve().parent.parent
CHECKS = {
    "leaks, copies and ids": ("histo_monai.data.leakage",),
    "images: whole, and which are the same": ("histo_monai.data.index.images",),
    "digests that slides.csv names": ("histo_monai.data.readers.own.slides.check_sha256",),
    "names": ("histo_monai.utils.storage.names",),
    "tables of slides": ("histo_monai.slides.tiff.read_pages", "histo_monai.slides.tiff.pages"),
    "tiles before they are decoded": ("histo_monai.slides.tiles", "histo_monai.slides.tiff.tiles"),
    "what decoders complain about": ("histo_monai.utils.process.complaints",),
    "identities of files": ("histo_monai.utils.storage.identity",),
    "seals of models": ("histo_monai.utils.storage.seal", "histo_monai.models.checkpoint._digest_of"),
    "outputs that are inputs": (
        "histo_monai.utils.storage.outputs",
        "histo_monai.utils.storage.atomic.check_replaceable",
    ),
    "params": ("histo_monai.pipeline.params.load_params",),
    "provenance": ("histo_monai.pipeline.provenance", "histo_monai.pipeline.environment.code_version"),
}
PATCH_PX, MPP = 64, 1.0


class Stopwatch:
    """Seconds and calls of each check; of nested ones the outermost runs."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self._running = False

    def watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed as a part of a check."""

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._running:
                return function(*args, **kwargs)
            self._running, start = True, time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self._running = False
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
                self.calls[name] = self.calls.get(name, 0) + 1

        return timed

    def reset(self) -> None:
        """Forget what was timed."""
        self.seconds, self.calls = {}, {}


def watch_all(stopwatch: Stopwatch) -> None:
    """Put the stopwatch around every check, wherever it was imported to."""
    for module in pkgutil.walk_packages(histo_monai.__path__, "histo_monai."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    loaded = [module for name, module in sys.modules.items() if name.startswith("histo_monai")]
    for check, names in CHECKS.items():
        for function in (one for name in names for one in functions_of(name)):
            timed = stopwatch.watched(check, function)
            owners = [
                *loaded,
                *(cls for module in loaded for cls in vars(module).values() if inspect.isclass(cls)),
            ]
            for owner in owners:
                for attribute, value in list(vars(owner).items()):
                    if value is function:
                        setattr(owner, attribute, timed)


def functions_of(name: str) -> Iterator[Callable[..., Any]]:
    """Public functions and methods of a package or module, or one function; none where there is no such thing."""
    parent, _, last = name.rpartition(".")
    if name in sys.modules:
        modules = [m for n, m in sys.modules.items() if n == name or n.startswith(f"{name}.")]
        for module in modules:
            for value in vars(module).values():
                if getattr(value, "__module__", None) == module.__name__:
                    yield from _plain_functions(value)
    elif parent in sys.modules and inspect.isfunction(getattr(sys.modules[parent], last, None)):
        yield getattr(sys.modules[parent], last)


def _plain_functions(value: object) -> Iterator[Callable[..., Any]]:
    """Generators and contexts do their work later, and are left out."""
    members: list[Any] = list(vars(value).values()) if inspect.isclass(value) else [value]
    for one in filter(inspect.isfunction, members):
        if not one.__name__.startswith("_") and not inspect.isgeneratorfunction(inspect.unwrap(one)):
            yield one


def prepare(arguments: argparse.Namespace) -> None:
    """params.yaml, the dataset, and a model that nothing has trained, in the working folder."""
    tree = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    tree["phantom"] |= {
        "num_slides": arguments.slides,
        "num_test_slides": arguments.test_slides,
        "slide_side_px": arguments.side_px,
    }
    fraction = arguments.slides / 36
    for section in ("train", "separate_validation", "test"):
        counts = tree["labels"]["camelyon16"][section]
        counts |= {name: max(2, int(num * fraction)) for name, num in counts.items()}
    corpus = tree["corpora"]["camelyon16"]
    corpus |= {name: max(1, int(corpus[name] * fraction)) for name in ("num_train", "num_validation")}
    corpus |= {name: max(1, int(corpus[name] * fraction)) for name in ("num_normal", "num_tumor")}
    tree["pretraining_methods"] = ["random"]
    Path("params.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    must(["phantom"])
    torch.manual_seed(0)
    encoder = build_encoder().description(
        architecture="", head="linear", patch_px=PATCH_PX, mpps=[1.0, 2.0, 4.0]
    )
    encoder |= {"method": "random", "source": "phantom", "corpus": "camelyon16"}
    classes = ["normal", "tumor"]
    about = describe_task_model(encoder, classes=classes, patch_px=PATCH_PX, mpp=MPP)
    save_model(
        Path("model.safetensors"), TaskModel(build_encoder(), "linear", len(classes)).state_dict(), about
    )


def must(argv: list[str]) -> None:
    """A call that ends well."""
    if call(argv) != 0:
        raise SystemExit(f"{argv[0]} was refused")


def table(stage: str, whole_s: float, stopwatch: Stopwatch, run_s: float) -> list[str]:
    """Lines of Markdown: check, calls, seconds, fraction of the stage, fraction of the run."""
    rows = sorted(stopwatch.seconds.items(), key=lambda row: -row[1])
    rows.append(("all checks", sum(stopwatch.seconds.values())))
    calls = stopwatch.calls | {"all checks": sum(stopwatch.calls.values())}
    lines = ["", f"{stage}: {whole_s:.1f} s", ""]
    lines += ["| check | calls | seconds | of the stage | of the run |", "|---|---|---|---|---|"]
    lines += [
        f"| {name} | {calls[name]} | {seconds:.3f} | {seconds / whole_s:.1%} | {seconds / run_s:.2%} |"
        for name, seconds in rows
    ]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slides", type=int, default=8, help="training slides")
    parser.add_argument("--test-slides", type=int, default=4)
    parser.add_argument("--side-px", type=int, default=2048)
    parser.add_argument("--run-s", type=float, default=17 * 60.0, help="of the whole experiment, s")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="checking-") as folder:
        os.chdir(folder)
        prepare(arguments)
        stopwatch = Stopwatch()
        watch_all(stopwatch)
        slides = sorted(map(str, Path("data/phantom/camelyon16/testing/images").glob("*.tif")))
        lines = [f"{arguments.slides} + {arguments.test_slides} slides of {arguments.side_px} px"]
        for stage, argv in (
            ("index", ["index"]),
            (
                f"maps of {len(slides)} slides",
                ["map", *slides, "--model", "model.safetensors", "--output", "maps"],
            ),
        ):
            stopwatch.reset()
            start = time.perf_counter()
            must(argv)
            lines += table(stage, time.perf_counter() - start, stopwatch, arguments.run_s)
        os.chdir(ROOT)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
