"""Sites: one per name and kind, immortal, limited, warned about once."""

import sys

import pytest

from instrument.recorder import _core


def find(name, kind):
    found = [site for site in _core.sites() if (site.name, site.kind) == (name, kind)]
    assert len(found) == 1
    return found[0]


def test_a_region_has_one_site_and_the_place_of_its_first_caller():
    line = sys._getframe().f_lineno + 1
    _core.region("placed")
    _core.region("placed")
    site = find("placed", "region")
    assert (site.file, site.line, site.scope) == (__file__, line, "")
    assert repr(site) == f"<instrument region 'placed' at {__file__}:{line}>"


def test_kinds_have_sites_of_their_own(recording):
    _core.region("kinds")
    _core.step(1, "kinds")
    _core.mark("kinds")
    _core.kernel_site("kinds", "f.py", 3)
    assert {site.kind for site in _core.sites() if site.name == "kinds"} == {
        "region",
        "step",
        "mark",
        "kernel",
    }


def test_a_kernel_has_one_site_for_its_name_and_place():
    one = _core.kernel_site("placed kernel", "a.py", 1)
    assert _core.kernel_site("placed kernel", "a.py", 1) is one
    assert _core.kernel_site("placed kernel", "b.py", 1) is not one
    assert _core.kernel_site("placed kernel", "a.py", 2) is not one
    assert (one.file, one.line) == ("a.py", 1)


def test_indices_are_positions_in_the_table():
    sites = _core.sites()
    assert [site.index for site in sites] == list(range(len(sites)))
    assert _core.sites(len(sites) - 2) == sites[-2:]
    assert _core.sites(10_000) == []


def test_sites_cannot_be_made_or_changed():
    with pytest.raises(TypeError):
        _core.Site()
    with pytest.raises(AttributeError):
        _core.sites()[0].name = "other"


def test_wrong_arguments_of_a_kernel_site_are_type_errors():
    for arguments in (("name",), (1, "f", 2), ("name", None, 1), ("name", "f", "1")):
        with pytest.raises(TypeError):
            _core.kernel_site(*arguments)


OVERFLOW = """
import warnings, sys
from instrument.recorder import _core as c
c.start()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for index in range(2500):
        with c.region(f"name {index}", index=index): pass
        c.mark(f"mark {index}")
rows = [(c.path(row[3]), row) for chunk in c.take() for row in chunk.decode()]
print(len(c.sites()), len(caught))
print(str(caught[0].message))
over = [row for path, row in rows if path[0] == "(overflow)"]
print(len(rows), len(over), c.losses())
print({path[1] for path, row in rows if path[0] == "(overflow)"})
indices = [row[10]["index"] for path, row in rows if path[1] == "region"]
print(indices == list(range(2500)))
totals = {c.path(row[0])[:2]: row[1] for row in c.totals()}
print(totals[("(overflow)", "region")])
"""


def test_too_many_names_share_one_site_and_warn_once(run_python):
    sites, message, counts, kinds, indices, total = run_python(OVERFLOW).splitlines()
    assert sites == "2004 1"
    assert message.startswith("instrument: more than 2000 names; 'name 1000' (at <string>:8) and later ones")
    # 2,500 names and 2,500 marks of which 1,000 each have a site
    assert counts == "5000 3000 {'paths': 0, 'sites': 3000}".replace("'paths': 0, ", "")
    assert kinds in ("{'region', 'mark'}", "{'mark', 'region'}")
    assert indices == "True"
    assert total == "1500"


def test_too_many_names_do_not_raise_when_warnings_are_errors(run_python):
    out = run_python(
        "from instrument.recorder import _core as c\n"
        "c.start()\n"
        "for i in range(2100):\n"
        "    with c.region(f'n {i}'): pass\n"
        "print(sum(chunk.count for chunk in c.take()), c.losses())\n",
        "-Werror",
    )
    assert out == "2100 {'sites': 100}\n"


def test_overflowing_regions_do_not_grow_without_bound(run_python):
    out = run_python(
        "import warnings; warnings.simplefilter('ignore')\n"
        "import tracemalloc\n"
        "from instrument.recorder import _core as c\n"
        "c.start()\n"
        "def work(first):\n"
        "    for i in range(first, first + 5000):\n"
        "        with c.region(f'n {i}'): pass\n"
        "        with c.region(f'n {i}', a=i), c.step(i, f's {i}'): pass\n"
        "        c.take()\n"
        "work(0)\n"
        "tracemalloc.start()\n"
        "before = tracemalloc.get_traced_memory()[0]\n"
        "work(5000)\n"
        "grown = tracemalloc.get_traced_memory()[0] - before\n"
        "print(grown < 200_000 or grown)\n"
    )
    assert out == "True\n"
