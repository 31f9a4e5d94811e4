"""Writes the golden store of the present format, and what must be read from it.

    python tests/golden/make.py

Run it when a version of the format is new; a store that was released stays as it is.
"""

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import zarr

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from outcrop.capture.format import version_text  # noqa: E402
from runs import record_run  # noqa: E402 - lies beside the tests


def main() -> None:
    """Record a small run; keep it zipped, with its arrays as stock zarr reads them."""
    folder = HERE / version_text()
    folder.mkdir(exist_ok=True)
    with TemporaryDirectory() as work:
        path = Path(work) / "run.zarr"
        record_run(path, kind="cnn", steps=3, n=4, examples=2, positions=5, include=("versions",))
        arrays = {
            name: node[:]
            for name, node in zarr.open_group(path, mode="r").members(max_depth=None)
            if isinstance(node, zarr.Array) and name != "metadata"
        }
        np.savez_compressed(folder / "expected.npz", **arrays)
        shutil.make_archive(str(path), "zip", path)
        shutil.copy(f"{path}.zip", folder / "run.zarr.zip")


if __name__ == "__main__":
    main()
