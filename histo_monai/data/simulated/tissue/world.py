"""Parts of a simulated slide: seed, staining, cell traits, textures and the plan of its regions."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from histo_monai.data.simulated.cells.nuclei import KINDS, NucleusKind, NucleusLibrary, vary
from histo_monai.data.simulated.raster.lattice import F32, Grid, derive, periodic_texture
from histo_monai.data.simulated.raster.stain import Scanner, StainStyle, random_style

TEXTURE_PX = 1024
Regions = dict[str, F32]


class Plan(Protocol):
    """Place of each tissue."""

    def regions(self, grid: Grid) -> Regions:
        """Weights 0..1 of the tissues by name on a raster, float32; a missing name means weight 0.

        Names: glass, fat, stroma, muscle, lymphoid, follicle, sinus, mucus, debris, mucosa, lobule, tumour, infiltrate,
        and `lesion_depth`, the distance in µm inside (positive) the malignant region's outline.
        """
        ...


@dataclass(frozen=True)
class Traits:
    """Appearance of one patient's tissue; relative values are about 1.

    Attributes:
        tumor_size: Relative size of tumor nuclei.
        pleomorphism: Relative spread of the nuclei's size and outline.
        tumor_chromatin: Relative density of tumor chromatin.
        tumor_cell_um: Distance between tumor cells.
        cytoplasm: Eosin and hematoxylin density of the tumor's cytoplasm.
        glandular: Fraction of the tumor that forms glands, 0..1.
        nest_um: Width of solid nests.
        nest_fill: Fraction of the tumor region that solid nests cover.
        desmoplasia: Fibrous fraction of the tumor's matrix in tissue that is not fibrous, 0..1.
        retraction: Strength of the clefts around nests, 0..1.
        lymphoid_cell_um: Distance between lymphocytes.
        lymphoid_chromatin: Relative density of their chromatin.
        fiber_angle: Main direction of fibers, radians.
        fiber_density: Eosin density of stroma.
        cracks: Fraction of shrinkage clefts in dense tissue, 0..1.
    """

    tumor_size: float
    pleomorphism: float
    tumor_chromatin: float
    tumor_cell_um: float
    cytoplasm: tuple[float, float]
    glandular: float
    nest_um: float
    nest_fill: float
    desmoplasia: float
    retraction: float
    lymphoid_cell_um: float
    lymphoid_chromatin: float
    fiber_angle: float
    fiber_density: float
    cracks: float


def random_traits(rng: np.random.Generator) -> Traits:
    """Random traits of a patient."""
    size = float(np.exp(rng.normal(0, 0.10)))
    return Traits(
        tumor_size=size,
        pleomorphism=float(rng.uniform(0.7, 1.4)),
        tumor_chromatin=float(np.exp(rng.normal(0.1, 0.25))),
        tumor_cell_um=float(rng.uniform(11.2, 14.8)) * size,
        cytoplasm=(float(rng.uniform(0.28, 0.62)), float(rng.uniform(0.10, 0.36))),
        glandular=float(rng.beta(0.7, 0.7)),
        nest_um=float(rng.uniform(45, 95)),
        nest_fill=float(rng.uniform(0.5, 0.85)),
        desmoplasia=float(rng.uniform(0.05, 0.8)),
        retraction=float(rng.random()),
        lymphoid_cell_um=float(rng.uniform(6.9, 8.6)),
        lymphoid_chromatin=float(np.exp(rng.normal(-0.05, 0.18))),
        fiber_angle=float(rng.uniform(0, np.pi)),
        fiber_density=float(rng.uniform(0.42, 0.72)),
        cracks=float(rng.uniform(0.1, 1.0)),
    )


@dataclass(frozen=True)
class World:
    """One patient's tissue under one scanner; an unbounded plane whose (0, 0) is the slide's top left corner.

    Args:
        seed: Seed of all parts that are not given.
        mpp: Resolution of the finest rendering, µm per px.
    """

    seed: int
    mpp: float
    plan: Plan
    style: StainStyle
    traits: Traits
    kinds: dict[str, NucleusKind] = field(default_factory=dict)

    @classmethod
    def from_seed(cls, seed: int, mpp: float, plan: Plan) -> World:
        """A world with random style and traits from its seed."""
        style = random_style(np.random.default_rng(derive(seed, "style")))
        return cls(seed, mpp, plan, style, random_traits(np.random.default_rng(derive(seed, "traits"))))

    @property
    def coarse_px(self) -> int:
        """Pixels per side of a cell of the 2 µm raster on which regions and glands are decided."""
        return max(1, round(2.0 / self.mpp))

    @cached_property
    def library(self) -> NucleusLibrary:
        """The nuclei of this slide."""
        t = self.traits
        kinds = KINDS | {
            "tumour": vary(
                KINDS["tumour"], size=t.tumor_size, density=t.tumor_chromatin, spread=t.pleomorphism
            ),
            "lymphocyte": vary(KINDS["lymphocyte"], density=t.lymphoid_chromatin),
        }
        return NucleusLibrary(kinds | self.kinds, self.mpp, derive(self.seed, "nuclei"))

    @cached_property
    def scanner(self) -> Scanner:
        """Scanner of the slide: densities -> pixels."""
        return Scanner(self.style, self.mpp, derive(self.seed, "sensor"))

    @cached_property
    def grain(self) -> F32:
        """Isotropic texture of cytoplasm and matrix, unit variance."""
        seed = derive(self.seed, "grain")
        fine = periodic_texture(TEXTURE_PX, (0.7 / self.mpp, 0.7 / self.mpp), seed)
        coarse = periodic_texture(TEXTURE_PX, (3.0 / self.mpp, 3.0 / self.mpp), seed + 1)
        return np.asarray((fine + coarse) * np.float32(0.707), dtype=np.float32)

    @cached_property
    def fibers(self) -> F32:
        """Texture of parallel fibers along x, unit variance."""
        seed = derive(self.seed, "fibres")
        px = 1 / self.mpp
        lines = periodic_texture(TEXTURE_PX, (0.45 * px, 9 * px), seed, waviness=0.7)
        bundles = periodic_texture(TEXTURE_PX, (2.4 * px, 24 * px), seed + 1, waviness=0.6)
        fuzz = periodic_texture(TEXTURE_PX, (0.5 * px, 1.6 * px), seed + 2)
        return np.asarray(0.62 * lines + 0.62 * bundles + 0.48 * fuzz, dtype=np.float32)


Image = NDArray[np.uint8]
