"""Command-line parser: stages, commands and their options."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import shtab

from histo_monai import __version__
from histo_monai.data.readers.registry import DATASETS

STAGES = {
    "code": "write digests of the code files that each stage uses, for DVC",
    "phantom": "simulate slides and patches in the dataset's official layout",
    "index": "find tissue, split slides by patient, select patch centers, audit leakage",
    "check": "check the inputs of all later stages and write a page of slides, tissue and labels",
    "pretrain": "pretrain an encoder on unlabeled slides",
    "finetune": "fine-tune encoder and head on the fraction alpha of the labels",
    "consistency": "train a student on labeled and unlabeled patches",
    "evaluate": "predict validation and test patches; write metrics with intervals",
    "heatmap": "map whole slides: scores, TIFF, overlays, GeoJSON",
    "aggregate": "diagnose slides from maps: features, SVM, slide AUC, lesion FROC",
    "features": "write features of the project's patches (--method) or of any slides (--model)",
    "mil": "learn from slide labels: attention pooling, cross-fitted",
    "compare": "compare all methods, encoders, students and seeds in one table with paired tests",
    "report": "write the report page of the run, with charts and a slide viewer; opens without a server",
}
COMMANDS = {
    "init": "create a project folder with params, pipeline and docs; it needs no clone",
    "dvc": "run a DVC command, such as dvc repro, in one process with loaded libraries: stages start at once",
    "doctor": "check machine and project before a run, and measure the encoder: PASS, WARN or FAIL, each with a fix",
    "map": "map any slides with a model: scores, TIFF, overlay, GeoJSON",
    "encoders": "list published encoders: architecture, input, output, license, and where to request weights",
    "export": "export a model for MONAI, QuPath or ONNX, or its backbone for torchvision and timm",
    "import": "convert a MONAI bundle or a state dict into a model file for all commands",
    "suggest": "write the regions to label next, as GeoJSON",
    "label": "write a page to label suggested regions on, or read the labels that were saved there",
    "next": "do one round: read labels, run the pipeline, suggest regions and write their page",
    "convert": "convert ASAP outlines (.xml) to QuPath outlines (.geojson), and back",
    "curves": "plot metrics of all experiments against labels, mu and n_aug, and the labels saved",
    "verify": "check models, metrics and maps against their recorded digests and inputs, offline",
}
_EXAMPLES = {
    "init": "myslides --dataset own",
    "dvc": "repro",
    "doctor": "",
    "map": "*.svs --output maps",
    "export": "data/models/rsp_moco-0-spatial_neighbors-0/student/model.safetensors --bundle tumor_student",
    "encoders": "uni2-h",
    "import": "tumor_student --output imported",
    "suggest": "--num 24",
    "label": "--classes tumor normal",
    "next": "--classes tumor normal",
    "convert": "outlines.xml outlines.geojson",
    "curves": "--score 0.8",
    "verify": "data/",
    "report": "--serve",
}
_CHOSEN = "; default: recommended model (data/models/chosen)"
_OF_THE_PROJECT = "; required for the patches and slides of the project"
_WITH_STUDENT = ("consistency", "evaluate", "heatmap", "aggregate", "suggest")
_WITH_SEED = ("finetune", "mil", *_WITH_STUDENT)
_WITH_METHOD = ("pretrain", "features", *_WITH_SEED)


def build_parser() -> argparse.ArgumentParser:
    """Parser with one subcommand per stage and command."""
    parser = argparse.ArgumentParser(
        prog="histo-monai",
        description="Deep learning on slides with few labels. Each stage reads params.yaml in the current folder "
        "and writes to data/. `dvc repro` runs all stages in order. Commands use their results.",
    )
    parser.add_argument("--version", action="version", version=f"histo-monai {__version__}")
    shtab.add_argument_to(parser, help="print a shell completion script")
    stages = parser.add_subparsers(dest="name", required=True, metavar="STAGE|COMMAND")
    for name, text in (STAGES | COMMANDS).items():
        stage = stages.add_parser(name, help=text, description=text, epilog=f"example: {_example(name)}")
        if name in _WITH_METHOD:
            chosen = {"suggest": _CHOSEN, "features": _OF_THE_PROJECT}.get(name, "")
            stage.add_argument(
                "--method", required=not chosen, help=f"one of `pretraining_methods` in params.yaml{chosen}"
            )
            stage.add_argument(
                "--pretraining-seed",
                dest="encoder",
                metavar="SEED",
                type=int,
                help="one of `pretraining_seeds` in params.yaml; required if params.yaml names several",
            )
        if name in _WITH_STUDENT:
            stage.add_argument(
                "--student",
                help="one of `semisupervised_methods` in params.yaml; required if params.yaml names several",
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
    """An example call of a stage or command."""
    of_run = "--method rsp_moco" * (name in _WITH_METHOD)
    of_run += " --student spatial_neighbors" * (name in _WITH_STUDENT)
    of_run += " --seed 0" * (name in _WITH_SEED)
    return f"python -m histo_monai {name} {_EXAMPLES.get(name, of_run)}".strip()


def _add_options(commands: Mapping[str, argparse.ArgumentParser]) -> None:
    """Add the options of the commands."""
    served = {
        "report": "serve the existing page on this machine until Ctrl-C",
        "label": "serve the page on this machine until Ctrl-C, and save each answer as it is given",
    }
    for name, text in served.items():
        commands[name].add_argument("--serve", action="store_true", help=text)
        commands[name].add_argument("--port", type=int, help="port of --serve; default: a free port")
    doctor, suggest, convert, curves, verify = (
        commands[name] for name in ("doctor", "suggest", "convert", "curves", "verify")
    )
    _add_options_of_slides(commands["map"], commands["features"])
    _add_options_of_projects_and_models(commands)
    curves.add_argument("--all-commits", action="store_true", help="include experiments of earlier commits")
    curves.add_argument(
        "--score",
        type=float,
        help="target score of the labels needed; default: best score of any model",
    )
    suggest.add_argument(
        "--first",
        action="store_true",
        help="choose typical tissue by the encoder alone, before there is a model",
    )
    suggest.add_argument(
        "--doubtful",
        action="store_true",
        help="choose labeled squares whose labels held-out predictions and neighbors contradict",
    )
    suggest.add_argument("--num", type=int, default=20, help="number of regions")
    _random(suggest, 0, "number of further regions, at random; default: none")
    suggest.add_argument("--side-um", type=float, help="side of a region, µm; default: side of a patch")
    _output(suggest, help="output folder; default: data/suggestions/<method>-<encoder>-<student>-<seed>")
    _add_options_of_labels(commands["label"], commands["next"])
    _file(convert, "source", help="annotation file, .xml or .geojson")
    _file(convert, "target", help="new file, .geojson or .xml")
    _file(
        convert,
        "--slide",
        help="slide of both files, to convert between the origins of QuPath (bounds) and ASAP (canvas)",
    )
    convert.add_argument(
        "--origin", help="origin of SOURCE: bounds or canvas; default: the origin of its program"
    )
    _folder(
        verify,
        "folders",
        nargs="*",
        default=["data"],
        metavar="FOLDER",
        help="folders to check; default: data",
    )
    for checking in (doctor, verify):
        checking.add_argument("--json", action="store_true", help="print JSON")


def _add_options_of_slides(mapped: argparse.ArgumentParser, features: argparse.ArgumentParser) -> None:
    """Add the options of `map` and `features`."""
    models = {
        mapped: "model.safetensors of a fine-tuned model or student; default: recommended model (data/models/chosen)",
        features: "encoder.safetensors, or model.safetensors of a fine-tuned model or student",
    }
    for looking, model in models.items():
        _file(looking, "slides", nargs="*", metavar="SLIDE", help="slide files")
        _file(looking, "--model", required=False, help=model)
        _output(looking, required=looking is mapped, help="output folder; slides already in it are skipped")
        _file(
            looking,
            "--manifest",
            metavar="CSV",
            help="csv of slides: column path, optional column mpp (µm/px)",
        )
        looking.add_argument("--mpp", type=float, help="use this µm/px if a file states no resolution")
    mapped.add_argument("--stride-um", type=float, help="side of a map cell, µm; default: side of a patch")
    mapped.add_argument(
        "--positive-class",
        metavar="CLASS",
        help="mapped class; default: tumor of two classes, else all classes",
    )
    mapped.add_argument(
        "--abstain",
        type=float,
        metavar="RATE",
        help="error rate, such as 0.1: patches whose class is uncertain at this rate have no class",
    )
    mapped.add_argument("--dicom", action="store_true", help="also write DICOM Segmentations of DICOM slides")
    features.add_argument("--patch-px", type=int, help="side of a patch, px; default: as in training")
    features.add_argument("--patch-mpp", type=float, help="µm/px of a patch; default: finest of the training")
    features.add_argument(
        "--stride-um", type=float, help="distance between patches, µm; default: side of a patch"
    )


def _add_options_of_projects_and_models(commands: Mapping[str, argparse.ArgumentParser]) -> None:
    """Add the options of `init`, `dvc`, `encoders`, `export` and `import`."""
    init, export, back = commands["init"], commands["export"], commands["import"]
    commands["dvc"].add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT", help="command of DVC and its arguments"
    )
    commands["encoders"].add_argument(
        "names", nargs="*", metavar="NAME", help="encoders to describe; default: all"
    )
    _folder(init, "folder", help="new or empty folder")
    init.add_argument(
        "--dataset", choices=list(DATASETS), help="dataset in data/raw; default: simulated slides"
    )
    _file(export, "model", help="model.safetensors of a fine-tuned model or student, or encoder.safetensors")
    _folder(
        export,
        "--bundle",
        metavar="FOLDER",
        help="write a MONAI bundle that maps slides; models only",
    )
    _folder(
        export,
        "--wsinfer",
        metavar="FOLDER",
        help="write a folder that WSInfer and its QuPath extension run; models only",
    )
    _file(
        export,
        "--onnx",
        metavar="FILE",
        help="write an ONNX graph: patches to probabilities, scores or features",
    )
    _file(export, "--trunk", metavar="FILE", help="write the backbone as a torchvision or timm state dict")
    export.add_argument("--authors", help="authors of the model, for --bundle")
    _file(back, "source", help="MONAI bundle, or state dict (.pt, .safetensors, ...)")
    _output(back, required=True, help="output folder")
    _file(back, "--like", metavar="MODEL", help="model file with a matching architecture, for a state dict")


def _add_options_of_labels(label: argparse.ArgumentParser, following: argparse.ArgumentParser) -> None:
    """Add the options of `label` and `next`."""
    _folder(
        label,
        "folder",
        nargs="?",
        metavar="FOLDER",
        help="folder of suggestions; default: data/suggestions/first",
    )
    for command in (label, following):
        command.add_argument(
            "--classes",
            nargs="+",
            default=[],
            metavar="CLASS",
            help="classes to begin with; the page adds others",
        )
    _file(label, "--output", metavar="PAGE", help="the page, .html; default: beside the folder")
    _file(
        label, "--read", nargs="+", default=[], metavar="CSV", help="add the labels of these files to a table"
    )
    _file(
        following,
        "--read",
        nargs="+",
        default=[],
        metavar="CSV",
        help="files with answers; default: all that `label --serve` has saved",
    )
    following.add_argument("--num", type=int, default=30, help="number of regions to label next")
    _random(following, 6, "how many of these regions are random")
    _file(
        label,
        "--into",
        metavar="CSV",
        help="table that --read adds labels to; default: data/raw/own/patches.csv",
    )


def _random(command: argparse.ArgumentParser, num: int, text: str) -> None:
    """Add the number of regions at random."""
    command.add_argument("--random", dest="num_random", type=int, default=num, metavar="NUM", help=text)


def _output(command: argparse.ArgumentParser, **settings: Any) -> None:
    """Add the output folder of a command."""
    _folder(command, "--output", dest="folder", metavar="FOLDER", **settings)


def _file(command: argparse.ArgumentParser, name: str, **settings: Any) -> None:
    """Add an argument with file completion."""
    command.add_argument(name, **settings).complete = shtab.FILE  # type: ignore[attr-defined]


def _folder(command: argparse.ArgumentParser, name: str, **settings: Any) -> None:
    """Add an argument with folder completion."""
    command.add_argument(name, **settings).complete = shtab.DIRECTORY  # type: ignore[attr-defined]
