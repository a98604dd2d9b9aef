"""Use the installed wheel as a stranger would: annotate, record, report, from a folder that is not ours."""

import subprocess
import sys
from pathlib import Path

import instrument


@instrument.kernel(flops=lambda n: 2 * n)
def work(n):
    return sum(range(n))


def main():
    package = Path(instrument.__file__).resolve()
    assert package.is_relative_to(Path(sys.prefix).resolve()), f"imported from {package}, not from the wheel"
    with instrument.session(export="json:run.jsonl"), instrument.region("loop"):
        for _ in range(10):
            work(100)
    for command in (
        [Path(sys.prefix) / "bin" / "instrument", "report", "run.jsonl"],
        [sys.executable, "-I", "-m", "instrument", "report", "run.jsonl"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "work" in done.stdout, done.stdout
    print(f"wheel: {instrument.__version__} works in an empty environment on Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
