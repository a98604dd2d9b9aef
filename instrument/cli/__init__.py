"""The command line: ``instrument run``, ``instrument report``; each command in a file of its own.

Exit codes: 0 fine; 2 wrong use or unreadable input, with one line on stderr that says how to mend it; of
``instrument run``, the program's own. What a command needs is imported when that command runs.
"""

import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

import click

from instrument._namesake import in_our_place
from instrument.errors import InstrumentError

__all__ = ["main"]

_COMMANDS: Final = ("run", "report", "convert")


class _Commands(click.Group):
    """Commands that are imported when they are called for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = import_module(f"instrument.cli.{cmd_name}").command()
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except InstrumentError as error:
            raise _Failure(f"{ctx.command_path} {ctx.invoked_subcommand}", str(error)) from error
        except BrokenPipeError:  # `instrument report ... | head`
            _drop_output()
            return 0
        except OSError as error:  # `instrument report ... > file` on a full disk
            _drop_output()
            raise _Failure(f"{ctx.command_path} {ctx.invoked_subcommand}", str(error)) from error


def _drop_output() -> None:
    """What is still in the buffer has nowhere to go, and the interpreter would complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


class _Failure(click.ClickException):
    """What went wrong in a command."""

    def __init__(self, command: str, message: str) -> None:
        super().__init__(message)
        self.command = command


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from instrument import __version__

        click.echo(f"instrument-sdk {__version__}")
        ctx.exit()


def _group() -> click.Group:
    return _Commands(
        name="instrument",
        help="One annotation in operator code, every profiling tool.",
        epilog="Example: `instrument run train.py`, then `instrument report run.jsonl`.",
        params=[
            click.Option(
                ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_version,
                help="Print the version.",
            )
        ],
        context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and answer its exit code; with ``instrument run``, also run the program.

    What the program raises, ``SystemExit`` included, passes through.
    """
    lost = in_our_place()
    if lost:
        return _say("instrument", lost)
    try:
        result = _group().main(
            None if arguments is None else list(arguments), prog_name="instrument", standalone_mode=False
        )
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except _Failure as error:
        return _say(error.command, error.message)
    except click.ClickException as error:
        return _say(_command_of(error), error.format_message(), hint=isinstance(error, click.UsageError))
    except (click.Abort, KeyboardInterrupt):
        return 130
    if isinstance(result, int):
        return result
    # The program runs from here, with few frames of ours below it, and nothing of click's around it.
    return result() if callable(result) else 0


def _command_of(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return context.command_path if isinstance(context, click.Context) else "instrument"


def _say(command: str, message: str, *, hint: bool = False) -> int:
    line = " ".join(message.split())
    click.echo(f"{command}: {line}" + (f" (`{command} --help` shows how)" if hint else ""), err=True)
    return 2
