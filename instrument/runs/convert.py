"""A finished run through the exporters: every file of it, read once for all targets.

An exporter that has a method ``join(resource)`` takes all processes of a run into one output. Of any other
there is one for each process, opened as in a fork's child, which writes beside the first.
"""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from instrument.errors import ConfigError, RunFileError
from instrument.plugins import NamedExporter, make_exporters
from instrument.records import Batch, ExportError, Exporter, Resource
from instrument.runs.load import RunFile, find_files
from instrument.runs.replay import replay
