"""The tree of errors: what a caller can catch."""

import instrument
from instrument.errors import ConfigError, InstrumentError, RunFileError


def test_a_configuration_error_is_ours_and_a_value_error() -> None:
    assert issubclass(ConfigError, InstrumentError)
    assert issubclass(ConfigError, ValueError)
    assert instrument.ConfigError is ConfigError


def test_an_unreadable_run_is_ours_but_no_configuration_error() -> None:
    assert issubclass(RunFileError, InstrumentError)
    assert not issubclass(RunFileError, ConfigError)
