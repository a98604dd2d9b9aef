"""The guide for contributors shows code that works."""

import re
from pathlib import Path

import instrument
from instrument.records import Exporter

GUIDE = Path(__file__).resolve().parent.parent / "CONTRIBUTING.md"


def test_the_exporter_that_the_guide_shows_writes_what_it_says(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)
    namespace: dict[str, type[Exporter]] = {}
    exec(code, namespace)
    exporter = namespace["LinesExporter"](str(tmp_path / "spans.txt"))  # type: ignore[call-arg]
    assert isinstance(exporter, Exporter)
    with instrument.session(export=exporter), instrument.region("outer"), instrument.region("inner"):
        pass
    lines = (tmp_path / "spans.txt").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["outer/inner", "outer"]
    assert all(int(line.split()[1]) > 0 for line in lines)


def test_every_goal_that_the_guide_names_is_in_the_makefile() -> None:
    makefile = (GUIDE.parent / "Makefile").read_text()
    named = set(re.findall(r"^make ([a-z -]+?)(?: +[A-Z#]|$)", GUIDE.read_text(), flags=re.MULTILINE))
    goals = {goal for words in named for goal in words.split()}
    assert goals >= {"test", "lint", "types", "sanitize", "bench", "wheel-check"}
    assert {goal for goal in goals if not re.search(rf"^{goal}:", makefile, flags=re.MULTILINE)} == set()
