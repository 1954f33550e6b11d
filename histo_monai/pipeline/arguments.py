"""The command line: stages, commands and their options."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import shtab

from histo_monai import __version__
from histo_monai.data.readers.registry import DATASETS

STAGES = {
    "code": "digest the files of code that each stage runs, for DVC",
    "phantom": "simulate a cohort of slides in the official layout of the dataset",
    "index": "find tissue, split the slides, draw the centers of the patches",
    "check": "look whether all is there that later stages need, and write a page to see it on",
    "pretrain": "learn an encoder from unlabeled slides",
    "finetune": "train encoder and head on a fraction of the labels",
    "consistency": "train a student on labeled and unlabeled patches",
    "evaluate": "predict validation and test patches: metrics with intervals",
    "heatmap": "map whole slides: scores, TIFF, overlays, GeoJSON",
    "aggregate": "from maps to slides: features, SVM, slide AUC, lesion FROC",
    "embed": "see whole slides with an encoder as it is: one vector for each patch of tissue",
    "mil": "learn from the labels of slides alone: attention pooling, cross-fitted",
    "compare": "put all methods, encoders, students and seeds into one table, with paired tests between any two",
    "report": "write one page of the whole run, with charts and a viewer of slides, which opens from disk",
}
COMMANDS = {
    "init": "make a project in a new folder: params, pipeline, docs; run by the installed package, no clone needed",
    "doctor": "look whether this machine and this project are ready to run: PASS, WARN or FAIL, and the remedy",
    "map": "map slides of your own choice with a model: scores, TIFF, overlay, GeoJSON",
    "features": "see slides of your own choice with an encoder: HDF5 as CLAM and TRIDENT read",
    "encoders": "list published encoders: architecture, input, output, license, and where to request the weights",
    "export": "a model for use elsewhere: MONAI bundle, ONNX, or the bare trunk for torchvision and timm",
    "import": "a bundle that MONAI has trained on, or a state dict, as a model that all commands take",
    "suggest": "write the regions most worth labeling next as GeoJSON",
    "convert": "turn outlines of ASAP (.xml) into those of QuPath (.geojson), and back",
    "curves": "draw all experiments together: metrics against labels, mu and n_aug, and the labels saved",
    "verify": "check that models, metrics and maps are what was written, and made from what lies here; offline",
}
_EXAMPLES = {
    "init": "myslides --dataset own",
    "doctor": "",
    "map": "*.svs --output maps",
    "features": "*.svs --model data/models/rsp_moco-0/encoder.safetensors --output features",
    "export": "data/models/rsp_moco-0-spatial_neighbors-0/student/model.safetensors --bundle tumor_student",
    "encoders": "uni2-h",
    "import": "tumor_student --output imported",
    "suggest": "--num 24",
    "convert": "outlines.xml outlines.geojson",
    "curves": "--score 0.8",
    "verify": "data/",
    "report": "--serve",
}
_CHOSEN = "; that of the model in data/models/chosen where not given"
_WITH_STUDENT = ("consistency", "evaluate", "heatmap", "aggregate", "suggest")
_WITH_SEED = ("finetune", "mil", *_WITH_STUDENT)
_WITH_METHOD = ("pretrain", "embed", *_WITH_SEED)


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command line, with a subcommand for each stage and command."""
    parser = argparse.ArgumentParser(
        prog="histo-monai",
        description="Few labels, many slides. Each stage reads params.yaml in the current folder and writes below "
        "data/; `dvc repro` runs them in order. Commands look at what stages have left.",
    )
    parser.add_argument("--version", action="version", version=f"histo-monai {__version__}")
    shtab.add_argument_to(parser, help="print a script that completes commands and options in a shell")
    stages = parser.add_subparsers(dest="name", required=True, metavar="STAGE|COMMAND")
    for name, text in (STAGES | COMMANDS).items():
        stage = stages.add_parser(name, help=text, description=text, epilog=f"example: {_example(name)}")
        if name in _WITH_METHOD:
            chosen = _CHOSEN * (name == "suggest")
            stage.add_argument(
                "--method", required=not chosen, help=f"one of `pretraining_methods` in params.yaml{chosen}"
            )
            stage.add_argument(
                "--pretraining-seed",
                dest="encoder",
                metavar="SEED",
                type=int,
                help="one of `pretraining_seeds` in params.yaml; needed where there are several",
            )
        if name in _WITH_STUDENT:
            stage.add_argument(
                "--student",
                help="one of `semisupervised_methods` in params.yaml; needed where there are several",
            )
        if name in _WITH_SEED:
            stage.add_argument(
                "--seed",
                required=not chosen,
                type=int,
                help=f"one of `training_seeds` in params.yaml{chosen}",
            )
    _add_options(stages.choices)
    return parser


def _example(name: str) -> str:
    """A call as one would type it."""
    of_run = "--method rsp_moco" * (name in _WITH_METHOD)
    of_run += " --student spatial_neighbors" * (name in _WITH_STUDENT)
    of_run += " --seed 0" * (name in _WITH_SEED)
    return f"python -m histo_monai {name} {_EXAMPLES.get(name, of_run)}".strip()


