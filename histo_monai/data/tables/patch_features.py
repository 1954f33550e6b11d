"""Features of the patches of tables, in memory, by the names of the patches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.floating)


@dataclass(frozen=True)
class PatchFeatures(Generic[Number]):
    """Features of patches, read once and looked up by table.

    Attributes:
        row_of: patch_id -> row.
        features: by name; Shape (n, D) each.
    """

    row_of: Mapping[str, int]
    features: Mapping[str, NDArray[Number]]

    @classmethod
    def of_rows(cls, rows: pd.DataFrame, features: Mapping[str, NDArray[Number]]) -> PatchFeatures[Number]:
        """Features of a table with one row per patch, in its order."""
        return cls({patch_id: row for row, patch_id in enumerate(rows["patch_id"])}, features)

    def of(self, rows: pd.DataFrame) -> dict[str, NDArray[Number]]:
        """Features of a table's patches, in its order.

        Raises:
            KeyError: a patch is unknown.
        """
        wanted = np.array([self.row_of[patch_id] for patch_id in rows["patch_id"]], np.intp)
        return {name: values[wanted] for name, values in self.features.items()}


def distinct_patches(*tables: pd.DataFrame) -> pd.DataFrame:
    """Rows of several tables, each patch once."""
    together = pd.concat([table for table in tables if len(table)], ignore_index=True)
    return together.drop_duplicates("patch_id", ignore_index=True)
