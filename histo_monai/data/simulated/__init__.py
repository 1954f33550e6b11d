"""Simulated H&E: cohorts in the official layouts of the public datasets, from a seed.

The pictures, the sizes and what is not simulated: docs/phantom.md.
"""

from histo_monai.data.simulated.cohorts.cohort import Cohort, CohortSize, write_cohort

__all__ = ["Cohort", "CohortSize", "write_cohort"]
