"""The HDF5 form keeps the contract, and stock h5py, netCDF4 and xarray read it."""

import os

import h5py
import pytest
from outcrop.capture.store import grids
from store_contract import StoreContract


class TestHdf5Store(StoreContract):
    suffix = ".h5"

    def damage(self, path, what):
        with h5py.File(path, "r") as file:
            array = file["train/layers/0/output/values"]
            place = array.id.get_chunk_info_by_coord((1, 0, 0, 0))
        if what == "lose":
            with h5py.File(path, "r+") as file:
                array = file["train/layers/0/output/values"]
                array.resize((1, *array.shape[1:]))
                array.resize((5, *array.shape[1:]))
            return
        if what == "cut":
            os.truncate(path, place.byte_offset + 3)
            return
        data = bytearray(path.read_bytes())
        data[place.byte_offset + 3] ^= 4
        path.write_bytes(data)

    def place_of(self, what):
        # libhdf5 opens no file that ends too early.
        return r"run\.h5.*truncated" if what == "cut" else super().place_of(what)

    def stock_values(self, path):
        with h5py.File(path, "r") as file:
            return file["train/layers/0/output/values"][()]


@pytest.fixture
def small_chunks(monkeypatch):
    """Seals every 4 records."""
    monkeypatch.setattr(grids, "LEAST_RECORDS", 4)
    monkeypatch.setattr(grids, "MOST_RECORDS", 4)


class TestHdf5StoreWithManySeals(TestHdf5Store):
    """The same promises where every few records are sealed."""

    @pytest.fixture(autouse=True)
    def _small(self, small_chunks):
        pass
