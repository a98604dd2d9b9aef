import dataclasses
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from instrument import ConfigError, sessions
from instrument.config import OPTIONS, Options, as_markdown, nearest, resolve
from instrument.plugins import OWN_EXPORTERS, make_exporters
from instrument.sessions import StartOptions
from instrument.testing import InMemoryExporter


def resolved(arguments=None, **environ):
    return resolve(arguments or {}, environ=environ, files=False)


def test_without_any_source_the_defaults_hold():
    options = resolved()
    assert {option.name: getattr(options, option.name) for option in OPTIONS} == {
        option.name: option.default for option in OPTIONS
    }
    assert options.sources == {}


def test_an_argument_wins_over_the_environment_and_that_over_the_file(tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        "[tool.instrument]\nbuffer_mib = 8\ninterval = 1.5\nrun_id = 'f'\noverflow = 'oldest'\n"
    )
    options = resolve(
        {"buffer_mib": 32, "interval": None},
        environ={"INSTRUMENT_BUFFER_MIB": "16", "INSTRUMENT_INTERVAL": "2.5", "INSTRUMENT_RUN_ID": ""},
        folder=tmp_path,
    )
    assert (options.buffer_mib, options.interval, options.run_id) == (32.0, 2.5, "f")
    assert options.overflow == "oldest"
    assert options.sources == {
        "buffer_mib": "argument",
        "interval": "INSTRUMENT_INTERVAL",
        "run_id": str(tmp_path / "pyproject.toml"),
        "overflow": str(tmp_path / "pyproject.toml"),
    }


def test_a_named_file_is_read_instead_with_its_options_at_the_top_or_in_a_table(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.instrument]\nrank = 1\n")
    (tmp_path / "flat.toml").write_text("rank = 2\n")
    (tmp_path / "deep.toml").write_text("[tool.instrument]\nrank = 3\n")
    for name, rank in (("flat.toml", 2), ("deep.toml", 3)):
        assert resolve({}, environ={"INSTRUMENT_CONFIG": name}, folder=tmp_path).rank == rank


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("rank = ", "cannot read"),
        ("[tool.instrument]\nrnak = 1\n", "unknown option 'rnak'"),
        ("[tool.instrument]\nrank = -1\n", "'rank'"),
        ("[tool]\ninstrument = 3\n", "not a table"),
    ],
)
def test_a_bad_file_is_named(tmp_path, content, said):
    (tmp_path / "pyproject.toml").write_text(content)
    with pytest.raises(ConfigError, match=said) as caught:
        resolve({}, environ={}, folder=tmp_path)
    assert "pyproject.toml" in str(caught.value)


def test_a_named_file_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.toml"):
        resolve({}, environ={"INSTRUMENT_CONFIG": "nowhere.toml"}, folder=tmp_path)


def test_a_pyproject_of_others_sets_nothing(tmp_path):
    (tmp_path / "pyproject.toml").write_text("rank = 3\n[tool.ruff]\nline-length = 100\n")
    assert resolve({}, environ={}, folder=tmp_path).rank is None


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("export", "json:a.jsonl, json:b.jsonl,", ("json:a.jsonl", "json:b.jsonl")),
        ("labels", "model=small, note=a=b", {"model": "small", "note": "a=b"}),
        ("rank", "3", 3),
        ("run_id", "night-7.b_2", "night-7.b_2"),
        ("interval", "0.25", 0.25),
        ("mode", "develop", "develop"),
        ("overflow", "oldest", "oldest"),
        ("buffer_mib", "2", 2.0),
    ],
)
def test_the_environment_says_the_same_as_arguments(name, text, value):
    assert getattr(resolve({}, environ={f"INSTRUMENT_{name.upper()}": text}, files=False), name) == value
    assert getattr(resolved({name: value}), name) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rank", -1),
        ("rank", True),
        ("rank", 1.5),
        ("rank", "first"),
        ("rank", float("inf")),
        ("run_id", "a b"),
        ("run_id", ""),
        ("run_id", "x" * 65),
        ("run_id", 5),
        ("interval", 0),
        ("interval", "soon"),
        ("interval", float("nan")),
        ("buffer_mib", 1),
        ("buffer_mib", [64]),
        ("buffer_mib", True),
        ("labels", "novalue"),
        ("labels", 3),
        ("labels", {"a": object()}),
        ("labels", {1: "a"}),
        ("export", 3),
        ("export", [None]),
        ("overflow", "newst"),
        ("mode", None.__class__),
    ],
)
def test_a_value_that_does_not_parse_is_an_error_that_names_option_and_value(name, value):
    with pytest.raises(ConfigError) as caught:
        resolved({name: value})
    assert f"option {name!r}" in str(caught.value)


def test_an_error_from_the_environment_names_the_variable():
    with pytest.raises(ConfigError, match=r"'rank'.*'x'.*INSTRUMENT_RANK"):
        resolved(INSTRUMENT_RANK="x")


@pytest.mark.parametrize(
    ("arguments", "near"),
    [({"mode": "develp"}, "develop"), ({"overflow": "Oldes"}, "oldest"), ({"intervall": 1}, "interval")],
)
def test_the_nearest_valid_word_is_offered(arguments, near):
    with pytest.raises(ConfigError, match=f"did you mean '{near}'"):
        resolved(arguments)


