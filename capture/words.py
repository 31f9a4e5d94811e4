"""Names: joined ones, and misspelt ones."""

from collections.abc import Sequence
from difflib import get_close_matches


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """Suggest the nearest known words.

    >>> did_you_mean("conv", ["conv1", "conv2", "fc"])
    " (did you mean 'conv2' or 'conv1'?)"
    >>> did_you_mean("dropout", ["fc"])
    ''
    """
    close = get_close_matches(word, known, n=2)
    return f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""


def joined(*names: str) -> str:
    """Join the parts of a dotted name, without those that are empty.

    >>> joined("generator", "fc1"), joined("", "fc1"), joined("generator", "")
    ('generator.fc1', 'fc1', 'generator')
    """
    return ".".join(filter(None, names))