def _add_options(commands: Mapping[str, argparse.ArgumentParser]) -> None:
    """What a command takes beside params.yaml."""
    page = commands["report"]
    page.add_argument(
        "--serve",
        action="store_true",
        help="show the page that is there, to this machine alone, until Ctrl-C",
    )
    page.add_argument("--port", type=int, help="of --serve; any that is free where not given")
    doctor, suggest, convert, curves, verify = (
        commands[name] for name in ("doctor", "suggest", "convert", "curves", "verify")
    )
    _add_options_of_slides(commands["map"], commands["features"])
    _add_options_of_projects_and_models(commands)
    curves.add_argument("--all-commits", action="store_true", help="experiments of earlier commits too")
    curves.add_argument(
        "--score",
        type=float,
        help="count the labels that each model needs for it; else for the best score seen",
    )
    suggest.add_argument("--num", type=int, default=20, help="regions")
    suggest.add_argument(
        "--side-um", type=float, help="side of a region, µm; that of a patch where not given"
    )
    _output(
        suggest, help="where to write; data/suggestions/<method>-<encoder>-<student>-<seed> where not given"
    )
    _file(convert, "source", help=".xml or .geojson")
    _file(convert, "target", help=".geojson or .xml, not there yet")
    _file(
        convert,
        "--slide",
        help="that both are of: QuPath counts from the corner of its bounds, ASAP from its own",
    )
    convert.add_argument(
        "--origin", help="bounds or canvas: what source counts from, where not as its program"
    )
    _folder(verify, "folders", nargs="*", default=["data"], metavar="FOLDER", help="data where not given")
    for checking in (doctor, verify):
        checking.add_argument("--json", action="store_true", help="for machines")


def _add_options_of_slides(mapped: argparse.ArgumentParser, features: argparse.ArgumentParser) -> None:
    """What is asked of slides of one's own choice."""
    models = {
        mapped: "model.safetensors of a fine-tuned model or a student; that of data/models/chosen where not given",
        features: "encoder.safetensors of a pretraining, or model.safetensors of a fine-tuned model or a student",
    }
    for looking, model in models.items():
        _file(looking, "slides", nargs="*", metavar="SLIDE", help="files of slides")
        _file(looking, "--model", required=looking is features, help=model)
        _output(looking, required=True, help="where to write; finished slides there are not looked at again")
        _file(
            looking,
            "--manifest",
            metavar="CSV",
            help="slides in a column path, µm per pixel of each in a column mpp",
        )
        looking.add_argument(
            "--mpp", type=float, help="µm per pixel at full resolution, for slides that do not tell"
        )
    mapped.add_argument("--stride-um", type=float, help="side of a cell, µm; that of a patch where not given")
    mapped.add_argument(
        "--positive-class",
        metavar="CLASS",
        help="class whose probability is mapped; else tumor, or all where that is not one of two",
    )
    features.add_argument("--patch-px", type=int, help="side of a patch, px; as trained where not given")
    features.add_argument(
        "--patch-mpp", type=float, help="µm per pixel of a patch; the finest of the training where not given"
    )
    features.add_argument(
        "--stride-um", type=float, help="from one patch to the next, µm; side by side where not given"
    )


def _add_options_of_projects_and_models(commands: Mapping[str, argparse.ArgumentParser]) -> None:
    """What is made, taken along and brought back."""
    init, export, back = commands["init"], commands["export"], commands["import"]
    commands["encoders"].add_argument(
        "names", nargs="*", metavar="NAME", help="encoders; all where not given"
    )
    _folder(init, "folder", help="not there yet, or empty")
    init.add_argument(
        "--dataset", choices=list(DATASETS), help="that lies in data/raw; simulated slides where not given"
    )
    _file(
        export, "model", help="model.safetensors of a fine-tuned model or a student, or encoder.safetensors"
    )
    _folder(export, "--bundle", metavar="FOLDER", help="a MONAI bundle, which maps slides; of models")
    _file(export, "--onnx", metavar="FILE", help="patches to probabilities, scores or features, as a graph")
    _file(export, "--trunk", metavar="FILE", help="the encoder alone, as torchvision or timm load it")
    export.add_argument("--authors", help="of the model, for --bundle; not stated where not given")
    _file(back, "source", help="a bundle, or a file of tensors (.pt, .safetensors, ...)")
    _output(back, required=True, help="where to write")
    _file(back, "--like", metavar="MODEL", help="of a file of tensors: a model whose description fits it")


def _output(command: argparse.ArgumentParser, **settings: Any) -> None:
    """The folder that a command writes."""
    _folder(command, "--output", dest="folder", metavar="FOLDER", **settings)


def _file(command: argparse.ArgumentParser, name: str, **settings: Any) -> None:
    """An argument that a shell completes by what lies on the disk."""
    command.add_argument(name, **settings).complete = shtab.FILE  # type: ignore[attr-defined]


def _folder(command: argparse.ArgumentParser, name: str, **settings: Any) -> None:
    """An argument that a shell completes by the folders that there are."""
    command.add_argument(name, **settings).complete = shtab.DIRECTORY  # type: ignore[attr-defined]
