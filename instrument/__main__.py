"""`python -m instrument`: the same as the command `instrument`."""

import sys

import instrument


def main() -> int:
    """Run the command line and give its exit code; 2 when another `instrument` has taken our place."""
    if not hasattr(instrument, "__instrument_api__"):
        # PyPI's unrelated `instrument`, installed after us, has replaced our __init__.py and left the rest.
        sys.stderr.write(
            f"instrument: {instrument.__file__} is not instrument-sdk but PyPI's unrelated `instrument`; "
            "`pip uninstall instrument`, then `pip install --force-reinstall --no-deps instrument-sdk`\n"
        )
        return 2
    from instrument.cli import main as command_line

    return command_line()


if __name__ == "__main__":
    sys.exit(main())
