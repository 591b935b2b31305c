"""Settings of the PLLs that make a board's clock from its oscillator."""

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["PllSettings", "ecp5_pll", "ice40_pll", "xilinx_pll"]

CLOSE = 0.01
"""Most that a clock may miss what was asked for."""


@dataclass(frozen=True)
class PllSettings:
    """Dividers of a PLL.

    Attributes
    ----------
    frequency : float
        What comes out, in Hz.
    reference_divider, multiplier, output_divider : int
        The oscillator runs ``output_divider`` times as fast as the output. ``multiplier`` is that
        of the feedback: of the output on the ECP5, of the oscillator elsewhere.
    oscillator : float
        In Hz.
    phase_detector : float
        Input / reference_divider, in Hz.
    """

    frequency: float
    reference_divider: int
    multiplier: int
    output_divider: int
    oscillator: float
    phase_detector: float


def ecp5_pll(input_hz: float, wanted_hz: float) -> PllSettings:
    """Return settings of an EHXPLLL with feedback from CLKOP.

    Raises
    ------
    ValueError
        If no settings come within 1 % of the frequency.
    """

    def settings() -> Iterator[PllSettings]:
        for reference in range(1, 129):
            detector = input_hz / reference
            if not 3.125e6 <= detector <= 400e6:
                continue
            for multiplier in range(1, 81):
                output = detector * multiplier
                for divider in range(1, 129):
                    if 400e6 <= output * divider <= 800e6:
                        yield PllSettings(
                            output, reference, multiplier, divider, output * divider, detector
                        )

    return _closest(settings(), input_hz, wanted_hz, middle=600e6)


def ice40_pll(input_hz: float, wanted_hz: float) -> PllSettings:
    """Return settings of an SB_PLL40_PAD: DIVR and DIVF are one less, DIVQ is the logarithm.

    Raises
    ------
    ValueError
        If no settings come within 1 % of the frequency.
    """

    def settings() -> Iterator[PllSettings]:
        for reference in range(1, 17):
            detector = input_hz / reference
            if not 10e6 <= detector <= 133e6:
                continue
            for multiplier in range(1, 129):
                oscillator = detector * multiplier
                if not 533e6 <= oscillator <= 1066e6:
                    continue
                for power in range(1, 7):
                    output = oscillator / (1 << power)
                    if 16e6 <= output <= 275e6:
                        yield PllSettings(
                            output, reference, multiplier, 1 << power, oscillator, detector
                        )

    return _closest(settings(), input_hz, wanted_hz, middle=800e6)


def xilinx_pll(input_hz: float, wanted_hz: float) -> PllSettings:
    """Return settings of a PLLE2_BASE of the slowest speed grade.

    Raises
    ------
    ValueError
        If no settings come within 1 % of the frequency.
    """

    def settings() -> Iterator[PllSettings]:
        for reference in range(1, 57):
            detector = input_hz / reference
            if not 19e6 <= detector <= 450e6:
                continue
            for multiplier in range(2, 65):
                oscillator = detector * multiplier
                if not 800e6 <= oscillator <= 1600e6:
                    continue
                for divider in range(1, 129):
                    yield PllSettings(
                        oscillator / divider, reference, multiplier, divider, oscillator, detector
                    )

    return _closest(settings(), input_hz, wanted_hz, middle=1000e6)


def _closest(
    settings: Iterator[PllSettings], input_hz: float, wanted_hz: float, *, middle: float
) -> PllSettings:
    found = min(
        settings,
        key=lambda s: (
            round(abs(s.frequency - wanted_hz)),
            s.reference_divider,
            abs(s.oscillator - middle),
        ),
        default=None,
    )
    if found is None or abs(found.frequency - wanted_hz) > CLOSE * wanted_hz:
        near = "" if found is None else f"; {found.frequency / 1e6:g} MHz is near"
        raise ValueError(
            f"Clock must be one that the PLL makes from {input_hz / 1e6:g} MHz, not "
            f"{wanted_hz / 1e6:g} MHz{near}"
        )
    return found
