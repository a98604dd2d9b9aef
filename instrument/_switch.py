"""The one switch that must be known before anything else is loaded: `INSTRUMENT_DISABLED`."""

import os

FALSE_WORDS = frozenset({"", "0", "false", "off", "no"})


def is_true(text: str) -> bool:
    """Whether a word of the environment means yes: all but ``0``, ``false``, ``off``, ``no`` and nothing."""
    return text.strip().lower() not in FALSE_WORDS


DISABLED: bool = is_true(os.environ.get("INSTRUMENT_DISABLED", ""))
"""Read once: annotations decide at decoration, so a later change could take effect only by halves."""
