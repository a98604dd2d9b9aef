import errno
import os
import zlib

import pytest

from instrument_exporters import runfile
from instrument_exporters.runfile import open_run_file

FIRST = b'{"type":"run","schema":1}\n'


@pytest.fixture(params=["run.jsonl", "run.jsonl.gz"])
def path(request, tmp_path):
    return str(tmp_path / request.param)


def content(path):
    with open(path, "rb") as file:
        data = file.read()
    return zlib.decompressobj(31).decompress(data) if path.endswith(".gz") else data


class FailingDisk:
    """Stands for `os.write`: takes so many bytes in all, then is full."""

    def __init__(self, room):
        self.room = room
        self.write = os.write

    def __call__(self, descriptor, data):
        if self.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = self.write(descriptor, bytes(data)[: self.room])
        self.room -= taken
        return taken


@pytest.mark.parametrize("room", [0, 1, 10, 40])
def test_lines_that_do_not_fit_leave_nothing_behind_and_later_ones_follow(path, monkeypatch, room):
    file = open_run_file(path, FIRST, "h")
    with monkeypatch.context() as patch:
        patch.setattr(runfile.os, "write", FailingDisk(room))
        with pytest.raises(OSError, match="No space"):
            file.append(b"lost %d\n" % room + os.urandom(64).hex().encode() + b"\n")
        assert content(path) == FIRST
    file.append(b"kept\n")
    assert content(path) == FIRST + b"kept\n"
    file.close()
    assert content(path) == FIRST + b"kept\n"


def test_a_cut_that_fails_is_made_up_for(path, monkeypatch):
    file = open_run_file(path, FIRST, "h")
    with monkeypatch.context() as patch:
        patch.setattr(runfile.os, "write", FailingDisk(3))
        patch.setattr(runfile.os, "ftruncate", FailingDisk(0))
        with pytest.raises(OSError, match="No space"):
            file.append(b"lost\n")
    file.append(b"kept\n")
    file.close()
    assert content(path) == FIRST + b"kept\n"


def test_a_first_line_that_does_not_fit_leaves_no_file(path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(runfile.os, "write", FailingDisk(3))
        with pytest.raises(OSError, match="No space"):
            open_run_file(path, FIRST, "h")
    assert os.listdir(os.path.dirname(path)) == []


def test_an_old_file_stays_if_the_new_one_cannot_begin(path, monkeypatch):
    old = open_run_file(path, FIRST, "h")
    old.append(b"old\n")
    old.close()
    with monkeypatch.context() as patch:
        patch.setattr(runfile.os, "write", FailingDisk(3))
        with pytest.raises(OSError, match="No space"):
            open_run_file(path, FIRST, "h")
    assert content(path) == FIRST + b"old\n"
    assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]


def test_a_reader_of_the_old_file_keeps_it_when_it_is_replaced(path):
    open_run_file(path, FIRST, "h").close()
    with open(path, "rb") as reader:
        open_run_file(path, FIRST + b"new\n", "h").close()
        before = reader.read()
    assert zlib.decompress(before, 31) == FIRST if path.endswith(".gz") else before == FIRST
    assert content(path) == FIRST + b"new\n"


def test_a_descriptor_that_the_program_closed_and_got_again_is_left_alone(path, tmp_path):
    file = open_run_file(path, FIRST, "h")
    descriptor = file._descriptor
    os.close(descriptor)
    other = os.open(tmp_path / "theirs", os.O_RDWR | os.O_CREAT)
    assert other == descriptor
    os.write(other, b"mine")
    with pytest.raises(OSError, match="the program closed"):
        file.append(b"lost\n")
    with pytest.raises(OSError, match="the program closed"):
        file.append(b"lost\n")
    assert not file.is_gone()
    file.abandon()
    os.write(other, b"mine")
    os.close(other)
    assert (tmp_path / "theirs").read_bytes() == b"minemine"
    assert content(path) == FIRST


def test_a_child_writes_beside_in_a_file_named_by_host_and_pid(path):
    files = [open_run_file(path, FIRST, "host.example/odd name", child=True) for _ in range(2)]
    for file in files:
        file.close()
    folder, name = os.path.split(path)
    ending = name.removeprefix("run")
    for file in files:
        assert os.path.dirname(file.path) == folder
        assert os.path.basename(file.path).startswith(f"run.host.example-odd-name-{os.getpid()}-")
        assert file.path.endswith(ending)
        assert content(file.path) == FIRST
    assert files[0].path != files[1].path
    assert not os.path.exists(path)


def test_a_file_replaced_between_look_and_lock_is_looked_at_again(path, monkeypatch):
    open_run_file(path, FIRST, "h").close()
    lock = runfile._lock

    def replaced_meanwhile(descriptor):
        monkeypatch.setattr(runfile, "_lock", lock)
        os.unlink(path)
        return lock(descriptor)

    monkeypatch.setattr(runfile, "_lock", replaced_meanwhile)
    file = open_run_file(path, FIRST, "h")
    file.append(b"new\n")
    file.close()
    assert content(path) == FIRST + b"new\n"


def test_a_file_system_without_locks_is_used_without(path, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(runfile.fcntl, "lockf", unsupported)
    open_run_file(path, FIRST, "h").close()
    assert content(path) == FIRST
