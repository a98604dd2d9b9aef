"""Exporters by name: ours from a table, others' from the entry points of group ``instrument.exporters``.

An entry point names a callable that takes the text after the colon (``json:run.jsonl`` -> ``"run.jsonl"``)
and returns an exporter (:class:`instrument.records.Exporter`). It must do no I/O yet: ``open()`` does.
Nothing is imported before an exporter is asked for, and entry points are looked up only for names that are
not ours.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, cast

from instrument.config import unknown
from instrument.errors import ConfigError
from instrument.records import Exporter

__all__ = ["GROUP", "OWN_EXPORTERS", "NamedExporter", "make_exporters"]

GROUP: Final = "instrument.exporters"

OWN_EXPORTERS: Final = {
    "chrome": "instrument_exporters.chrome:ChromeExporter",
    "json": "instrument_exporters.json:JsonExporter",
    "kineto": "instrument_exporters.chrome:KinetoExporter",
}
"""Name -> where its class is, imported when it is used."""


@dataclass(frozen=True, slots=True)
class NamedExporter:
    """An exporter as a session holds it."""

    name: str
    """Unique in its session; the ``where`` of its losses."""
    spec: str
    """What the user wrote, for messages."""
    exporter: Exporter
    spare: Exporter | None
    """The same, never opened: what a fork's child opens. None for an exporter that was given as an object,
    since its sockets, files and locks belong to the parent."""

    def for_child(self) -> "NamedExporter | None":
        """What a fork's child uses instead."""
        if self.spare is None:
            return None
        return NamedExporter(self.name, self.spec, copy.copy(self.spare), self.spare)


def make_exporters(specs: tuple[Any, ...]) -> tuple[NamedExporter, ...]:
    """The exporters that option ``export`` asks for, not opened yet. ConfigError for an unknown name."""
    named: list[NamedExporter] = []
    for spec in specs:
        taken = {other.name for other in named}
        if isinstance(spec, str):
            kind, exporter = _from_text(spec)
            named.append(NamedExporter(_unique(kind, taken), spec, exporter, _spare(exporter)))
        else:
            kind = type(spec).__name__
            named.append(NamedExporter(_unique(kind, taken), kind, spec, None))
    _check_targets(named)
    return tuple(named)


def _spare(exporter: Exporter) -> Exporter | None:
    try:
        return copy.copy(exporter)
    except Exception:  # then a fork's child has none
        return None


def _check_targets(named: list[NamedExporter]) -> None:
    """Two exporters that write to one place would destroy each other's work."""
    seen: dict[tuple[type, object], str] = {}
    for item in named:
        target = getattr(item.exporter, "target", None)
        # A path is one place for all kinds of exporters; anything else may mean something to each kind.
        kind = str if isinstance(target, str) and target.startswith("/") else type(item.exporter)
        if target is not None and seen.setdefault((kind, target), item.name) != item.name:
            raise ConfigError(f"option 'export': two exporters write to {target!r}")


def _from_text(spec: str) -> tuple[str, Exporter]:
    name, _, argument = spec.partition(":")
    try:
        exporter = _factory(name)(argument)
        if not isinstance(exporter, Exporter):
            raise TypeError(f"{type(exporter).__name__} has not the methods of an exporter")
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"option 'export': {spec!r} cannot be made: {type(error).__name__}: {error}"
        ) from error
    return name, exporter


def _factory(name: str) -> Callable[[str], Exporter]:
    if name in OWN_EXPORTERS:
        module, _, attribute = OWN_EXPORTERS[name].partition(":")
        return cast(Callable[[str], Exporter], getattr(import_module(module), attribute))
    others = dict(_entry_points())
    if name in others:
        return cast(Callable[[str], Exporter], others[name].load())
    hint = "; an exporter is written NAME:TARGET, as in json:run.jsonl"
    raise unknown("export", "exporter", name, {*OWN_EXPORTERS, *others}, hint)


def _entry_points() -> Iterator[tuple[str, Any]]:
    from importlib.metadata import entry_points  # slow to import, rarely needed

    for point in entry_points(group=GROUP):
        yield point.name, point


def _unique(name: str, taken: set[str]) -> str:
    number = 2
    unique = name
    while unique in taken:
        unique, number = f"{name}-{number}", number + 1
    return unique
