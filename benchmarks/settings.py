"""What a run of the benchmarks is given."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    is_quick: bool
    directory: Path  # where nodes keep their data: a real disk, because syncs are measured

    def either(self, full: float, quick: float) -> float:
        return quick if self.is_quick else full
