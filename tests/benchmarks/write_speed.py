"""Speed of the store's writer against two floors, paired.

    python tests/benchmarks/write_speed.py [--seconds 10]

A record has 20 arrays, 13 MB of nearly incompressible float32. The floors write the same bytes:
"checksums": crc32c and os.write of each array into a file of its own; "one file": os.write of
everything into one file. Quoted is the speed of the writer as a share of each floor's.
"""

import argparse
import os
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

import google_crc32c
import numpy as np
from outcrop.capture import format as names
from outcrop.capture.arrays import ArrayTable, stream_rows
from outcrop.capture.step import ArrayKey, Piece
from outcrop.capture.store import Record, create_store
from pairing import paired

SHAPES = [
    *[(64, 1, width) for width in (128, 512, 4096)] * 6,
    (64, 16, 256),
    (512, 1, 512),
]
RECORDS = 40


class Writer:
    """Writes records into a new store."""

    def __init__(self, folder: Path, compression: str) -> None:
        random = np.random.default_rng(0)
        self.path = folder / "run.zarr"
        self.compression = compression
        self.arrays = [random.standard_normal(shape, np.float32) for shape in SHAPES]
        layers = [f"layer{number}" for number in range(len(SHAPES))]
        self.table = ArrayTable(names.keys(layers), {})
        self.keys = [ArrayKey(layer, names.OUTPUT) for layer in layers]

    def store(self) -> None:
        store = create_store(self.path, compression=self.compression, fsync="never")
        table = ArrayTable({key.name: key.name for key in self.keys}, {})
        table.announce(self.keys)
        specs = stream_rows(len(self.keys), 64, 0)
        facts = {"batch_axis": 0, "feature_axis": -1, "spatial_shape": []}
        for key, array in zip(self.keys, self.arrays, strict=True):
            specs += table.place(key, Piece(array, "float32", facts), array.shape, 0)
        rows = [spec.path for spec in specs if spec.number is None]
        stream = {"dimension": names.STEP, "rows": rows, "arrays": table.entries}
        document = {
            "format": names.NAME,
            "version": names.version_text(),
            "created": "now",
            "streams": {names.TRAIN: stream},
        }
        store.declare(names.TRAIN, specs, document)
        blocks = dict(enumerate(self.arrays))
        for step in range(RECORDS):
            store.append(names.TRAIN, [Record({"step": step}, blocks)])
        store.close(document | {"closed": "now"})

    def clean(self) -> None:
        rmtree(self.path, ignore_errors=True)
        for file in self.path.parent.glob("*.raw"):
            file.unlink()

    def checksums(self) -> None:
        files = [
            os.open(self.path.with_name(f"{n}.raw"), os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
            for n in range(len(self.arrays))
        ]
        for _ in range(RECORDS):
            for file, array in zip(files, self.arrays, strict=True):
                google_crc32c.value(array.reshape(-1).view(np.uint8))
                os.write(file, array)
        for file in files:
            os.close(file)

    def one_file(self) -> None:
        file = os.open(self.path.with_name("all.raw"), os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        for _ in range(RECORDS):
            for array in self.arrays:
                os.write(file, array)
        os.close(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10)
    seconds = parser.parse_args().seconds
    for compression in ("none", "zstd"):
        with TemporaryDirectory() as folder:
            writer = Writer(Path(folder), compression)
            for name, floor in (("checksums", writer.checksums), ("one file", writer.one_file)):
                share = paired(floor, writer.store, seconds=seconds, after=writer.clean)
                print(f"{compression:5} share of {name:10} {share}", flush=True)


if __name__ == "__main__":
    main()
