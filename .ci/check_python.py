"""Say in a line what this machine lacks to build the SDK. Runs on any Python 3."""

import os
import shutil
import sys
import sysconfig


def missing():
    """What is lacking and what to do about it, or None."""
    here = "%s is %d.%d" % ((sys.executable,) + sys.version_info[:2])
    if sys.version_info < (3, 11):
        return here + ", and instrument needs 3.11 or newer: try `make ... PYTHON=python3.12`"
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        return here + " without venv: install it (Debian and Ubuntu: python3-venv)"
    header = os.path.join(sysconfig.get_path("include"), "Python.h")
    if not os.path.exists(header):
        return here + " without its C headers, " + header + ": install them (Debian and Ubuntu: python3-dev)"
    if not shutil.which("gcc") and not shutil.which("cc"):
        return "there is no C compiler: install gcc"
    return None


if __name__ == "__main__":
    lack = missing()
    if lack:
        sys.exit("instrument cannot be built: " + lack)
