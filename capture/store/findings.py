"""What a check of a store says."""

from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing that is not as the format says.

    Parameters
    ----------
    rule : str
        Name of the rule that is broken, such as ``"chunk-checksum"``.
    where : str
        The place: stream, layer, quantity and steps, or a file.
    what : str
        What is wrong there.
    advice : str
        What to do.
    severity : {"error", "warning", "note"}
        Whether numbers are lost or wrong, other readers are misled, or it is good to know.
    """

    rule: str
    where: str
    what: str
    advice: str
    severity: Severity = "error"

    def __str__(self) -> str:
        return f"{self.severity}: {self.where}: {self.what}; {self.advice} [{self.rule}]"

    def to_json(self) -> dict[str, str]:
        """Give the finding as JSON values."""
        return asdict(self)
