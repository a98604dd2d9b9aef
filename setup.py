"""The C extensions; everything else about the distribution stands in pyproject.toml."""

import os
from glob import glob

from setuptools import Extension, setup

FLAGS = [
    "-std=c11",
    "-fvisibility=hidden",
    # One `mov` to reach the calling thread's state. Such variables live in the small reserve that the loader
    # keeps for libraries loaded late, so there may be only a few words of them.
    "-ftls-model=initial-exec",
    # Calls into the interpreter go straight through the table of addresses, without a jump on the way.
    "-fno-plt",
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wstrict-prototypes",
    "-Wno-unused-parameter",
]
OPTIMISE = ["-O3", "-DNDEBUG"]  # said here, since CFLAGS in the environment replaces what Python brings
# `make sanitize`: asserts on, and the first finding ends the program.
SANITIZE = [
    "-O1",
    "-g",
    "-UNDEBUG",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
]

sanitize = os.environ.get("INSTRUMENT_BUILD_SANITIZE") == "1"
if os.environ.get("INSTRUMENT_BUILD_WERROR") == "1":  # CI; other compilers warn of other things
    FLAGS.append("-Werror")

setup(
    ext_modules=[
        Extension(
            "instrument.recorder._core",
            # Sorted: the same bytes from the same sources, whatever order the folder is read in.
            sources=sorted(glob("instrument/recorder/*.c")),
            depends=sorted(glob("instrument/recorder/*.h")),
            extra_compile_args=FLAGS + (SANITIZE if sanitize else OPTIMISE),
            extra_link_args=["-fsanitize=address,undefined"] if sanitize else [],
        ),
        Extension(
            "instrument_exporters._chrome",
            sources=["exporters/instrument_exporters/_chrome.c"],
            depends=["exporters/instrument_exporters/_chrome_tracks.h"],
            extra_compile_args=FLAGS + (SANITIZE if sanitize else OPTIMISE),
            extra_link_args=["-fsanitize=address,undefined"] if sanitize else [],
        ),
    ]
)
