"""Helpers of the tests lie beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

# Run by hand: they time things.
collect_ignore_glob = ["benchmarks/*"]
