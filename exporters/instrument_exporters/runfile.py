"""A run file on disk: whose it is, and how it grows so that it can always be read up to its last whole line.

What
    :func:`open_run_file` finds the place for a process; :class:`RunFile` appends to it, all or nothing.
Why
    A run's processes may be given the same path; a disk fills up; processes are killed and forked.
How
    * A file belongs to the process that holds its POSIX lock, which neither outlives it nor passes to a
      fork's child. Whoever finds it held writes ``run.<host>-<pid>-<id>.jsonl`` beside it, and so does a
      fork's child.
    * Plain descriptor, no Python file object: one would be flushed a second time at the end of a fork's
      child.
    * The good length is known. What was written by halves is cut off again, and the compressor is set back
      with it.
    * A daemon closes every descriptor that it inherited, and its next file may get our number: before each
      write we look whether the descriptor is still ours.
    * Compressed files are flushed with every append, so that what is on disk can be read.
"""

import errno
import fcntl
import json
import os
import re
import stat
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from instrument.records import SCHEMA

__all__ = ["RunFile", "is_run_file", "open_run_file", "reason_of"]

_HEAD: Final = 1 << 20  # bytes in which the first line must end
_GZIP: Final = 31  # zlib's number for a gzip header and trailer
_LEVEL: Final = 1  # keeping up with the program matters more than the last tenth of size


class RunFile:
    """An open run file."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._good = 0  # bytes that are whole
        self._torn = False  # more than those may be on disk
        status = os.fstat(descriptor)
        self._identity = status.st_dev, status.st_ino
        self._seekable = stat.S_ISREG(status.st_mode)
        self._deflate: Any = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP) if path.endswith(".gz") else None
        self._in_members = False

    def append(self, lines: bytes) -> None:
        """Write whole lines; OSError if they do not fit, and then nothing of them stays."""
        if self._deflate is None:
            self._write(zlib.compress(lines, _LEVEL, _GZIP) if self._in_members else lines)
            return
        before = self._deflate.copy()
        data = self._deflate.compress(lines) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        try:
            self._write(data)
        except OSError:
            self._deflate = before
            raise

    def split(self) -> None:
        """From here on, what is appended to a compressed file is a gzip member of its own each time.

        For programs that refuse a file whose last member is cut off: they can read it while it grows and
        after a crash. OSError if the end of the first member does not fit.
        """
        if self._deflate is not None:
            self._write(self._deflate.flush(zlib.Z_FINISH))
            self._deflate, self._in_members = None, True

    def is_gone(self) -> bool:
        """Whether somebody removed or replaced the file while it was written."""
        return self._seekable and self._is_ours() and os.fstat(self._descriptor).st_nlink == 0

    def close(self) -> None:
        """End the file. OSError if the end does not fit; all lines before it are there all the same."""
        try:
            if self._deflate is not None:
                self._write(self._deflate.flush(zlib.Z_FINISH))
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of the descriptor, and with it of the lock."""
        ours = self._is_ours()
        descriptor, self._descriptor = self._descriptor, -1
        if ours:
            os.close(descriptor)

    def _is_ours(self) -> bool:
        """Whether the descriptor is that of our file: the program may have closed it, and opened another."""
        try:
            status = os.fstat(self._descriptor)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._identity

    def _write(self, data: bytes) -> None:
        if not self._is_ours():
            raise OSError(errno.EBADF, "the program closed the file's descriptor", self.path)
        rest = memoryview(data)
        try:
            if self._torn:
                self._cut()
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            self._torn = self._seekable
            with suppress(OSError):
                self._cut()
            raise
        self._good += len(data)

    def _cut(self) -> None:
        if self._seekable:
            os.ftruncate(self._descriptor, self._good)
            os.lseek(self._descriptor, self._good, os.SEEK_SET)
        self._torn = False


def reason_of(error: OSError) -> str:
    """Why a write failed, as a loss says it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "disk_full"
    return "file_closed" if error.errno == errno.EBADF else "write_error"


def is_run_file(head: bytes) -> bool:
    """Whether a file that begins so, decompressed, is a run file of this version."""
    try:
        line = json.loads(head.partition(b"\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(line, dict) and line.get("type") == "run" and line.get("schema") == SCHEMA


def open_run_file(
    path: str,
    first_line: bytes,
    host: str,
    *,
    child: bool = False,
    ours: Callable[[bytes], bool] = is_run_file,
    what: str = "a run file of this version",
) -> RunFile:
    """The run file for this process, with its first line written.

    ``child``: a fork's child, which writes beside ``path`` in any case. OSError if that cannot be;
    FileExistsError if the path holds something else than ``ours`` knows by its beginning, which is left as it
    is; ``what`` says in the message what was looked for.
    """
    if child:
        return _open_beside(path, first_line, host)
    if os.path.exists(path) and not os.path.isfile(path):
        return _with_first_line(RunFile(path, _open_device(path)), first_line)
    path = os.path.realpath(path)
    for _ in range(100):  # others may put a new file in its place meanwhile
        try:
            return _with_first_line(RunFile(path, _create(path)), first_line, remove=True)
        except FileExistsError:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if not _lock(descriptor):
                return _open_beside(path, first_line, host)
            if _is_at(descriptor, path):
                if os.fstat(descriptor).st_size and not ours(_head(descriptor)):
                    raise FileExistsError(
                        f"{path} exists and is not {what}; remove it or choose another path"
                    )
                return _replace(path, first_line)
        finally:
            os.close(descriptor)
    raise FileExistsError(f"{path} is replaced over and over by other processes")


def _replace(path: str, first_line: bytes) -> RunFile:
    """Put a new file in the place of an old one of ours, whose lock we hold."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.tmp")
    descriptor = _create(temporary)
    try:
        file = _with_first_line(RunFile(path, descriptor), first_line)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    return file


def _open_beside(path: str, first_line: bytes, host: str) -> RunFile:
    """``run.jsonl`` -> ``run.<host>-<pid>-<id>.jsonl``."""
    folder, name = os.path.split(path)
    compressed = ".gz" if name.endswith(".gz") else ""
    stem, extension = os.path.splitext(name.removesuffix(compressed))
    machine = re.sub(r"[^A-Za-z0-9.-]", "-", host)[:64] or "host"
    unique = f"{machine}-{os.getpid()}-{os.urandom(4).hex()}"
    own = os.path.join(folder, f"{stem}.{unique}{extension}{compressed}")
    return _with_first_line(RunFile(own, _create(own)), first_line, remove=True)


def _with_first_line(file: RunFile, line: bytes, *, remove: bool = False) -> RunFile:
    try:
        file.append(line)
    except BaseException:
        file.abandon()
        if remove:
            with suppress(OSError):
                os.unlink(file.path)
        raise
    return file


def _create(path: str) -> int:
    """A new file, locked. FileExistsError if there is one."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    _lock(descriptor)
    return descriptor


def _open_device(path: str) -> int:
    """A pipe or terminal; a pipe that nobody reads is an error, not a wait."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    os.set_blocking(descriptor, True)
    return descriptor


def _lock(descriptor: int) -> bool:
    """False if another process holds the file. A file system without locks counts as free."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        pass
    return True


def _is_at(descriptor: int, path: str) -> bool:
    """Whether the file that was opened is still the one at the path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _head(descriptor: int) -> bytes:
    """How the file begins, decompressed."""
    head = os.pread(descriptor, _HEAD, 0)
    if head.startswith(b"\x1f\x8b"):
        try:
            return zlib.decompressobj(_GZIP).decompress(head, _HEAD)
        except zlib.error:
            return b""
    return head
