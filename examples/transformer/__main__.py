"""Makes `python examples/transformer` and `python -m examples.transformer` both work."""

import os
import sys
from pathlib import Path

# Matrices this small gain nothing from a second thread, and lose a lot when another program wants its core.
# Read when numpy and torch are loaded, so before that; what the environment says already stays.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where the package `transformer` lies

from transformer.app import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
