"""The options of a session: one table, from which everything else about them is made.

What
    :data:`OPTIONS` gives each option's name, default, accepted values and help. :func:`resolve` finds every
    option's value: arguments of ``start()``, else the environment, else a TOML file, else the default.
Why
    Parsing, the environment's names, TOML keys, ``--help`` and ``docs/configuration.md`` cannot drift apart.
How
    ``python -m instrument.config`` prints the page ``docs/configuration.md``; a test compares the two.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from instrument.errors import ConfigError

__all__ = ["OPTIONS", "Option", "Options", "as_markdown", "nearest", "resolve", "unknown", "wrong"]

PREFIX: Final = "INSTRUMENT_"


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table."""

    name: str
    default: Any
    parse: Callable[["Option", Any], Any]
    """From text (environment) or a value (argument, TOML) to the option's value, or ConfigError."""
    accepts: str
    """What is accepted, for people."""
    help: str
    example: str
    """As it would stand in the environment."""

    @property
    def environment(self) -> str:
        """The variable that sets it."""
        return PREFIX + self.name.upper()


@dataclass(frozen=True, slots=True)
class Options:
    """The values that a session runs with; a field per row of :data:`OPTIONS`."""

    export: tuple[Any, ...] = ()
    collect: tuple[str, ...] = ()
    mode: Literal["develop"] = "develop"
    buffer_mib: float = 64.0
    overflow: Literal["newest", "oldest"] = "newest"
    interval: float = 0.1
    labels: Mapping[str, Any] = field(default_factory=dict)
    rank: int | None = None
    run_id: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    """Where each value that is not a default came from: ``argument``, a variable's or a file's name."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for the run file; an exporter given as an object shows as its type's name."""
        values = {option.name: getattr(self, option.name) for option in OPTIONS}
        values["export"] = [item if isinstance(item, str) else type(item).__name__ for item in self.export]
        values["collect"] = list(self.collect)
        return values | {"labels": dict(self.labels)}


def nearest(value: str, known: Iterable[str]) -> str | None:
    """The known word that ``value`` was most likely meant to be."""
    from difflib import get_close_matches  # only when something is wrong

    found = get_close_matches(value.lower(), list(known), n=1, cutoff=0.5)
    return found[0] if found else None


def unknown(option: str, what: str, value: object, known: Iterable[str], hint: str = "") -> ConfigError:
    """The error for a word that is not one of the known ones, naming the nearest and all of them."""
    words = sorted(known)
    near = nearest(str(value), words)
    text = f"option {option!r}: unknown {what} {value!r}"
    text += f"; did you mean {near!r}?" if near else ""
    text += f" (known: {', '.join(words) or 'none'})"
    return ConfigError(text + hint)


def wrong(option: Option, value: object) -> ConfigError:
    """The error for a value that does not parse."""
    return ConfigError(
        f"option {option.name!r}: {value!r} is not {option.accepts}; for example {option.example}"
    )


# ------------------------------------------------------------------ parsers


def _words(option: Option, value: Any) -> tuple[Any, ...]:
    """A comma list, one item, or a sequence of items."""
    items = (
        value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
    )
    stripped = (item.strip() if isinstance(item, str) else item for item in items)
    return tuple(item for item in stripped if item != "")


def _exporters(option: Option, value: Any) -> tuple[Any, ...]:
    items = _words(option, value)
    for item in items:
        if not isinstance(item, str) and not all(hasattr(item, name) for name in _EXPORTER_METHODS):
            raise wrong(option, item)
    return items


_EXPORTER_METHODS: Final = ("open", "export", "flush", "close")


def _collectors(option: Option, value: Any) -> tuple[str, ...]:
    items = _words(option, value)
    if items:
        raise ConfigError(
            f"option {option.name!r}: unknown collector {items[0]!r}; this version has no collectors yet, "
            "leave the option out"
        )
    return ()


def _mode(option: Option, value: Any) -> str:
    if value == "production":
        raise ConfigError(
            f"option {option.name!r}: 'production' comes with sampling, in a later version; use 'develop'"
        )
    if value != "develop":
        raise unknown(option.name, "value", value, ["develop"])
    return "develop"


