"""The run file as a stream of whole lines: plain or ``.gz``, in bounded memory, whatever state it is in.

What
    :func:`find_files` finds the files of one run. :class:`RunFile` is one of them: its first line, and the
    rest in blocks of whole lines. :func:`records` gives every line as a dict, one by one.
Why
    A program that was killed leaves a file that is cut off, one that still runs a file without an end. Both
    are read as far as they go, and :class:`FileState` says how far that was.
How
    Blocks of about 1 MiB keep memory flat and let readers skip lines they do not need (0.5 us each) instead
    of parsing them (5 us each).
"""

import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, Final

from instrument.errors import RunFileError

__all__ = ["SCHEMA", "FileState", "Progress", "RunFile", "find_files", "is_run_file", "parse", "records"]

SCHEMA: Final = 1
"""The newest schema of the run file that this module reads."""

BLOCK_BYTES: Final = 1 << 20
SALVAGE_BYTES: Final = 256
MAX_LINE_BYTES: Final = 16 << 20
"""A longer line is skipped and counted: the recorder writes none above 32 KiB."""

Progress = Callable[[int], None]
"""Called now and then with the bytes of the file read so far (of the compressed file, for ``.gz``)."""


@dataclass(slots=True)
class FileState:
    """How a file ended, and what in it could not be read."""

    ended: bool = False
    """Its ``end`` line was read."""
    cut_bytes: int = 0
    """Length of an incomplete last line, which was ignored."""
    damage: str = ""
    """Why decompression stopped early, if it did."""
    lines: int = 0
    skipped: int = 0
    """Lines that are no JSON object, lack what their type requires, or are longer than ``MAX_LINE_BYTES``."""
    first_skipped: int = 0
    """Line number of the first of them."""

    def skip(self, number: int) -> None:
        """Count a line that cannot be read."""
        self.skipped += 1
        self.first_skipped = min(self.first_skipped or number, number)


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


def _finite(digits: str) -> float:
    """JSON's grammar allows 1e999; Python reads infinity, which no JSON of ours could say again."""
    number = float(digits)
    if number - number != 0:
        raise ValueError(f"{digits} is beyond every float")
    return number


_decoder = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


def parse(line: bytes) -> dict[str, Any]:
    """One line as a dict. ValueError for anything that is not a JSON object with a text as ``type``."""
    try:
        record = _decoder.decode(line.decode())
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(record, dict) or not isinstance(record.get("type"), str):
        raise ValueError("not an object with a type")
    return record


class RunFile:
    """One process's run file. Making it reads the first line; RunFileError if that is no ``run`` line."""

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self.path = path
        self.state = FileState()
        self._progress = progress
        self.header = self._read_header()

    def blocks(self) -> Iterator[bytes]:
        """The file from its first line on, in pieces of whole lines, each ended by a newline.

        Starts over, and resets :attr:`state`, at each call. A last line without its newline is taken if it is
        a whole object. The caller counts ``state.lines`` and sets ``state.ended``.
        """
        state = self.state = FileState()
        carry = bytearray()
        overlong = False
        for data in self._pieces(state):
            cut = data.rfind(b"\n") + 1
            if not cut:
                if not overlong:
                    carry += data
                if len(carry) > MAX_LINE_BYTES:
                    overlong = True
                    carry.clear()
                continue
            start = 0
            if overlong:  # its rest goes the same way
                start = data.find(b"\n") + 1
                state.lines += 1
                state.skip(state.lines)
                overlong = False
            block = bytes(carry) + data[start:cut] if carry else data[start:cut]
            carry[:] = data[cut:]
            if block:
                yield block
        if overlong:
            state.skip(state.lines + 1)
        elif carry:
            try:
                parse(bytes(carry))
            except ValueError:
                state.cut_bytes = len(carry)
            else:
                yield bytes(carry) + b"\n"

    def seems_ended(self) -> bool:
        """Whether an ``end`` line stands near its end; True where only decompressing could tell."""
        with self.path.open("rb") as file:
            if file.read(2) == b"\x1f\x8b":
                return True
            file.seek(max(self.path.stat().st_size - 4096, 0))
            return b'{"type":"end"' in file.read()

    def _read_header(self) -> dict[str, Any]:
        head = bytearray()
        for data in self._pieces(self.state):
            head += data
            if b"\n" in data or len(head) > MAX_LINE_BYTES:
                break
        if not head:
            if self.state.damage:
                raise RunFileError(
                    f"{self.path}: cannot be decompressed: {self.state.damage}; is it really a .gz file?"
                )
            raise RunFileError(f"{self.path}: is empty; was the program stopped before it recorded anything?")
        line, newline, _ = bytes(head).partition(b"\n")
        if not newline and line.startswith(b'{"type":"run"') and not line.endswith(b"}"):
            raise RunFileError(
                f"{self.path}: is cut off within its first line, so nothing can be read from it"
            )
        try:
            header = parse(line)
        except ValueError:
            header = {}
        if header.get("type") != "run":
            kind = "a binary file" if b"\0" in head else "not a run file"
            raise RunFileError(
                f"{self.path}: is {kind}: a run file begins with a line of type `run`; "
                'make one with `instrument run script.py` or `export="json:run.jsonl"`'
            )
        schema = header.get("schema")
        if not isinstance(schema, int) or schema < 1:
            raise RunFileError(f"{self.path}: its first line names no schema; is it another program's file?")
        if schema > SCHEMA:
            raise RunFileError(
                f"{self.path}: is of schema {schema}, and this version reads up to {SCHEMA}; "
                "`pip install --upgrade instrument-sdk`"
            )
        return header

    def _pieces(self, state: FileState) -> Iterator[bytes]:
        """What is in the file, decompressed, in pieces of at most a few MiB."""
        try:
            if not self.path.is_file():
                raise RunFileError(
                    f"{self.path}: {_why_no_file(self.path)}; give the file that the program wrote"
                )
            with self.path.open("rb", buffering=0) as file:
                packed = file.read(2) == b"\x1f\x8b"
                file.seek(0)
                pieces = _read(file, self._progress)
                yield from _unzipped(pieces, state) if packed else pieces
        except OSError as error:
            raise RunFileError(f"{self.path}: cannot be read: {error.strerror or error}") from error


