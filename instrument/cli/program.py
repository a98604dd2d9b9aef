"""Running a Python program in this process so that it cannot tell this from ``python script.py``."""

import atexit
import builtins
import importlib.machinery
import importlib.util
import io
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from instrument import _switch
from instrument.errors import InstrumentError

if TYPE_CHECKING:
    from instrument.sessions import Session

__all__ = ["Program"]

_kept: list[ModuleType] = []
"""The module that was ``__main__`` before: its end must not come while the program runs."""


class Program:
    """A script or module with its arguments. Calling it starts a session and runs the program."""

    def __init__(
        self,
        target: str,
        arguments: Sequence[str],
        *,
        module: bool,
        options: Mapping[str, Any],
        quiet: bool = False,
    ) -> None:
        self.target = target
        self.arguments = list(arguments)
        self.module = module
        self.options = dict(options)
        self.quiet = quiet

    def __call__(self) -> int:
        """Run it: 0 if it ends, 2 if there is no such program or session; what it raises goes through."""
        announce = _Announcement(self.quiet)
        if _switch.DISABLED and not self.quiet:
            sys.stderr.write("instrument run: INSTRUMENT_DISABLED is set, so nothing is recorded\n")
        try:
            self._check()
            self._set_arguments()
            # Registered first, it runs last: after the program's own functions and the session's stop.
            atexit.register(announce)
            announce.session = self._start()
        except InstrumentError as error:
            sys.stderr.write(f"instrument run: {' '.join(str(error).split())}\n")
            return 2
        _kept.append(sys.modules["__main__"])
        try:
            code, main = self._load_module() if self.module else self._load_script()
            sys.modules["__main__"] = main
            exec(code, main.__dict__)
        except SystemExit:
            raise
        except BaseException:
            # The interpreter prints it, as always, but without the frames below the program's.
            _leave_out_frames_below(sys._getframe())
            raise
        return 0

    def _check(self) -> None:
        """Whether there is such a program, before a file is made for its run. InstrumentError if not."""
        if not self.module:
            path = Path(self.target)
            if path.is_dir() and not (path / "__main__.py").is_file():
                raise InstrumentError(f"{self.target} is a folder without a __main__.py")
            if not path.exists():
                raise InstrumentError(
                    f"{self.target}: no such file; the program to run comes after the options"
                )
            return
        top = self.target.partition(".")[0]
        sys.path[:0] = [] if sys.flags.safe_path else [os.getcwd()]
        try:
            found = importlib.util.find_spec(top) if top else None
        except (ImportError, ValueError):
            found = None
        finally:
            del sys.path[: 0 if sys.flags.safe_path else 1]
        if found is None:
            raise InstrumentError(
                f"no module named {top!r}; its folder must be the current one or on sys.path"
            )

    def _set_arguments(self) -> None:
        sys.argv = [self.target, *self.arguments]
        if sys.flags.safe_path:
            return
        path = Path(self.target)
        folder = path if path.is_dir() else Path(os.path.realpath(path)).parent
        sys.path[0] = os.getcwd() if self.module else str(folder)

    def _start(self) -> "Session":
        from instrument.sessions import start

        session = start(**self.options)
        session.where = "`instrument run`"  # what a program that starts one too is told
        return session

    def _load_script(self) -> tuple[CodeType, ModuleType]:
        path = os.path.abspath(self.target)
        if os.path.isdir(path):
            path = os.path.join(path, "__main__.py")
        with io.open_code(path) as file:
            source = file.read()
        main = ModuleType("__main__")
        loader = importlib.machinery.SourceFileLoader("__main__", path)
        main.__dict__.update(__file__=path, __loader__=loader, __builtins__=builtins, __cached__=None)
        return compile(source, path, "exec", dont_inherit=True), main

    def _load_module(self) -> tuple[CodeType, ModuleType]:
        name = self.target
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name += ".__main__"
            spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None or not hasattr(spec.loader, "get_code"):
            raise ImportError(f"No module named {name}", name=name)
        code: CodeType | None = spec.loader.get_code(name)
        if code is None:
            raise ImportError(f"No code object available for {name}", name=name)
        sys.argv[0] = spec.origin or name
        main = ModuleType("__main__")
        main.__dict__.update(
            __file__=spec.origin,
            __loader__=spec.loader,
            __builtins__=builtins,
            __cached__=spec.cached,
            __package__=spec.parent,
            __spec__=spec,
        )
        return code, main


class _Announcement:
    """Says at the very end of the process where the run is."""

    def __init__(self, quiet: bool) -> None:
        self.session: Session | None = None
        self._quiet = quiet
        self._pid = os.getpid()
        self._folder = os.getcwd()

    def __call__(self) -> None:
        if self.session is None or self._quiet or os.getpid() != self._pid:
            return
        summary = self.session.stop()
        outputs = [self._short(output) for output in summary.outputs]
        if not outputs:
            return
        lost = sum(loss.count for loss in summary.losses if loss.reason != "inherited")
        spans = f"{summary.spans:,} span{'' if summary.spans == 1 else 's'}"
        text = f"instrument: {spans} in {', '.join(outputs)}"
        text += f", {lost:,} lost" if lost else ""
        text += "" if summary.delivered else ", not all of them in time"
        runs = [output for output in outputs if output.endswith((".jsonl", ".jsonl.gz", ".json", ".json.gz"))]
        text += f"; see them with `instrument report {runs[0]}`" if runs else ""
        with suppress(Exception):  # stderr may be gone by now
            sys.stderr.write(text + "\n")

    def _short(self, output: str) -> str:
        inside = os.path.relpath(output, self._folder) if os.path.isabs(output) else output
        return output if inside.startswith("..") else inside


def _leave_out_frames_below(frame: FrameType) -> None:
    """Have the exception that is on its way printed from the frame above ``frame`` on."""
    hook = sys.excepthook

    def shorter(kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        rest = traceback
        while rest is not None and rest.tb_frame is not frame:
            rest = rest.tb_next
        while rest is not None and rest.tb_frame.f_code.co_filename == __file__:
            rest = rest.tb_next
        hook(kind, value.with_traceback(rest), rest)

    sys.excepthook = shorter
