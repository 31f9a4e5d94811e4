"""Names of dimensions in an HDF5 file, so that xarray, netCDF4 and h5netcdf see them."""

import h5py
import numpy as np
from outcrop.capture.format import ROW, STEP

DIMENSION_NAMES = "dimension_names"
"""Attribute of every array: netCDF's own way to name dimensions comes when a run is closed."""

_LABELLED = "DIMENSION_LIST"
INTERNAL = frozenset({DIMENSION_NAMES, _LABELLED, "REFERENCE_LIST", "CLASS", "NAME"})
"""Attributes by which dimensions are named."""

_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable. "
_SHARED = (STEP, ROW)
_CHUNK = 1024


def label_dimensions(stream: h5py.Group) -> None:
    """Give each dimension of a stream's arrays its scale, made beside them if there is none.

    The first dimension of all arrays is the stream's own.
    """
    arrays: list[h5py.Dataset] = []
    stream.visititems(
        lambda _, node: arrays.append(node) if DIMENSION_NAMES in node.attrs else None
    )
    for array in arrays:
        label_array(stream, array)


def dimension_names(array: h5py.Dataset) -> tuple[str, ...]:
    """Give the names of an array's dimensions."""
    text: bytes | str = array.attrs[DIMENSION_NAMES]
    return tuple((text.decode() if isinstance(text, bytes) else str(text)).split())


def label_array(stream: h5py.Group, array: h5py.Dataset) -> None:
    """Give each dimension of one array its scale, as long as the array at least."""
    labelled = _LABELLED in array.attrs
    for axis, dim in enumerate(dimension_names(array)):
        home = stream if dim in _SHARED else array.parent
        scale = _scale(home, dim, array.shape[axis])
        if scale != array and not labelled:
            array.dims[axis].attach_scale(scale)


def _scale(home: h5py.Group, dim: str, size: int) -> h5py.Dataset:
    if dim not in home:
        home.create_dataset(
            dim,
            shape=(size,),
            maxshape=(None,),
            chunks=(_CHUNK,),
            dtype=np.dtype(">f4"),
            track_times=False,
        )
        home[dim].make_scale(f"{_NO_VARIABLE}{size:10d}")
    scale = home[dim]
    if not scale.is_scale:
        scale.make_scale(dim)
    if scale.shape[0] < size:
        scale.resize((size,))
    return scale
