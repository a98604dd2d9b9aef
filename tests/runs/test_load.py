import gzip
import json

import pytest
from run_builder import RunBuilder, as_line, small_run

from instrument.errors import RunFileError
from instrument.runs.load import RunFile, find_files, is_run_file, records


def lines_of(path):
    file = RunFile(path)
    return b"".join(file.blocks()), file.state


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_a_file_is_read_as_it_was_written(tmp_path, name):
    run = small_run()
    data, state = lines_of(run.write(tmp_path / name))
    assert data == run.data()
    assert (state.cut_bytes, state.damage) == (0, "")


def test_records_are_the_lines_in_order(tmp_path):
    run = small_run()
    assert list(records(run.write(tmp_path / "run.jsonl"))) == run.lines


def test_a_truncated_file_is_read_to_its_last_whole_line(tmp_path):
    path = small_run().write(tmp_path / "run.jsonl")
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    data, state = lines_of(path)
    last = whole[:-30].rfind(b"\n") + 1
    assert data == whole[:last]
    assert state.cut_bytes == len(whole) - 30 - last


def test_a_last_line_that_only_lacks_its_newline_is_whole(tmp_path):
    run = small_run()
    path = tmp_path / "run.jsonl"
    path.write_bytes(run.data()[:-1])
    data, state = lines_of(path)
    assert data == run.data()
    assert state.cut_bytes == 0


def test_a_truncated_gz_file_is_read_as_far_as_it_decompresses(tmp_path):
    run = small_run(200)
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(gzip.compress(run.data())[:-200])
    data, state = lines_of(path)
    assert run.data().startswith(data)
    assert len(data) > len(run.data()) // 2
    assert state.damage == "the compressed data is cut off"


def test_a_gz_file_of_several_members_is_read_through(tmp_path):
    run = small_run()
    data = run.data()
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(
        gzip.compress(data[:700]) + gzip.compress(data[700:900]) + gzip.compress(data[900:]) + b"\0" * 9
    )
    assert lines_of(path)[0] == data


