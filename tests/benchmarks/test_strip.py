import ast
import textwrap

from kit.strip import Stripper

SOURCE = """
import instrument

@instrument.kernel(flops=1)
@other
def work(x):
    with instrument.region("outer", size=x), lock:
        with instrument.step(x) as step:
            instrument.mark("here", value=expensive())
            x += 1
            step.set(loss=x)
        instrument.observe("seconds", step.seconds)
    return x
"""


def test_annotations_go_and_the_program_stays() -> None:
    stripper = Stripper()
    tree = ast.fix_missing_locations(stripper.visit(ast.parse(SOURCE)))
    expected = """
    import instrument

    @other
    def work(x):
        with lock:
            step = _instrument_nothing
            pass
            x += 1
            pass
            pass
        return x
    """
    assert ast.unparse(tree) == ast.unparse(ast.parse(textwrap.dedent(expected)))
    assert stripper.removed == 6


def test_a_set_of_something_else_stays() -> None:
    source = "event.set()\nwith instrument.region('x') as r:\n    flag.set()"
    tree = Stripper().visit(ast.parse(source))
    assert ast.unparse(ast.fix_missing_locations(tree)) == "event.set()\nr = _instrument_nothing\nflag.set()"
