"""Above all tests, and loaded before anything imports `instrument`."""

import os

# Read at import: what is set in a developer's shell must not start a session inside the test run.
for name in [name for name in os.environ if name.startswith("INSTRUMENT_") and "TEST" not in name]:
    del os.environ[name]

import hypothesis  # noqa: E402

# No deadline for an example: on a busy machine it tells of the machine.
hypothesis.settings.register_profile("ours", deadline=None, print_blob=True)
hypothesis.settings.load_profile("ours")


def pytest_report_header() -> str:
    """Which build is under test: a stale one, or another Python's, is the first thing to rule out."""
    from instrument.recorder import _core

    return f"extension: {_core.__file__}"
