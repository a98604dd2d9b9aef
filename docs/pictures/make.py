"""Draws report.svg beside this file: what `instrument report` shows of the example, in its own colours.

    python docs/pictures/make.py

The example runs anew, so the numbers are this machine's; its name is left out. So are the links to fonts that
rich puts into its pictures: ours loads nothing.
"""

import inspect
import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

from instrument.runs.report import Report, report

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
RUN_FILE = "runs/demo.jsonl"  # as `make demo` writes it, and git ignores it
WIDTH = 124
ROWS = 24


def coloured(shown: Report) -> Text:
    """The report as a terminal of this width gets it."""
    os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    out = StringIO()
    shown.print(out, width=WIDTH, colour=True)
    return Text.from_ansi(out.getvalue())


def picture(text: Text, title: str) -> str:
    """`text` as an SVG that needs nothing from elsewhere, and is the same for the same text."""
    console = Console(record=True, width=WIDTH, file=StringIO())
    console.print(text, no_wrap=True, crop=True)
    code = inspect.signature(console.export_svg).parameters["code_format"].default
    code = re.sub(r"@font-face \{\{.*?\}\}", "", code, flags=re.DOTALL)
    code = code.replace("Fira Code", "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono")
    svg = console.export_svg(title=title, code_format=code, unique_id="report")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def main() -> None:
    """Record, render, write."""
    os.chdir(REPOSITORY)  # the report names program and run file as the user does who stands here
    Path(RUN_FILE).parent.mkdir(exist_ok=True)
    command = [sys.executable, "examples/transformer", "--export", f"json:{RUN_FILE}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    shown = report(RUN_FILE, top=ROWS)
    for process in shown.run.processes:
        process.header["host"] = "localhost"
    title = f"instrument report {RUN_FILE} --top {ROWS}"
    (HERE / "report.svg").write_text(picture(coloured(shown), title), encoding="utf-8")


if __name__ == "__main__":
    main()
