"""What FPGAs hold, by the primitives that :class:`~haloconv.flow.synthesis.Area` counts."""

from collections.abc import Mapping
from dataclasses import dataclass

from haloconv.flow.synthesis.area import Area

__all__ = ["CAPACITIES", "Capacity", "capacity_of"]


@dataclass(frozen=True)
class Capacity:
    """Primitives of a device.

    Attributes
    ----------
    name, family : str
    logic : int
        LUT sites. On the ECP5 a carry primitive takes two of them, and a small memory in LUTs
        (16 words of 4 bits) six: four for its bits and two that write them.
    ffs, dsps, block_rams : int
    """

    name: str
    family: str
    logic: int
    ffs: int
    dsps: int
    block_rams: int

    def shares(self, area: Area) -> dict[str, float]:
        """Return how much of each resource a design takes; above 1 it does not fit."""
        need = {
            "LUT": area.luts + 2 * area.carries + 6 * area.lut_rams,
            "FF": area.ffs,
            "DSP": area.dsps,
            "block RAM": area.block_rams,
        }
        have = (self.logic, self.ffs, self.dsps, self.block_rams)
        return {
            name: used / most if most else float(used > 0) * 2
            for (name, used), most in zip(need.items(), have, strict=True)
        }


def _ecp5(size: int, logic: int, dsps: int, block_rams: int) -> list[Capacity]:
    """Return the three series of a size; a slice has two LUTs and two flip-flops."""
    series = ("LFE5U", "LFE5UM", "LFE5UM5G") if size != 12 else ("LFE5U",)
    return [Capacity(f"{name}-{size}F", "ecp5", logic, logic, dsps, block_rams) for name in series]


# Lattice, ECP5 and ECP5-5G Family Data Sheet FPGA-DS-02012, table 1.1, with LUT4s in place of the
# rounded thousands: the 12F is sold for half of the 25F's logic.
CAPACITIES: Mapping[str, Capacity] = {
    device.name: device
    for device in (
        *_ecp5(12, 12_144, 28, 32),
        *_ecp5(25, 24_288, 28, 56),
        *_ecp5(45, 43_848, 72, 108),
        *_ecp5(85, 83_640, 156, 208),
    )
}
"""Devices by name."""


def capacity_of(name: str) -> Capacity:
    """Return a device by its name, in any case.

    Raises
    ------
    ValueError
        If it is not known.
    """
    for known, device in CAPACITIES.items():
        if known.lower() == name.lower():
            return device
    raise ValueError(f"device must be one of {', '.join(CAPACITIES)}, not {name!r}")
