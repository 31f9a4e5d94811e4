"""From torch to numpy."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .format import BFLOAT16
from .layout import Layout, Rows
from .step import Piece

_SUPPORTED = frozenset(
    {
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool),
        *(torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    }
)


def is_supported(tensor: Tensor) -> bool:
    """Whether the numbers of a tensor can be stored as they are."""
    return (
        tensor.dtype in _SUPPORTED
        and not tensor.is_nested
        and tensor.layout in {torch.strided, torch.sparse_coo}
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )


def piece_of(rows: Rows, layout: Layout) -> Piece:
    """Make a piece of the rows of a layer's tensor."""
    facts: dict[str, Any] = {
        "batch_axis": layout.batch,
        "feature_axis": layout.feature,
        "spatial_shape": list(rows.spatial),
    }
    positions = None if rows.positions is None else _to_numpy(rows.positions)
    return Piece(_to_numpy(rows.values), _dtype_name(rows.values), facts, positions)


def piece_of_parameter(tensor: Tensor) -> Piece:
    """Make a piece of a parameter's tensor: its entries, row-major."""
    facts = {"shape": list(tensor.shape)}
    return Piece(_to_numpy(tensor.reshape(-1)), _dtype_name(tensor), facts)


def _dtype_name(tensor: Tensor) -> str:
    return BFLOAT16 if tensor.dtype is torch.bfloat16 else str(tensor.dtype).removeprefix("torch.")


def _to_numpy(tensor: Tensor) -> NDArray[Any]:
    tensor = tensor.detach().cpu()
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.view(torch.uint16)
    if tensor.dtype is torch.bool:
        tensor = tensor.view(torch.uint8)
    array: NDArray[Any] = tensor.numpy()
    return np.asarray(array)