def _why_no_file(path: Path) -> str:
    if path.is_dir():
        return "is a folder"
    return "is not a regular file" if path.exists() else "does not exist"


def _read(file: FileIO, progress: Progress | None) -> Iterator[bytes]:
    done = 0
    while data := file.read(BLOCK_BYTES):
        done += len(data)
        if progress:
            progress(done)
        yield data


def _unzipped(pieces: Iterator[bytes], state: FileState) -> Iterator[bytes]:
    """Decompress member after member; unlike ``gzip``, keep what comes before a cut or a damaged place."""
    unzip = None  # between two members
    for piece in pieces:
        packed = piece
        while packed:
            if unzip is None:
                packed = packed.lstrip(b"\0")  # padding may follow a member
                unzip = zlib.decompressobj(wbits=31)
                continue
            before = unzip.copy()
            try:
                data = unzip.decompress(packed, BLOCK_BYTES)
            except zlib.error as error:
                state.damage = str(error)
                yield from _salvaged(before, packed)
                return
            if data:
                yield data
            packed = unzip.unused_data if unzip.eof else unzip.unconsumed_tail
            if unzip.eof:
                unzip = None
    if unzip is not None:
        if rest := unzip.flush():
            yield rest
        if not unzip.eof:
            state.damage = "the compressed data is cut off"


def _salvaged(unzip: Any, packed: bytes) -> Iterator[bytes]:
    """What comes before the damaged place: an error keeps back all that its own call had decompressed."""
    for at in range(0, len(packed), SALVAGE_BYTES):
        try:
            data = unzip.decompress(packed[at : at + SALVAGE_BYTES])
        except zlib.error:
            return
        if data:
            yield data


# ------------------------------------------------------------------ which files


def is_run_file(path: Path) -> bool:
    """Whether a file begins as a run file of any schema; False for one that cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError:
        return False
    if head.startswith(b"\x1f\x8b"):
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, 4096)
        except zlib.error:
            return False
    return head.startswith(b'{"type":"run"')


def find_files(targets: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """The files of the one run that ``targets`` (files or folders) hold, and what was left out, in words.

    Beside a file lie those of its child processes, ``run.<host>-<pid>-<id>.jsonl`` for ``run.jsonl``; they
    are taken if they carry the same run id. RunFileError if nothing can be read or several runs are meant.
    """
    files: list[Path] = []
    notes: list[str] = []
    run_id: Any = None
    for target in targets:
        if target.is_dir():
            found = _in_folder(target, notes)
        else:
            found = {target: RunFile(target).header.get("run_id")}
        for path, of in found.items():
            if files and of != run_id:
                raise RunFileError(
                    f"{path}: is of run {of}, and {files[0]} of run {run_id}; give the files of one run"
                )
            run_id = of
            if path not in files:
                files.append(path)
    for parent in list(files):
        for child in _children(parent):
            if child in files:
                continue
            try:
                of = RunFile(child).header.get("run_id")
            except RunFileError as error:
                notes.append(f"left out: {error}")
                continue
            if of == run_id:
                files.append(child)
            else:
                notes.append(f"left out: {child.name} is of another run ({of})")
    return files, notes


def _in_folder(folder: Path, notes: list[str]) -> dict[Path, Any]:
    """The run files in a folder with their run ids; RunFileError unless all are of one run."""
    found: dict[Path, Any] = {}
    for path in sorted(folder.iterdir(), key=lambda path: (len(path.name), path.name)):
        if not path.name.endswith((".jsonl", ".jsonl.gz")):
            continue
        try:
            found[path] = RunFile(path).header.get("run_id")
        except RunFileError as error:
            notes.append(f"left out: {error}")
    if not found:
        raise RunFileError(f"{folder}: holds no run file (*.jsonl or *.jsonl.gz)")
    if len(set(map(str, found.values()))) > 1:
        names = ", ".join(path.name for path in list(found)[:4])
        raise RunFileError(f"{folder}: holds files of several runs ({names}, ...); give the one to report")
    return found


def _children(path: Path) -> list[Path]:
    """The files beside ``path`` that are named like its children's."""
    match = re.fullmatch(r"(.+?)(\.jsonl?(?:\.gz)?|\.gz|)", path.name, re.DOTALL)
    stem, ending = match.groups() if match else (path.name, "")
    named = re.compile(rf"{re.escape(stem)}\..+-\d+-[0-9A-Za-z]+{re.escape(ending)}", re.DOTALL)
    try:
        beside = sorted(path.parent.iterdir())
    except OSError:
        return []
    return [other for other in beside if named.fullmatch(other.name)]


def records(path: Path, progress: Progress | None = None) -> Iterator[dict[str, Any]]:
    """Every line of one file as a dict, in order; about 5 us each. Lines that cannot be read are left out."""
    file = RunFile(path, progress)
    for block in file.blocks():
        for line in block.split(b"\n")[:-1]:
            file.state.lines += 1
            try:
                yield parse(line)
            except ValueError:
                file.state.skip(file.state.lines)
