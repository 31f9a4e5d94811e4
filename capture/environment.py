"""Where a run comes from: code, command, versions."""

import platform
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

_PACKAGES = ("outcrop", "torch", "numpy", "zarr", "h5py")


def provenance(facts: frozenset[str] | None = None) -> dict[str, Any]:
    """Describe the running process.

    Parameters
    ----------
    facts : set of str or None
        Which of `FACTS` to give; None for all.

    Returns
    -------
    dict
        The facts by name.

    Raises
    ------
    ValueError
        If a fact is not known.
    """
    unknown = (facts or frozenset()) - FACTS.keys()
    if unknown:
        raise ValueError(f"provenance has the facts {', '.join(FACTS)}; got {sorted(unknown)}")
    return {name: fact() for name, fact in FACTS.items() if facts is None or name in facts}


def _git() -> dict[str, Any] | None:
    commit = _output_of("git", "rev-parse", "HEAD")
    if commit is None:
        return None
    return {"commit": commit, "modified": bool(_output_of("git", "status", "--porcelain"))}


def _output_of(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


FACTS: dict[str, Callable[[], Any]] = {
    "git": _git,
    "command": lambda: list(sys.argv),
    "versions": _versions,
    "platform": platform.platform,
}
"""Each fact and how it is found."""
