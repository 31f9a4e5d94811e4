"""The format, spelled once: version, statuses, names, keys and paths.

Nothing else in the project writes the name of a group, an array or a dimension.
`docs/format.md` is the same in prose.
"""

import hashlib
import re
from collections.abc import Iterable
from enum import IntEnum

NAME = "outcrop"
VERSION = (0, 1)

# Streams and what their first dimension counts.
TRAIN = "train"
SCALARS = "scalars"
STEP = "step"
ROW = "row"

# The other dimensions.
ARRAY = "array"
EXAMPLE = "example"
POSITION = "position"
FEATURE = "feature"
ENTRY = "entry"
GROUP = "group"
BYTE = "byte"
SEAL = "seal"
COLUMN = "column"

# Groups and arrays of the tree.
METADATA = "metadata"
CHECKSUMS = "checksums"
ROWS = "rows"
RECORDS = "records"
EXAMPLES = "examples"
LAYERS = "layers"
PARAMETERS = "parameters"
VALUES = "values"
STATUS = "status"
N_EXAMPLES = "n_examples"
N_POSITIONS = "n_positions"
POSITION_INDEX = "position_index"
N_POSITIONS_TOTAL = "n_positions_total"
INDEX = "index"
MICROBATCH = "microbatch"
NAME_NUMBER = "name"
SCALAR_VALUE = "value"

# Quantities.
INPUT = "input"
OUTPUT = "output"
BACKPROP = "backprop"
GRADIENT = "gradient"
LAYER_QUANTITIES = (INPUT, OUTPUT, BACKPROP)
PARAMETER_QUANTITIES = (GRADIENT,)
QUANTITIES = LAYER_QUANTITIES + PARAMETER_QUANTITIES

LAYER_DIMS = (STEP, EXAMPLE, POSITION, FEATURE)
PARAMETER_DIMS = (STEP, ENTRY)

BFLOAT16 = "bfloat16"
"""Stored as uint16 (numpy has no such type), read back as float32."""


class Status(IntEnum):
    """What became of one quantity at one step."""

    ABSENT = 0
    RECORDED = 1
    RECORDED_BASE = 2
    NO_GRAD = 3
    UNUSED = 4
    NEVER_CALLED = 5
    FROZEN = 6
    UNSUPPORTED = 7
    NO_EXAMPLE_AXIS = 8
    OVER_BUDGET = 9
    ERROR = 10


MEANINGS = {
    Status.ABSENT: "the array was not known yet",
    Status.RECORDED: "recorded",
    Status.RECORDED_BASE: "recorded through the tensor that the output is a view of",
    Status.NO_GRAD: "the output needs no gradient",
    Status.UNUSED: "no gradient arrived: the output is not in the loss",
    Status.NEVER_CALLED: "the layer did not run",
    Status.FROZEN: "the parameter needs no gradient",
    Status.UNSUPPORTED: "a tensor of a kind that is not recorded",
    Status.NO_EXAMPLE_AXIS: "recorded whole, as one example: no axis counts the examples",
    Status.OVER_BUDGET: "left out: the store had reached its largest size",
    Status.ERROR: "the recorder failed at this step",
}
HAS_VALUES = frozenset({Status.RECORDED, Status.RECORDED_BASE, Status.NO_EXAMPLE_AXIS})
"""The statuses for which a chunk is expected; for all others none is."""


def flag_attributes(flags: type[IntEnum]) -> dict[str, object]:
    """CF attributes of an array of flags.

    >>> flag_attributes(Status)["flag_meanings"].split()[:3]
    ['absent', 'recorded', 'recorded_base']
    """
    return {
        "flag_values": [int(flag) for flag in flags],
        "flag_meanings": " ".join(flag.name.lower() for flag in flags),
    }


# Keys. Percent-encoding keeps a key readable and lets the name be guessed; the metadata
# document holds the name itself. Everything outside this set is encoded, "~" included:
# it marks the digest of keys that would collide or be too long.
_UNSAFE = re.compile(r"[^A-Za-z0-9_.+\-=()\[\],]")
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d|zarr\.json)(\.|$)|__|\.")
_LONGEST = 200
_ROOT_KEY = "~root"


def keys(names: Iterable[str]) -> dict[str, str]:
    """Give each name a key that any file system and both stores accept.

    Keys hold ASCII letters, digits and a few safe marks, are at most 200 bytes long and
    differ even where upper and lower case do not.

    Parameters
    ----------
    names : iterable of str
        Names of layers or parameters, each once.

    Returns
    -------
    dict of str to str
        Key of each name, in the order of the names.

    Examples
    --------
    >>> keys(["block.0/conv", "Norm", "norm", ""])
    {'block.0/conv': 'block.0%2Fconv', 'Norm': 'Norm', 'norm': 'norm~3b941be2', '': '~root'}
    """
    taken: set[str] = set()
    result: dict[str, str] = {}
    for name in names:
        key = _plain_key(name)
        if key.lower() in taken or len(key) > _LONGEST:
            key = f"{key[: _LONGEST - 9]}~{_digest(name)}"
        taken.add(key.lower())
        result[name] = key
    return result


def _plain_key(name: str) -> str:
    if not name:
        return _ROOT_KEY
    key = _UNSAFE.sub(_percent, name)
    if _RESERVED.match(key):
        key = _percent_byte(ord(key[0])) + key[1:]
    # Windows drops a dot at the end of a name.
    return key[:-1] + _percent_byte(ord(".")) if key.endswith(".") else key


def _percent(match: re.Match[str]) -> str:
    return "".join(map(_percent_byte, match[0].encode()))


def _percent_byte(byte: int) -> str:
    return f"%{byte:02X}"


def _digest(name: str) -> str:
    return hashlib.blake2b(name.encode(), digest_size=4).hexdigest()


# Paths, all relative to the stream.
def layer_group(key: str, quantity: str, *, path: str = "", call: int = 0) -> str:
    """Group of one quantity of one call of a layer.

    >>> layer_group("lstm", "output", path="1.0", call=2)
    'layers/lstm/output.1.0@2'
    """
    suffix = f".{path}" if path else ""
    return f"{LAYERS}/{key}/{quantity}{suffix}" + (f"@{call}" if call else "")


def parameter_group(key: str, quantity: str) -> str:
    """Group of one quantity of a parameter.

    >>> parameter_group("fc1.weight", "gradient")
    'parameters/fc1.weight/gradient'
    """
    return f"{PARAMETERS}/{key}/{quantity}"


def version_text() -> str:
    """Version of the format as it stands in a store.

    >>> version_text()
    '0.1'
    """
    return ".".join(map(str, VERSION))


def is_readable(version: str) -> bool:
    """Whether a reader of `VERSION` reads a store of `version`: same major, minor not newer.

    >>> is_readable("0.1"), is_readable("0.2"), is_readable("1.0"), is_readable("one")
    (True, False, False, False)
    """
    major, _, minor = version.partition(".")
    if not (major.isdigit() and minor.isdigit()):
        return False
    return int(major) == VERSION[0] and int(minor) <= VERSION[1]
