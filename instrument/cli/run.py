"""``instrument run script.py``: a program with a session around it, else as ``python script.py`` runs it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from instrument.config import OPTIONS, Option, resolve
from instrument.runs.load import is_run_file

__all__ = ["command"]

_HELP = """Run a Python program and record it.

The program sees what `python SCRIPT ARGS...` would give it: its arguments, its folder first on the path, its
exit code, its tracebacks. Options of `instrument run` come before SCRIPT; they can also stand in the
environment and in pyproject.toml (docs/configuration.md). Without --export the run goes to run.jsonl.

\b
Examples:
  instrument run train.py --epochs 3
  instrument run --export json:out/run.jsonl.gz --label model=small train.py
  instrument run -m package.module --epochs 3
"""

_REPEATED: Final = {"export": "--export", "collect": "--collect", "labels": "--label"}


def command() -> click.Command:
    """The command, for the group. It answers the program, which the caller runs outside of click."""
    return click.Command(
        "run",
        callback=_run,
        help=_HELP,
        short_help="Run a Python program and record it.",
        context_settings={"allow_interspersed_args": False},
        params=[
            click.Option(
                ["-m", "module"], is_flag=True, help="SCRIPT is the name of a module, as in python -m."
            ),
            *(_click_option(option) for option in OPTIONS),
            click.Option(["-q", "--quiet"], is_flag=True, help="Do not say at the end where the run is."),
            click.Argument(["script"], metavar="SCRIPT", type=str),
            click.Argument(["arguments"], metavar="[ARGS]...", nargs=-1, type=click.UNPROCESSED),
        ],
    )


def _click_option(option: Option) -> click.Option:
    repeated = _REPEATED.get(option.name)
    flag = repeated or "--" + option.name.replace("_", "-")
    value = {"export": "NAME:TARGET", "labels": "KEY=VALUE"}.get(option.name, option.name.upper())
    text = option.help
    if option.name == "export":  # here there always is one
        text = text.partition(" Without any")[0] + " Without any: `json:run.jsonl`."
    again = " May be given several times." if repeated else ""
    default = f"{option.default:g}" if isinstance(option.default, float) else option.default
    shown = f"  [default: {default}]" if isinstance(default, str) else ""
    return click.Option(
        [flag, option.name], multiple=bool(repeated), metavar=value, help=text + again + shown
    )


def _run(
    script: str, arguments: tuple[str, ...], module: bool, quiet: bool, **options: Any
) -> Callable[[], int]:
    from instrument.cli.program import Program

    chosen = {name: value for name, value in options.items() if value not in (None, ())}
    if "labels" in chosen:
        chosen["labels"] = _labels(chosen["labels"])
    for name in ("export", "collect"):
        if name in chosen:
            chosen[name] = ",".join(chosen[name])
    if not resolve(chosen).export:
        chosen["export"] = f"json:{_free_name()}"
    return Program(script, arguments, module=module, options=chosen, quiet=quiet)


def _labels(pairs: tuple[str, ...]) -> dict[str, str]:
    for pair in pairs:
        if not pair.partition("=")[0] or "=" not in pair:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="'--label'")
    return dict(pair.split("=", 1) for pair in pairs)


def _free_name() -> str:
    """``run.jsonl``, unless that is somebody else's file. A run of ours is replaced."""
    number = 1
    while True:
        path = Path("run.jsonl" if number == 1 else f"run-{number}.jsonl")
        if not path.exists() or is_run_file(path):
            return str(path)
        number += 1
