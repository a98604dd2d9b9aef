"""For every test: no option of the developer's own shell, and no wall-clock limits from hypothesis."""

import os

# Before the first import of instrument, which reads them.
for name in [name for name in os.environ if name.startswith("INSTRUMENT_")]:
    del os.environ[name]

import hypothesis  # noqa: E402

import instrument.recorder._core  # noqa: E402

hypothesis.settings.register_profile("ours", deadline=None, print_blob=True)
hypothesis.settings.load_profile("ours")


def pytest_report_header() -> str:
    """Which build is being tested: a stale or a wrong one has cost an afternoon before."""
    return f"extension: {instrument.recorder._core.__file__}"
