"""Simulated H&E: datasets in the official layouts of the public ones, from a seed.

docs/phantom.md shows images and lists the sizes and the limits of the simulation.
"""

from histo_monai.data.simulated.cohorts.cohort import Cohort, CohortSize, write_cohort

__all__ = ["Cohort", "CohortSize", "write_cohort"]
