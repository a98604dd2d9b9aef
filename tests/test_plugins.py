from importlib.metadata import EntryPoint

import pytest

from instrument import ConfigError, plugins
from instrument.plugins import OWN_EXPORTERS, make_exporters
from instrument.testing import InMemoryExporter
from instrument_exporters.json import JsonExporter


def test_our_exporters_are_found_by_name(tmp_path):
    (named,) = make_exporters((f"json:{tmp_path}/run.jsonl",))
    assert named.name == "json"
    assert isinstance(named.exporter, JsonExporter)
    assert named.exporter.target == str(tmp_path / "run.jsonl")
    assert not list(tmp_path.iterdir()), "nothing is written before the session opens it"


def test_every_name_in_our_table_can_be_made(tmp_path):
    assert len(make_exporters(tuple(f"{name}:{tmp_path}/{name}" for name in OWN_EXPORTERS))) == len(
        OWN_EXPORTERS
    )


@pytest.mark.parametrize("spec", ["jsn:run.jsonl", "JSON:run.jsonl", "jason"])
def test_an_unknown_exporter_is_an_error_with_the_nearest_name(spec):
    with pytest.raises(ConfigError, match=r"option 'export': unknown exporter .*; did you mean 'json'\?"):
        make_exporters((spec,))


def test_a_bare_path_is_told_how_exporters_are_written():
    with pytest.raises(ConfigError, match=r"NAME:TARGET, as in json:run\.jsonl"):
        make_exporters(("run.txt",))


def test_a_missing_path_is_an_error():
    with pytest.raises(ConfigError, match=r"'json:'.*path is missing"):
        make_exporters(("json:",))


def test_two_exporters_onto_one_file_are_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="two exporters write to"):
        make_exporters(("json:run.jsonl", f"json:{tmp_path}/run.jsonl"))
    with pytest.raises(ConfigError, match="two exporters write to"):
        make_exporters(("json:run.jsonl", "chrome:run.jsonl"))


def test_exporters_of_one_kind_get_names_of_their_own():
    names = [
        named.name for named in make_exporters(("json:a", "json:b", InMemoryExporter(), InMemoryExporter()))
    ]
    assert names == ["json", "json-2", "InMemoryExporter", "InMemoryExporter-2"]


def offer(monkeypatch, **points):
    found = [EntryPoint(name, value, plugins.GROUP) for name, value in points.items()]
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda *, group: found if group == plugins.GROUP else []
    )


def test_exporters_of_others_are_found_by_entry_point(monkeypatch):
    offer(monkeypatch, elsewhere="instrument_exporters.json:JsonExporter")
    (named,) = make_exporters(("elsewhere:out",))
    assert named.name == "elsewhere"
    assert isinstance(named.exporter, JsonExporter)


def test_an_unknown_name_is_told_about_the_others_too(monkeypatch):
    offer(monkeypatch, elsewhere="nowhere:at_all")
    with pytest.raises(ConfigError, match=r"did you mean 'elsewhere'\? \(known: .*elsewhere, json.*\)"):
        make_exporters(("elsewhre:out",))


def test_an_entry_point_that_does_not_load_is_a_clear_error(monkeypatch):
    offer(monkeypatch, broken="module_that_is_not_there:Exporter")
    with pytest.raises(ConfigError, match=r"'broken:x' cannot be made: ModuleNotFoundError"):
        make_exporters(("broken:x",))


def test_a_child_gets_an_unopened_exporter_for_what_was_a_string_only(tmp_path):
    text, given = make_exporters((f"json:{tmp_path}/run.jsonl", InMemoryExporter()))
    child = text.for_child()
    assert child is not None
    assert child.exporter is not text.exporter
    assert child.exporter.target == text.exporter.target
    assert child.for_child().exporter is not child.exporter
    assert given.for_child() is None


def test_an_entry_point_that_makes_no_exporter_is_a_clear_error(monkeypatch):
    offer(monkeypatch, odd="builtins:str")
    with pytest.raises(ConfigError, match="'odd:x' cannot be made: TypeError: str has not the methods"):
        make_exporters(("odd:x",))
