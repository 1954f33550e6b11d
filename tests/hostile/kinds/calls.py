"""The command line and the environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.hostile.case import ACCEPTED, EITHER, WRONG_CALL, Case
from tests.hostile.project import MAP, OWN, RUN, STUDENT, write_text
from tests.hostile.trees import LESION, asap

CALLS, ENVIRONMENT = "command line", "environment"
SLIDE = str(OWN / "s6.tif")
NEW = ("--model", str(STUDENT), "--output", "new")
ENCODER = "data/models/random-0/encoder.safetensors"
FINETUNE = "finetune"

WRONG: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "a stage nobody knows": ("train",),
    "a stage of an escape sequence": ("\x1b[2J",),
    "an option nobody knows": ("index", "--fast"),
    "no method": ("pretrain",),
    "a method without a name": ("pretrain", "--method"),
    "no seed": (FINETUNE, "--method", "random"),
    "a seed in words": (FINETUNE, "--method", "random", "--seed", "zero"),
    "a seed of 1.5": (FINETUNE, "--method", "random", "--seed", "1.5"),
    "no slide to map": ("map", *NEW),
    "no folder to map into": ("map", SLIDE, "--model", str(STUDENT)),
    "a stride in words": ("map", SLIDE, *NEW, "--stride-um", "fine"),
    "a number of suggestions in words": ("suggest", *RUN, "--num", "many"),
    "one file to convert": ("convert", "a.xml"),
    "three files to convert": ("convert", "a.xml", "b.geojson", "c.xml"),
    "a score in words": ("curves", "--score", "good"),
    "a port and nothing to serve": ("report", "--port", "8000"),
    "a dataset nobody knows": ("init", "new", "--dataset", "tcga"),
}
REFUSALS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "a method nobody knows": (("pretrain", "--method", "simclr"), ("simclr",)),
    "a method of nothing": (("pretrain", "--method", ""), ("--method",)),
    "a method upwards": (("pretrain", "--method", "../../../escaped"), ("--method",)),
    "a method with a null character": (("pretrain", "--method", "ran\0dom"), ("--method",)),
    "a method of 300 characters": (("pretrain", "--method", "m" * 300), ("--method",)),
    "a method of an escape sequence": (("pretrain", "--method", "\x1b[2J"), ("--method",)),
    "a method upwards for finetune": (
        (FINETUNE, "--method", "../../../escaped", "--seed", "0"),
        ("--method",),
    ),
    "a method nobody knows for finetune": ((FINETUNE, "--method", "simclr", "--seed", "0"), ("simclr",)),
    "a method that is not among the methods": ((FINETUNE, "--method", "vae", "--seed", "0"), ("vae",)),
    "a negative seed": ((FINETUNE, "--method", "random", "--seed", "-1"), ("--seed",)),
    "a seed of 10^20": ((FINETUNE, "--method", "random", "--seed", str(10**20)), ("--seed",)),
    "a seed of 5,000 digits": ((FINETUNE, "--method", "random", "--seed", "9" * 4000), ("--seed",)),
    "a seed that is not among the seeds": (("heatmap", "--method", "random", "--seed", "7"), ("7",)),
    "a slide that is not there": (("map", "gone.tif", *NEW), ("gone.tif",)),
    "a folder as slide": (("map", str(OWN), *NEW), ("own",)),
    "a table as slide": (("map", str(OWN / "slides.csv"), *NEW), ("slides.csv",)),
    "a slide of nothing": (("map", "", *NEW), ()),
    "a slide of a null character": (("map", "a\0.tif", *NEW), ()),
    "a slide of two lines": (("map", "a\nb.tif", *NEW), ("tif",)),
    "a slide of an escape sequence": (("map", "\x1b[2J.tif", *NEW), ("tif",)),
    "a slide twice": (("map", SLIDE, SLIDE, *NEW), ("s6.tif",)),
    "two slides of one name": (("map", SLIDE, "other/s6.tif", *NEW), ("s6",)),
    "a model that is not there": (
        ("map", SLIDE, "--model", "gone.safetensors", "--output", "new"),
        ("gone",),
    ),
    "a folder as model": (("map", SLIDE, "--model", "data/models", "--output", "new"), ("data/models",)),
    "a slide as model": (("map", SLIDE, "--model", SLIDE, "--output", "new"), ("s6",)),
    "a folder of nothing": (("map", SLIDE, "--model", str(STUDENT), "--output", ""), ("--output",)),
    "a stride of 0": (("map", SLIDE, *NEW, "--stride-um", "0"), ("--stride-um",)),
    "a negative stride": (("map", SLIDE, *NEW, "--stride-um", "-32"), ("--stride-um",)),
    "a stride of nan": (("map", SLIDE, *NEW, "--stride-um", "nan"), ("--stride-um",)),
    "an infinite stride": (("map", SLIDE, *NEW, "--stride-um", "inf"), ("--stride-um",)),
    "a stride of a millionth": (("map", SLIDE, *NEW, "--stride-um", "1e-6"), ("stride",)),
    "a stride of half a pixel": (("map", SLIDE, *NEW, "--stride-um", "10.5"), ("stride",)),
    "µm/px of 0": (("map", SLIDE, *NEW, "--mpp", "0"), ("mpp",)),
    "negative µm/px": (("map", SLIDE, *NEW, "--mpp", "-0.5"), ("mpp",)),
    "µm/px of nan": (("map", SLIDE, *NEW, "--mpp", "nan"), ("mpp",)),
    "infinite µm/px": (("map", SLIDE, *NEW, "--mpp", "inf"), ("mpp",)),
    "a thousand µm/px": (("map", SLIDE, *NEW, "--mpp", "1000"), ("mpp",)),
    "an error rate of nan": (("map", SLIDE, *NEW, "--abstain", "nan"), ("--abstain",)),
    "an error rate of 2": (("map", SLIDE, *NEW, "--abstain", "2"), ("--abstain",)),
    "a class nobody knows": (("map", SLIDE, *NEW, "--positive-class", "cyst"), ("cyst",)),
    "no suggestion": (("suggest", *RUN, "--num", "0"), ("--num",)),
    "-1 suggestions": (("suggest", *RUN, "--num", "-1"), ("--num",)),
    "squares of 0": (("suggest", *RUN, "--side-um", "0"), ("--side-um",)),
    "squares of nan": (("suggest", *RUN, "--side-um", "nan"), ("--side-um",)),
    "infinite squares": (("suggest", *RUN, "--side-um", "inf"), ("--side-um",)),
    "squares larger than a slide": (("suggest", *RUN, "--side-um", "100000"), ()),
    "a file that is not there to convert": (("convert", "gone.xml", "b.geojson"), ("gone.xml",)),
    "a picture to convert": (("convert", SLIDE, "b.geojson"), ("s6.tif",)),
    "a format nobody knows to convert into": (("convert", "a.xml", "b.svg"), ("b.svg",)),
    "curves without git": (("curves",), ()),
    "curves to a score of nan": (("curves", "--score", "nan"), ()),
    "a port of 99999": (("report", "--serve", "--port", "99999"), ("--port: 99999 is out of range",)),
    "a negative port": (("report", "--serve", "--port", "-1"), ("--port: -1",)),
    "an encoder to map with": (
        ("map", SLIDE, "--model", ENCODER, "--output", "new"),
        ("an encoder, not a fine-tuned model",),
    ),
    "an encoder as bundle": (("export", ENCODER, "--bundle", "new"), ("an encoder, not a fine-tuned model",)),
    "nothing to export": (("export", str(STUDENT)), ("--bundle",)),
    "authors of a graph": (
        ("export", str(STUDENT), "--onnx", "new.onnx", "--authors", "A. B."),
        ("--authors",),
    ),
    "a graph of another suffix": (("export", str(STUDENT), "--onnx", "new"), ("ends in .onnx",)),
    "a trunk of another suffix": (("export", str(STUDENT), "--trunk", "new.pt"), ("ends in .safetensors",)),
    "a bundle over the data": (("export", str(STUDENT), "--bundle", "data"), ("did not write it",)),
    "a source that is not there": (("import", "gone.pt", "--output", "new"), ("gone.pt: not found",)),
    "a slide to import": (
        ("import", SLIDE, "--output", "new", "--like", str(STUDENT)),
        ("not a weights file",),
    ),
    "a folder of slides to import": (("import", str(OWN), "--output", "new"), ("no bundle",)),
    "tensors of another model": (
        ("import", ENCODER, "--output", "new", "--like", str(STUDENT)),
        ("head.linear",),
    ),
    "a project where something is": (("init", "data"), ("not empty",)),
    "a project below a file": (("init", "params.yaml/new"), ("params.yaml",)),
    "a project of nothing": (("init", ""), ()),
    "patches of no pixel": (
        ("features", SLIDE, "--model", ENCODER, "--output", "new", "--patch-px", "0"),
        ("0",),
    ),
    "a folder that is not there to verify": (("verify", "gone"), ("gone",)),
}
VARIABLES: dict[str, tuple[str, str, tuple[str, ...], int | None]] = {
    "a device nobody knows": ("HISTO_MONAI_DEVICE", "tpu", (FINETUNE, *RUN), 1),
    "a GPU that is not there": ("HISTO_MONAI_DEVICE", "cuda:99", (FINETUNE, *RUN), 1),
    "a negative GPU": ("HISTO_MONAI_DEVICE", "cuda:-1", (FINETUNE, *RUN), 1),
    "a device of an escape sequence": ("HISTO_MONAI_DEVICE", "\x1b[2J", (FINETUNE, *RUN), 1),
    "a device that no network runs on": ("HISTO_MONAI_DEVICE", "meta", (FINETUNE, *RUN), 1),
    "half a precision": ("HISTO_MONAI_PRECISION", "half", (FINETUNE, *RUN), 1),
    "-1 workers": ("HISTO_MONAI_WORKERS", "-1", (FINETUNE, *RUN), 1),
    "workers in words": ("HISTO_MONAI_WORKERS", "two", (FINETUNE, *RUN), 1),
    "half a worker": ("HISTO_MONAI_WORKERS", "0.5", (FINETUNE, *RUN), 1),
    "workers in superscript": ("HISTO_MONAI_WORKERS", "²", (FINETUNE, *RUN), 1),
    "no processes": ("HISTO_MONAI_CPUS", "0", ("index",), 1),
    "processes in words": ("HISTO_MONAI_CPUS", "all", ("index",), 1),
    "no ranks": ("HISTO_MONAI_RANKS", "0", ("pretrain", "--method", "random"), 1),
    "a rank in words": ("RANK", "first", (FINETUNE, *RUN), 1),
    "a place for drafts that is not there": ("TMPDIR", "/gone", ("index",), EITHER),
}


def _prepare() -> None:
    write_text("a.xml", asap(("_0", "Tumor", LESION)))
    write_text("other/s6.tif", Path(SLIDE).read_bytes())


def cases() -> Iterator[Case]:
    """Both kinds."""
    for name, argv in WRONG.items():
        yield Case(CALLS, name, argv, code=WRONG_CALL)
    yield Case(CALLS, "no model to map with", ("map", SLIDE, "--output", "new"), mentions=("chosen.json",))
    for name, (argv, mentions) in REFUSALS.items():
        yield Case(CALLS, name, argv, _prepare, mentions, state="done")
    yield Case(CALLS, "the map again", MAP, code=ACCEPTED, state="done")
    for name, (variable, value, argv, code) in VARIABLES.items():
        mentions = (variable,) if code == 1 else ()
        yield Case(
            ENVIRONMENT,
            name,
            argv,
            mentions=mentions,
            code=code,
            state="done",
            environment=((variable, value),),
        )
