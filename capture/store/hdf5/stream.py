"""A stream of an HDF5 store being written: records, their checksums, seals."""

from collections.abc import Callable
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from outcrop.capture.format import ROWS, VALUES
from outcrop.capture.store.chunks import ChunkCodec
from outcrop.capture.store.commit_log import CommitLog, Entry
from outcrop.capture.store.model import ArraySpec, Record
from outcrop.capture.store.row_values import packed

from .arrays import Growth, Hdf5Block, Hdf5Rows, Stored, grow_rows, write_rows


class Hdf5Stream:
    """One stream.

    Parameters
    ----------
    tables : h5py.Group
        The group of its tables of checksums.
    log : CommitLog
        Its commit log.
    records : int
        How many records are sealed together.
    flush : callable
        Hands what was written to the operating system, in an order that readers can follow.
    """

    def __init__(
        self, tables: h5py.Group, log: CommitLog, *, records: int, flush: Callable[[], None]
    ) -> None:
        self._values_table, self._rows_table = tables[VALUES], tables[ROWS]
        self.log = log
        self.records = records
        self.length = 0
        self.is_due = False
        self._sealed = 0
        self._flush = flush
        self._blocks: dict[int, Hdf5Block] = {}
        self._rows: dict[str, Hdf5Rows] = {}
        self._checksums: list[dict[int, int]] = []
        self._unfinished: set[int] = set()

    def open(self, dataset: h5py.Dataset, spec: ArraySpec, codec: ChunkCodec) -> None:
        """Take in an array that was made."""
        if spec.number is None:
            self._rows[spec.path] = Hdf5Rows(dataset, self.length - self._sealed)
        else:
            self._blocks[spec.number] = Hdf5Block(dataset, codec)

    def commit(self, records: list[Record]) -> None:
        """Commit some records, not more than are left to the next seal."""
        if "grown" in self._grow(records):
            # The new sizes are in the file before the log speaks of values that need them.
            self._flush()
        written = [self._write(self.length + n, record) for n, record in enumerate(records)]
        rows = [[record.rows.get(path) for path in self._rows] for record in records]
        self.log.append(
            [
                Entry(self.length + n, _block_items(stored), list(map(packed, values)))
                for n, (stored, values) in enumerate(zip(written, rows, strict=True))
            ]
        )
        for stored, values in zip(written, rows, strict=True):
            for array, value in zip(self._rows.values(), values, strict=True):
                array.commit(value)
            self._checksums.append({number: one.checksum for number, one in stored.items()})
        self.length += len(records)
        self.is_due = self.length - self._sealed == self.records

    def seal(self, flush: Callable[[], None]) -> None:
        """Write the rows and checksums of the records since the last seal, then a new log.

        Parameters
        ----------
        flush : callable
            Makes what was written as durable as it is to be.
        """
        start = self._sealed
        if start < self.length:
            found = [array.write(start) for array in self._rows.values()]
            write_checksums(self._values_table, start, self._checksums, len(self._blocks))
            flush()
            # Only now does a reader take these rows from the file, no longer from the log.
            write_seal(self._rows_table, start // self.records, found)
            flush()
            self._sealed, self._checksums = self.length, []
            for array in self._rows.values():
                array.forget()
        self.log.restart()
        self.is_due = False

    def _grow(self, records: list[Record]) -> set[Growth]:
        grown: set[Growth] = set()
        for record in records:
            for number, values in record.blocks.items():
                grown.add(self._blocks[number].grow(values.shape))
            for path, value in record.rows.items():
                if value is not None:
                    grown.add(self._rows[path].grow(np.shape(value)))
        return grown

    def _write(self, record: int, content: Record) -> dict[int, Stored]:
        for number in self._unfinished - content.blocks.keys():
            self._blocks[number].blank(record)
        self._unfinished = set(content.blocks)
        stored = {
            number: self._blocks[number].write(record, values)
            for number, values in content.blocks.items()
        }
        self._unfinished = set()
        return stored


def _block_items(stored: dict[int, Stored]) -> list[list[Any]]:
    return [one.to_json(number) for number, one in stored.items()]


def write_checksums(
    table: h5py.Dataset, start: int, checksums: list[dict[int, int]], n_arrays: int
) -> None:
    """Write the checksums of the block arrays, by number, of some records."""
    width = max([n_arrays, *(max(found, default=-1) + 1 for found in checksums)])
    grow_rows(table, (width,))
    write_rows(table, start, [_vector(found, width) for found in checksums])


def write_seal(table: h5py.Dataset, seal: int, checksums: list[int]) -> None:
    """Write the checksums of the chunks of rows that are sealed together."""
    grow_rows(table, (len(checksums),))
    write_rows(table, seal, [checksums])


def _vector(found: dict[int, int], width: int) -> NDArray[np.uint32]:
    vector = np.zeros(width, np.uint32)
    vector[list(found)] = list(found.values())
    return vector