def _overflow(option: Option, value: Any) -> str:
    if value not in ("newest", "oldest"):
        raise unknown(option.name, "value", value, ["newest", "oldest"])
    return str(value)


def _number(low: float, high: float) -> Callable[[Option, Any], float]:
    def parse(option: Option, value: Any) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise wrong(option, value) from None
        if isinstance(value, bool) or not low <= number <= high:
            raise wrong(option, value)
        return number

    return parse


def _rank(option: Option, value: Any) -> int:
    try:
        rank = int(value)
        same = rank == float(value)
    except (TypeError, ValueError, OverflowError):
        raise wrong(option, value) from None
    if isinstance(value, bool) or rank < 0 or not same:
        raise wrong(option, value)
    return rank


def _run_id(option: Option, value: Any) -> str:
    text = value if isinstance(value, str) else ""
    if not 0 < len(text) <= 64 or not all(c.isascii() and (c.isalnum() or c in "._-") for c in text):
        raise wrong(option, value)
    return text


def _labels(option: Option, value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        pairs = [item.partition("=") for item in value.split(",") if item.strip()]
        if not all(mark and key.strip() for key, mark, _ in pairs):
            raise wrong(option, value)
        return {key.strip(): text.strip() for key, _, text in pairs}
    if not isinstance(value, Mapping):
        raise wrong(option, value)
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, str | int | float | bool):
            raise ConfigError(
                f"option {option.name!r}: {key!r}={item!r} is not a name and a text, number or boolean"
            )
    return dict(value)


# ------------------------------------------------------------------ the table

OPTIONS: Final = (
    Option(
        "export",
        (),
        _exporters,
        "a comma list or sequence of NAME:TARGET, or exporter objects",
        "Where the run goes. `json:PATH` writes the run file, `chrome:PATH` a trace for Perfetto, "
        "`kineto:PATH` one for HolisticTraceAnalysis; compressed if PATH ends in `.gz`. Without any, the "
        "session keeps totals only (`session.report()`).",
        "json:run.jsonl",
    ),
    Option(
        "collect",
        (),
        _collectors,
        "a comma list or sequence of collectors",
        "What else to measure. This version has no collectors yet: any name is an error.",
        "",
    ),
    Option(
        "mode",
        "develop",
        _mode,
        "`develop`",
        "`develop` records every span. `production`, which samples within a budget, comes later.",
        "develop",
    ),
    Option(
        "buffer_mib",
        64.0,
        _number(2, 65536),
        "a number of MiB from 2 to 65536",
        "The most memory that records, totals and histograms may take together, in MiB. What does not fit is "
        "dropped and counted.",
        "64",
    ),
    Option(
        "overflow",
        "newest",
        _overflow,
        "`newest` or `oldest`",
        "Which records are dropped when the buffer is full: those being made, or those waiting longest.",
        "newest",
    ),
    Option(
        "interval",
        0.1,
        _number(0.005, 60),
        "a number of seconds from 0.005 to 60",
        "Seconds between two looks of the drain thread at what was recorded.",
        "0.1",
    ),
    Option(
        "labels",
        {},
        _labels,
        "KEY=VALUE,... or a table",
        "Words or numbers that describe the run, kept in its first line.",
        "model=small,commit=abc123",
    ),
    Option(
        "rank",
        None,
        _rank,
        "a whole number from 0",
        "This process's rank in the run.",
        "0",
    ),
    Option(
        "run_id",
        None,
        _run_id,
        "1 to 64 letters, digits, dots, dashes or underscores",
        "The run's identity, the same in all its processes. Random by default.",
        "run-42",
    ),
)

_BY_NAME: Final = {option.name: option for option in OPTIONS}


# ------------------------------------------------------------------ where values come from


