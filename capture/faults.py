"""What a fault in the recorder does: it never stops the training, unless that is asked for."""

import warnings
from pathlib import Path

from .options import OnError

_MOST_FAILURES = 3


class Faults:
    """Decides about faults, and tells them once each.

    Parameters
    ----------
    path : Path
        The store, for messages.
    on_error : {"disable", "raise"}
        Whether a fault costs a step, and after three of them the rest of the recording, or is
        raised into the training.
    """

    def __init__(self, path: Path, on_error: OnError) -> None:
        self._path = path
        self._raises = on_error == "raise"
        self._failures = 0
        self._of_step: Exception | None = None
        self.resting = False

    @property
    def step_failed(self) -> bool:
        """Whether a fault came since the step began."""
        return self._of_step is not None

    def note(self, error: Exception) -> None:
        """Take a fault inside a step; the step goes on without the recorder."""
        if self._raises:
            raise error
        self._of_step = self._of_step or error

    def end_step(self) -> None:
        """Tell the fault of a step, if there was one."""
        error, self._of_step = self._of_step, None
        if error is None:
            return
        self._failures += 1
        if self._failures == _MOST_FAILURES:
            self.rest(error)
        else:
            _warn(f"a step could not be recorded ({error!r}); training goes on")

    def rest(self, error: Exception) -> None:
        """Stop recording for good."""
        if self.resting:
            return
        self.resting = True
        if self._raises:
            raise error
        _warn(
            f"recording into {str(self._path)!r} has stopped ({error!r}); training goes on, "
            "and what was committed before can be read"
        )


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=5)
