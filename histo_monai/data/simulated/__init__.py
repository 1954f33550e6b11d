"""Simulated H&E: datasets in the official layouts of the public ones, from a seed.

docs/phantom.md shows images and lists the sizes and the limits of the simulation.
"""

from histo_monai.data.simulated.datasets.dataset import SimulatedDataset, SimulatedSize, write_simulated

__all__ = ["SimulatedDataset", "SimulatedSize", "write_simulated"]
