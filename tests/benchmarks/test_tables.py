from pathlib import Path

import tables

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "overhead.md"


def test_a_table_replaces_what_stood_between_its_marks() -> None:
    text = "before\n<!-- table bars -->\nold\n<!-- end -->\nafter\n"
    bar = {
        "what": "x / y",
        "relation": "<=",
        "bar": 1.1,
        "stretch": 0.85,
        "value": 1.234,
        "verdict": "MISSED",
    }
    filled = tables.fill(text, {"overhead": {"3.12": {"bars": [bar]}}})
    assert "old" not in filled
    assert "| x / y | <= 1.1 | 0.85 | 1.23 **missed** |" in filled
    assert filled.startswith("before\n<!-- table bars -->\n")
    assert filled.endswith("<!-- end -->\nafter\n")


def test_filling_again_changes_nothing() -> None:
    once = tables.fill(DOCUMENT.read_text(), {})
    assert tables.fill(once, {}) == once


def test_every_table_of_the_document_exists_and_is_used() -> None:
    import re

    assert set(re.findall(r"<!-- table ([\w-]+) -->", DOCUMENT.read_text())) == set(tables.TABLES)
