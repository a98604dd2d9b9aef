"""PyPI's unrelated `instrument` in our place: installed after us, with its `__init__.py` over ours."""

import sys

WAY_OUT = "`pip uninstall instrument`, then `pip install --force-reinstall --no-deps instrument-sdk`"


def in_our_place() -> str | None:
    """The line to say when what is imported as `instrument` is not this SDK; None when it is."""
    package = sys.modules["instrument"]
    if hasattr(package, "__instrument_api__"):
        return None
    return f"{package.__file__} is not instrument-sdk but PyPI's unrelated `instrument`; {WAY_OUT}"
