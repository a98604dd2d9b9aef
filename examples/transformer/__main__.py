"""Makes `python examples/transformer` and `python -m examples.transformer` both work."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where the package `transformer` lies

from transformer.app import main

if __name__ == "__main__":
    sys.exit(main())
