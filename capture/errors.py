"""What can be wrong with a store.

Mistakes in arguments are `ValueError` or `TypeError`, paths that exist or do not are
`FileExistsError` and `FileNotFoundError`. The tree of our own errors::

    ValueError
    └── FormatError             a store that breaks the format
        ├── DamagedStore        a chunk, entry or index that is missing or fails its checksum
        └── MissingRecord       (also LookupError) a quantity that was not recorded
"""


class FormatError(ValueError):
    """A store that does not follow the format."""


class DamagedStore(FormatError):
    """A piece of a store that is missing, cut short or fails its checksum."""


class MissingRecord(FormatError, LookupError):
    """A layer, quantity or step that was not recorded."""