def test_a_gz_file_with_a_damaged_middle_says_so(tmp_path):
    run = small_run(500)
    packed = bytearray(gzip.compress(run.data()))
    packed[len(packed) // 2 : len(packed) // 2 + 40] = b"\xff" * 40
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(packed)
    data, state = lines_of(path)
    assert data
    assert state.damage


def test_a_compressed_file_is_known_by_its_content_not_its_name(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_bytes(gzip.compress(small_run().data()))
    assert lines_of(path)[0] == small_run().data()
    assert is_run_file(path)


def test_lines_across_blocks_stay_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("instrument.runs.load.BLOCK_BYTES", 100)
    run = small_run()
    data, _ = lines_of(run.write(tmp_path / "run.jsonl"))
    assert data == run.data()


def test_an_overlong_line_is_skipped_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("instrument.runs.load.BLOCK_BYTES", 1000)
    monkeypatch.setattr("instrument.runs.load.MAX_LINE_BYTES", 2000)
    run = RunBuilder()
    run.span("a", 1)
    before = run.data()
    run.span("b", 1, attrs={"text": "x" * 5000})
    run.span("c", 1)
    data, state = lines_of(run.write(tmp_path / "run.jsonl"))
    assert data == before + as_line(run.lines[-1])
    assert state.skipped == 1


def test_progress_is_told_in_bytes_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr("instrument.runs.load.BLOCK_BYTES", 1000)
    path = small_run().write(tmp_path / "run.jsonl")
    told = []
    file = RunFile(path, told.append)
    told.clear()
    for _ in file.blocks():
        pass
    assert told == sorted(told)
    assert told[-1] == path.stat().st_size


# ------------------------------------------------------------------ what is no run file


def error_of(path):
    with pytest.raises(RunFileError) as caught:
        RunFile(path)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert "\n" not in text
    return text


def test_a_missing_file_is_said(tmp_path):
    assert "does not exist" in error_of(tmp_path / "no.jsonl")


def test_an_empty_file_is_said(tmp_path):
    (tmp_path / "run.jsonl").touch()
    assert "is empty" in error_of(tmp_path / "run.jsonl")


@pytest.mark.parametrize("data", [b"\x7fELF\x02\x01\0\0\0\n", b"\0" * 3_000_000, bytes(range(256)) * 9])
def test_a_binary_file_is_said(tmp_path, data):
    (tmp_path / "run.jsonl").write_bytes(data)
    assert "a binary file" in error_of(tmp_path / "run.jsonl")


@pytest.mark.parametrize(
    "data",
    [
        b"hello\n",
        b'{"type":"span"}\n',
        b"[1]\n",
        b'{"a": NaN}\n',
        b'{"traceEvents":[',
        b"\n",
        b"[" * 100_000 + b"\n",
        b'{"type":"run","schema":1' + b"9" * 5000 + b"}\n",
    ],
)
def test_a_foreign_file_is_said(tmp_path, data):
    (tmp_path / "run.jsonl").write_bytes(data)
    text = error_of(tmp_path / "run.jsonl")
    assert "not a run file" in text
    assert "instrument run" in text


def test_a_first_line_without_a_schema_is_said(tmp_path):
    (tmp_path / "run.jsonl").write_bytes(b'{"type":"run"}\n')
    assert "names no schema" in error_of(tmp_path / "run.jsonl")


def test_a_newer_schema_is_said_with_the_way_out(tmp_path):
    path = RunBuilder(schema=2).write(tmp_path / "run.jsonl")
    text = error_of(path)
    assert "schema 2" in text
    assert "pip install --upgrade" in text


def test_a_file_cut_within_its_first_line_is_said(tmp_path):
    (tmp_path / "run.jsonl").write_bytes(RunBuilder().data()[:40])
    assert "cut off within its first line" in error_of(tmp_path / "run.jsonl")


def test_something_that_only_looks_compressed_is_said(tmp_path):
    (tmp_path / "run.jsonl.gz").write_bytes(b"\x1f\x8b" + b"junk" * 10)
    assert "decompressed" in error_of(tmp_path / "run.jsonl.gz")


def test_a_folder_is_no_file(tmp_path):
    assert "is a folder" in error_of(tmp_path)


def test_a_file_that_may_not_be_read_is_said(tmp_path, monkeypatch):
    path = small_run().write(tmp_path / "run.jsonl")

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    assert "Permission denied" in error_of(path)


# ------------------------------------------------------------------ which files


def test_files_of_children_beside_the_run_belong_to_it(tmp_path):
    main = small_run().write(tmp_path / "run.jsonl")
    child = small_run(pid=200).write(tmp_path / "run.box-200-ab12.jsonl")
    small_run(pid=300).write(tmp_path / "other.box-300-ab12.jsonl")
    small_run(pid=300).write(tmp_path / "run-2.jsonl")
    assert find_files([main]) == ([main, child], [])


def test_children_of_another_run_are_left_out_and_said(tmp_path):
    main = small_run().write(tmp_path / "run.jsonl.gz")
    small_run(pid=200, run_id="older").write(tmp_path / "run.box-200-ab12.jsonl.gz")
    (tmp_path / "run.box-300-cd.jsonl.gz").touch()
    files, notes = find_files([main])
    assert files == [main]
    assert any("run.box-200-ab12.jsonl.gz is of another run (older)" in note for note in notes)
    assert any("is empty" in note for note in notes)


def test_a_folder_stands_for_the_run_in_it(tmp_path):
    main = small_run().write(tmp_path / "run.jsonl")
    child = small_run(pid=200).write(tmp_path / "run.box-200-ab12.jsonl")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "data.jsonl").write_text("{}\n")
    files, notes = find_files([tmp_path])
    assert files == [main, child]
    assert len(notes) == 1
    assert "data.jsonl" in notes[0]


def test_a_folder_with_two_runs_or_none_is_said(tmp_path):
    with pytest.raises(RunFileError, match="holds no run file"):
        find_files([tmp_path])
    small_run().write(tmp_path / "a.jsonl")
    small_run(run_id="r2").write(tmp_path / "b.jsonl")
    with pytest.raises(RunFileError, match=r"several runs \(a.jsonl, b.jsonl"):
        find_files([tmp_path])


def test_files_of_different_runs_are_not_mixed(tmp_path):
    one = small_run().write(tmp_path / "a.jsonl")
    two = small_run(run_id="r2").write(tmp_path / "b.jsonl")
    with pytest.raises(RunFileError, match="of run r2"):
        find_files([one, two])
    assert find_files([one, one])[0] == [one]


def test_an_overwritable_file_is_known_by_its_beginning(tmp_path):
    assert is_run_file(small_run().write(tmp_path / "a.jsonl"))
    assert not is_run_file(tmp_path / "no")
    (tmp_path / "b").write_text(json.dumps({"type": "span"}))
    assert not is_run_file(tmp_path / "b")
