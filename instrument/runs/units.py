"""Numbers and names as people read them."""

import math
import unicodedata
from typing import Final

__all__ = ["clean", "duration", "number", "percent", "quantity"]

_UNITS: Final = (("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("h", 3600e9))


def duration(ns: float | None) -> str:
    """Three digits and a unit: ``1.23 ms``; a dash for None."""
    if ns is None:
        return "–"
    if ns < 1000 and ns == int(ns):
        return f"{int(ns)} ns"
    for (unit, size), (_, larger) in zip(_UNITS, [*_UNITS[1:], ("", float("inf"))], strict=True):
        limit = larger * 10 if unit == "s" else larger  # seconds up to ten minutes
        text = _digits(ns / size)
        if ns < limit and float(text) * size < limit:
            return f"{text} {unit}"
    return f"{ns / 3600e9:,.0f} h"


def quantity(value: float) -> str:
    """A count with its thousands apart."""
    return f"{round(value):,}"


def number(value: float | None) -> str:
    """Three digits, or whole with thousands apart; a dash for None."""
    if value is None:
        return "–"
    if value != value or abs(value) == float("inf"):
        return str(value)
    size = abs(value)
    if size == int(size) and size < 1e9:
        return f"{int(value):,}"
    if 0.001 <= size < 1e9:
        decimals = 2 - math.floor(math.log10(size))
        return f"{value:,.{max(decimals, 0)}f}"
    return f"{value:.2e}"


def percent(share: float) -> str:
    """``12.3%``."""
    return f"{100 * share:.1f}%"


def clean(text: str, width: int | None = None) -> str:
    """Text that cannot disturb a terminal: control characters escaped, cut to ``width`` with an ellipsis."""
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else _escape(letter) for letter in text)
    if width is not None and cells(text) > width:
        while text and cells(text) > width - 1:
            text = text[: min(len(text) - 1, width)]
        text += "…"
    return text


def cells(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(_cells(letter) for letter in text)


def _cells(letter: str) -> int:
    if unicodedata.combining(letter) or letter in "\u200d\ufe0f":
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


def _digits(value: float) -> str:
    for decimals, limit in ((2, 9.995), (1, 99.95)):
        if value < limit:
            return f"{value:.{decimals}f}"
    return f"{value:.0f}"
