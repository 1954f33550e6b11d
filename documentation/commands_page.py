"""docs/commands.md: stages, commands and their options, from the parser.

python -m documentation.commands_page   # writes the page
"""

from __future__ import annotations

import argparse
from pathlib import Path

from histo_monai.pipeline.arguments import COMMANDS, STAGES, build_parser

PAGE = Path(__file__).resolve().parent.parent / "docs/commands.md"
_HEAD = """# Commands

`histo-monai` and `python -m histo_monai` are one program; this page is its help.
Exit status: 0 for success; 1 for an error, with one line: problem, fix, and in brackets the section that
explains it; 2 for a wrong call; 130 after Ctrl-C.
`histo-monai --version` prints the version, `histo-monai --print-completion bash` (`zsh`, `tcsh`) a completion script.
"""
_STAGES = """
## Stages
Each reads `params.yaml` in the current folder and writes one folder below `data/`; `dvc repro` runs them in order
([the pipeline](pipeline.md)).
"""
_COMMANDS = """
## Commands
Commands read results of stages, or any slides that you name. They write to no input,
except that `label --read` and `next` add labels to a table.
"""
_TABLE = ["| option | | meaning |", "|---|---|---|"]


def page() -> str:
    """Content of the page."""
    of = next(
        action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)
    ).choices
    rows = [row for name in STAGES for row in map(_row, _options(of[name]))]
    common = [row for row in dict.fromkeys(rows) if rows.count(row) > 1]
    parts = [_HEAD, _STAGES, "\n", "\n".join([*_TABLE, *common]), "\n"]
    parts += [_section(name, of[name], common) for name in STAGES]
    return "".join([*parts, _COMMANDS, *(_section(name, of[name], []) for name in COMMANDS)])


def _options(command: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in command._actions if not isinstance(action, argparse._HelpAction)]


def _section(name: str, command: argparse.ArgumentParser, common: list[str]) -> str:
    """Sentence, example and options; options of the common table by name alone."""
    lines = [f"### {name}", f"{_sentence(command.description or '')}", "", f"    {_example(command)}", ""]
    rows = {_row(option): option for option in _options(command)}
    if known := [f"`{option.option_strings[0]}`" for row, option in rows.items() if row in common]:
        lines += [f"Options: {', '.join(known)}.", ""]
    if own := [row for row in rows if row not in common]:
        lines += [*_TABLE, *own, ""]
    return "\n" + "\n".join(lines).rstrip("\n") + "\n"


def _example(command: argparse.ArgumentParser) -> str:
    return (command.epilog or "").removeprefix("example: ")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _row(option: argparse.Action) -> str:
    name = option.option_strings[0] if option.option_strings else str(option.metavar or option.dest)
    takes = option.option_strings and option.nargs != 0
    value = f" {option.metavar or option.dest.upper()}" if takes else ""
    return f"| `{name}{value}` | {_kind(option)} | {option.help} |"


def _kind(option: argparse.Action) -> str:
    if option.required and option.nargs != "*":
        return "needed"
    if option.choices:
        return ", ".join(map(str, option.choices))
    if option.default not in (None, False, 0) and not isinstance(option.default, list):
        return f"else {option.default}"
    return ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