def test_a_misspelt_variable_is_noticed_and_other_peoples_are_not():
    with pytest.raises(ConfigError, match="INSTRUMENT_BUFER_MIB; did you mean INSTRUMENT_BUFFER_MIB"):
        resolve({}, environ={"INSTRUMENT_BUFER_MIB": "9"}, files=False)
    others = {
        "INSTRUMENT_BUILD_SANITIZE": "1",
        "INSTRUMENT_SERIAL": "7",
        "INSTRUMENTS": "",
        "INSTRUMENT_": "",
    }
    assert resolve({}, environ=others | {"INSTRUMENT_DISABLED": "0"}, files=False).buffer_mib == 64


def test_nothing_is_offered_for_a_word_like_no_other():
    assert nearest("zzz", ["develop"]) is None
    with pytest.raises(ConfigError, match=r"unknown option 'zzz' \(known: export,"):
        resolved({"zzz": 1})


def test_production_mode_says_that_it_comes_later():
    with pytest.raises(ConfigError, match="sampling"):
        resolved({"mode": "production"})


def test_any_collector_is_an_error_that_says_there_are_none_yet():
    with pytest.raises(ConfigError, match=r"'nvtx'.*no collectors yet"):
        resolved({"collect": "nvtx"})
    assert resolved({"collect": []}).collect == ()


def test_exporters_may_be_objects_strings_or_both():
    exporter = InMemoryExporter()
    assert resolved({"export": exporter}).export == (exporter,)
    assert resolved({"export": [exporter, "json:x"]}).export == (exporter, "json:x")
    assert resolved({"export": [exporter, "json:x"]}).as_dict()["export"] == ["InMemoryExporter", "json:x"]


def test_the_table_the_dataclass_and_the_signatures_have_the_same_names():
    names = [option.name for option in OPTIONS]
    assert [field.name for field in dataclasses.fields(Options) if field.name != "sources"] == names
    assert [name for name in inspect.signature(sessions.start).parameters if name != "unknown"] == names
    assert list(StartOptions.__annotations__) == names


def test_each_example_of_the_table_parses():
    for option in OPTIONS:
        if option.example:
            option.parse(option, option.example)


def test_the_committed_page_is_the_one_that_the_table_yields():
    page = Path(__file__).parent.parent / "docs" / "configuration.md"
    assert page.read_text() == as_markdown(), "python -m instrument.config > docs/configuration.md"


def test_the_module_prints_the_page():
    made = subprocess.run(
        [sys.executable, "-m", "instrument.config"], capture_output=True, text=True, check=True
    )
    assert made.stdout == as_markdown()


WORDS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["json:a", "1", "0.5", "nan", "1e999", "-0", "a=b,c=d", "=,", ",,", "develop", "64", "９"]
    ),
)
VALUES = st.one_of(
    *(WORDS, st.none(), st.booleans(), st.integers(), st.floats(), st.binary(max_size=3)),
    *(st.lists(WORDS, max_size=3), st.dictionaries(WORDS, WORDS, max_size=3), st.just(10**400)),
)
NAMES = st.one_of(st.sampled_from([option.name for option in OPTIONS]), st.text(max_size=8))


def resolves_or_says_why(arguments, **where):
    """The options, or None if they are refused; the options are what a second reading yields again."""
    try:
        options = resolve(arguments, **where)
    except ConfigError:
        return None
    plain = {option.name: getattr(options, option.name) for option in OPTIONS}
    again = resolve(
        {name: value for name, value in plain.items() if value is not None}, environ={}, files=False
    )
    assert {option.name: getattr(again, option.name) for option in OPTIONS} == plain
    json.dumps(options.as_dict(), allow_nan=True)
    return options


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_any_arguments_are_options_or_a_config_error(arguments):
    resolves_or_says_why(arguments, environ={}, files=False)


@given(st.dictionaries(st.sampled_from([option.environment for option in OPTIONS]), WORDS, max_size=4))
def test_any_environment_gives_options_or_a_config_error(environ):
    resolves_or_says_why({}, environ=environ, files=False)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(
        st.binary(max_size=60),
        st.tuples(NAMES, st.text(max_size=20)).map(
            lambda pair: f"{pair[0]} = {pair[1]}".encode(errors="replace")
        ),
        st.tuples(NAMES, VALUES).map(lambda pair: f"{pair[0]} = {json.dumps(pair[1], default=str)}".encode()),
    )
)
def test_any_file_gives_options_or_a_config_error(tmp_path, content):
    (tmp_path / "o.toml").write_bytes(content)
    resolves_or_says_why({}, environ={"INSTRUMENT_CONFIG": "o.toml"}, folder=tmp_path)


@given(
    st.one_of(
        st.text(max_size=12),
        st.tuples(st.sampled_from([*OWN_EXPORTERS, ""]), st.text(max_size=12)).map(":".join),
    )
)
def test_any_target_makes_an_exporter_or_a_config_error_and_touches_nothing(spec):
    try:
        (named,) = make_exporters((spec,))
    except ConfigError:
        return
    assert named.name == spec.partition(":")[0]