def resolve(
    arguments: Mapping[str, Any],
    *,
    environ: Mapping[str, str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    files: bool = True,
) -> Options:
    """Every option's value. An argument that is None counts as not given, and so does an empty variable.

    ``environ`` and ``folder`` stand for the process's own; ``files=False`` reads no TOML file. ConfigError
    for an unknown name or a value that does not parse.
    """
    environ = os.environ if environ is None else environ
    table, file = _from_file(environ, Path(folder or ".")) if files else ({}, "")
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    _check_names(arguments, "")
    _check_variables(environ)
    _check_names(table, f" in {file}")
    for option in OPTIONS:
        for source, value in (
            ("argument", arguments.get(option.name)),
            (option.environment, environ.get(option.environment) or None),
            (file, table.get(option.name)),
        ):
            if value is not None:
                values[option.name] = _parse(option, value, source)
                sources[option.name] = source
                break
    return Options(**values, sources=sources)


def _parse(option: Option, value: Any, source: str) -> Any:
    try:
        return option.parse(option, value)
    except ConfigError as error:
        if source == "argument":
            raise
        raise ConfigError(f"{error} [from {source}]") from None


def _check_names(given: Iterable[str], where: str) -> None:
    for name in given:
        if name not in _BY_NAME:
            near = nearest(name, _BY_NAME)
            hint = f"; did you mean {near!r}?" if near else ""
            raise ConfigError(f"unknown option {name!r}{where}{hint} (known: {', '.join(_BY_NAME)})")


def _check_variables(environ: Mapping[str, str]) -> None:
    """ConfigError for a variable that is nearly one of ours. Any other may be somebody else's."""
    ours = {option.environment for option in OPTIONS} | {PREFIX + "CONFIG", PREFIX + "DISABLED"}
    for name in environ:
        if name.startswith(PREFIX) and name not in ours:
            from difflib import get_close_matches

            for near in get_close_matches(name, ours, n=1, cutoff=0.9):
                raise ConfigError(f"unknown variable {name}; did you mean {near}?")


def _from_file(environ: Mapping[str, str], folder: Path) -> tuple[Mapping[str, Any], str]:
    """The options in the file that INSTRUMENT_CONFIG names, else in pyproject.toml; and the file's name."""
    named = environ.get(PREFIX + "CONFIG")
    path = folder / (named or "pyproject.toml")
    if not named and not path.is_file():
        return {}, ""
    import tomllib  # only now: most programs have no such file

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    tool = content.get("tool")
    table = tool.get("instrument") if isinstance(tool, dict) else None
    if table is None:
        table = content if named else {}
    if not isinstance(table, dict):
        raise ConfigError(f"[tool.instrument] in {path} is not a table")
    return table, str(path)


# ------------------------------------------------------------------ the page


def as_markdown() -> str:
    """The page ``docs/configuration.md``."""
    lines = [
        "# Configuration",
        "",
        "<!-- Made by `python -m instrument.config`; edit `instrument/config.py` instead. -->",
        "",
        "Each option is an argument of `instrument.start()` and `instrument.session()`, a variable of the",
        "environment, and a key of `[tool.instrument]` in `pyproject.toml`. The first of the three that sets",
        "it wins, then the default. A value that does not parse, and a name that does not exist, end",
        "`start()` with `instrument.ConfigError`. So does a variable that is nearly one of these; others may",
        "be somebody else's.",
        "",
    ]
    for option in OPTIONS:
        lines += [
            f"## `{option.name}`",
            "",
            option.help,
            "",
            f"* Accepts: {option.accepts}",
            f"* Default: {_shown(option.default)}",
            f"* Environment: `{option.environment}={option.example}`",
            "",
        ]
    lines += [  # what is no option of a session
        "## Switches of the environment",
        "",
        "* `INSTRUMENT_DISABLED`: unless it is `0`, `false`, `off`, `no` or empty, annotations do nothing,",
        "  kernels are returned as they are, and `start()` gives a session that does nothing.",
        "* `INSTRUMENT_EXPORT` or `INSTRUMENT_MODE`: if one of them is set, importing `instrument` starts a",
        "  session. An error there is one line on stderr, and the program runs on unrecorded.",
        "* `INSTRUMENT_CONFIG`: a TOML file to read instead of `pyproject.toml`; its options stand at the",
        "  top or in `[tool.instrument]`.",
    ]
    return "\n".join(lines) + "\n"


def _shown(default: Any) -> str:
    if default is None or default == () or default == {}:
        return "none"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


if __name__ == "__main__":
    sys.stdout.write(as_markdown())
