"""Entry point: command line -> stage or command, run in the folder with params.yaml."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from histo_monai.pipeline import paths
from histo_monai.pipeline.arguments import STAGES, build_parser
from histo_monai.pipeline.environment import torchrun_rank
from histo_monai.pipeline.params import check_run, load_params
from histo_monai.pipeline.params.renamed import RenamedKeysError, renamed_option
from histo_monai.utils.errors import InputError
from histo_monai.utils.escapes import printable
from histo_monai.utils.help_pages import page_of
from histo_monai.utils.process.console import escape_unencodable
from histo_monai.utils.process.failures import machine_failure
from histo_monai.utils.process.garbage import lasting
from histo_monai.utils.process.logs import log_to_stderr
from histo_monai.utils.process.memory import keep_freed_memory
from histo_monai.utils.process.threads import sleep_when_idle
from histo_monai.utils.storage import check_apart, claim


def main(argv: Sequence[str] | None = None) -> int:
    """Run a stage or command; exit status 0: success, 1: error, one line on stderr; 2: wrong call; 130: interrupted."""
    escape_unencodable()
    parser = build_parser()
    if renamed := renamed_option(sys.argv[1:] if argv is None else argv):
        parser.error(renamed)
    arguments = vars(parser.parse_args(argv))
    name = arguments.pop("name")
    arguments.pop("print_completion")  # shtab has printed the script already
    if problem := _call_problem(name, arguments):
        parser.error(problem)
    log_to_stderr()
    is_stage, arguments = _stage_or_command(name, arguments)
    keep_freed_memory()
    sleep_when_idle()
    try:
        with lasting():
            run = _run_of(name, arguments, is_stage)
        if arguments.get("method") is not None:
            asked = {key: arguments[key] for key in _STAGE_OPTIONS if key in arguments}
            arguments |= check_run(load_params(paths.PARAMS), **asked)
        with _claimed(name, arguments) if is_stage else contextlib.nullcontext():
            status: int | None = run(**arguments)
    except KeyboardInterrupt:
        print(f"histo-monai {name}: stopped", file=sys.stderr)
        return 130
    except Exception as error:
        line = _one_line(error)
        if line is None or os.environ.get("HISTO_MONAI_TRACEBACK"):
            raise
        page = page_of(error, name)
        for each in error.lines if isinstance(error, RenamedKeysError) else [line]:
            print(f"histo-monai {name}: error: {_printable(each)} [{page}]", file=sys.stderr)
        return 1
    return status or 0


_NO_SLIDES = "no slides. Fix: give slide files, or --manifest CSV with a column path"
_STAGE_OPTIONS = ("method", "encoder", "student", "seed")


def _call_problem(name: str, arguments: Mapping[str, Any]) -> str:
    """Contradiction or missing option of a call; empty if there is none."""
    if name == "features":
        return _features_problem(arguments)
    if name == "map" and not (arguments["slides"] or arguments["manifest"]):
        return f"map: {_NO_SLIDES}"
    if arguments.get("port") is not None and not arguments["serve"]:
        return f"{name}: --port needs --serve. Fix: give both, or leave out --port"
    if arguments.get("serve") and arguments.get("read"):
        return f"{name}: --serve excludes --read. Fix: give one of them"
    return ""


def _features_problem(arguments: Mapping[str, Any]) -> str:
    """Why a call of `features` is neither the stage nor the command; empty if it is one of them."""
    of_command = {name for name, value in arguments.items() if value and name not in ("method", "encoder")}
    if arguments["method"] is not None or arguments["encoder"] is not None:
        if of_command or arguments["method"] is None:
            return "features: --method excludes SLIDE and --model. Fix: give --method, or SLIDE and --model"
        return ""
    if not (arguments["slides"] or arguments["manifest"]):
        return f"features: {_NO_SLIDES}; or give --method for the patches of the project"
    options = {"--model": arguments["model"], "--output": arguments["folder"]}
    missing = [option for option, value in options.items() if value is None]
    return f"the following arguments are required: {', '.join(missing)}" if missing else ""


def _stage_or_command(name: str, arguments: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
    """Whether a call runs a stage, and its arguments; `features` and `report` are stage and command."""
    if name == "features":
        is_stage = arguments["method"] is not None
        return is_stage, {key: arguments[key] for key in arguments if (key in _STAGE_OPTIONS) == is_stage}
    if name != "report":
        return name in STAGES, dict(arguments)
    return not arguments["serve"], {"port": arguments["port"]}


_SERVER = "histo_monai.reports.site.server"  # imported by name, like stages: the stage does not depend on it


def _run_of(name: str, arguments: dict[str, Any], is_stage: bool) -> Callable[..., int | None]:
    """Function that runs the stage or command; `report --serve` starts the server."""
    if name == "report":
        port = arguments.pop("port")
        if not is_stage:
            return partial(importlib.import_module(_SERVER).serve, paths.REPORT, port)
    run: Callable[..., int | None] = importlib.import_module(
        f"histo_monai.pipeline.{'stages' if is_stage else 'commands'}.{name}"
    ).run
    return run


def _claimed(stage: str, arguments: Mapping[str, Any]) -> contextlib.AbstractContextManager[None]:
    """Lock on the stage's output folder; under torchrun, process 0 holds it for all processes."""
    if torchrun_rank() > 0:
        return contextlib.nullcontext()
    folder = paths.output_folder(stage, **arguments)
    check_apart(folder, paths.raw_folders())
    return claim(folder, paths.lock_path("-".join(map(str, (stage, *arguments.values())))))


def _printable(line: str) -> str:
    """Line with escaped control characters, shortened to 900 characters."""
    if len(line) > _LONGEST:
        line = f"{line[: _LONGEST - 300]} ... {line[-300:]}"
    return printable(line)


_LONGEST = 900
_CAUSED_BY_INPUT = (InputError, OSError)


def _one_line(error: Exception) -> str | None:
    """One-line message of an error caused by input or machine; None for a programming error."""
    kind: type[BaseException] = type(error)
    message = str(error)
    if "Traceback" in message:
        kind, message = _from_another_process(message)
    line = machine_failure(kind, message)
    if line is None and issubclass(kind, _CAUSED_BY_INPUT):
        line = " ".join(message.split()) or kind.__name__
    return line


_LINE_OF_ERROR = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?")


def _from_another_process(text: str) -> tuple[type[BaseException], str]:
    """Class and message of the last error in a worker process's traceback."""
    lines = text.strip().splitlines()
    for number in reversed(range(len(lines))):
        match = _LINE_OF_ERROR.fullmatch(lines[number])
        if match:
            module, _, name = match[1].rpartition(".")
            kind = getattr(sys.modules.get(module or "builtins"), name, None)
            if isinstance(kind, type) and issubclass(kind, BaseException):
                return kind, " ".join([match[2] or "", *lines[number + 1 :]])
    return Exception, text
