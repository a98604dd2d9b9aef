"""What the SDK raises. None of it ever comes from an annotation: at run time trouble is counted, not raised.

InstrumentError
    ConfigError (also a ValueError)     an option of a session cannot be used
    RunFileError                        a run cannot be read
"""

__all__ = ["ConfigError", "InstrumentError", "RunFileError"]


class InstrumentError(Exception):
    """What every error of the SDK is: one line that says what is wrong and how to mend it."""


class ConfigError(InstrumentError, ValueError):
    """An option that cannot be used; raised by `start()`, before anything is recorded or written.

    It names the option, the value and the nearest valid one: "option 'mode': unknown value 'develp'; did you
    mean 'develop'?". :func:`instrument.config.unknown` and :func:`instrument.config.wrong` build such lines.
    """


class RunFileError(InstrumentError):
    """A run that cannot be read: missing, empty, binary, or not a run file. It names the file."""
