import os
import shutil
import subprocess
import sys
import types

import pytest

from instrument.config import Options
from instrument.environment import describe_process


def git(folder, *words):
    names = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = {**os.environ, **names, "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(["git", *words], cwd=folder, env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    if not shutil.which("git"):
        pytest.skip("git is not installed")
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "commit", "-q", "--allow-empty", "-m", "one")
    return folder


def commit_seen_from(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return describe_process(Options(), "r").git_commit


def test_the_commit_is_found_from_a_folder_below(repository, monkeypatch):
    (repository / "a" / "b").mkdir(parents=True)
    assert commit_seen_from(repository / "a" / "b", monkeypatch) == git(repository, "rev-parse", "HEAD")


def test_the_commit_is_found_when_it_is_packed_or_detached(repository, monkeypatch):
    commit = git(repository, "rev-parse", "HEAD")
    git(repository, "pack-refs", "--all")
    assert commit_seen_from(repository, monkeypatch) == commit
    git(repository, "checkout", "-q", "--detach")
    assert commit_seen_from(repository, monkeypatch) == commit


def test_the_commit_is_found_in_a_worktree(repository, monkeypatch, tmp_path):
    git(repository, "worktree", "add", "-q", "-b", "other", str(tmp_path / "tree"))
    git(tmp_path / "tree", "commit", "-q", "--allow-empty", "-m", "two")
    found = commit_seen_from(tmp_path / "tree", monkeypatch)
    assert found == git(tmp_path / "tree", "rev-parse", "HEAD") != git(repository, "rev-parse", "HEAD")


def test_without_a_commit_there_is_none(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    assert commit_seen_from(tmp_path, monkeypatch) is None
    (tmp_path / ".git" / "HEAD").write_bytes(b"\xff\xfe")
    assert commit_seen_from(tmp_path, monkeypatch) is None


def test_a_working_folder_that_was_removed_is_no_trouble(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert describe_process(Options(), "r").pid == os.getpid()


def test_versions_of_what_the_program_has_loaded_are_noted(monkeypatch):
    fake = types.ModuleType("triton")
    fake.__version__ = "9.9"
    monkeypatch.setitem(sys.modules, "triton", fake)
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    versions = describe_process(Options(), "r").versions
    assert versions["triton"] == "9.9"
    assert "jax" not in versions
