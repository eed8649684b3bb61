"""A data set that is computed when it is asked."""

from typing import Any

import numpy as np
from torch.utils.data import Dataset


class Squares(Dataset[Any]):
    """Items as a contributor might write them: an array and an integer; one of them may be broken."""

    def __init__(self, broken: int = -1, label: Any = 1, shape: tuple[int, ...] = (2, 2)) -> None:
        self.broken, self.label, self.shape = broken, label, shape

    def __len__(self) -> int:
        return 3

    def __getitem__(self, place: int) -> Any:
        if place == self.broken:
            raise OSError("no such\nimage")
        return np.full(self.shape if place else (2, 2), place, dtype=np.float32), self.label
