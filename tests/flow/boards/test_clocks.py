"""PLL settings keep to the data sheets and give the clock that they say."""

import pytest

from haloconv.flow.boards.clocks import ecp5_pll, ice40_pll, xilinx_pll


@pytest.mark.parametrize("wanted", [25, 40, 50, 62.5, 75, 80, 100, 125])
def test_ecp5(wanted):
    s = ecp5_pll(25e6, wanted * 1e6)
    assert s.frequency == pytest.approx(wanted * 1e6, rel=0.01)
    # Lattice FPGA-DS-02012: phase detector from 3.125 MHz on, oscillator 400..800 MHz.
    assert 25e6 / s.reference_divider * s.multiplier == pytest.approx(s.frequency)
    assert s.phase_detector == 25e6 / s.reference_divider >= 3.125e6
    assert 400e6 <= s.frequency * s.output_divider <= 800e6
    assert s.multiplier <= 80 and s.output_divider <= 128


@pytest.mark.parametrize("wanted", [16, 18, 24, 30, 48])
def test_ice40(wanted):
    s = ice40_pll(12e6, wanted * 1e6)
    assert s.frequency == pytest.approx(wanted * 1e6, rel=0.01)
    # Lattice FPGA-TN-02052: phase detector 10..133 MHz, oscillator 533..1066 MHz.
    assert 12e6 / s.reference_divider * s.multiplier / s.output_divider == s.frequency
    assert 10e6 <= s.phase_detector <= 133e6 and 533e6 <= s.oscillator <= 1066e6
    assert s.output_divider in (2, 4, 8, 16, 32, 64)


@pytest.mark.parametrize("wanted", [25, 50, 75, 100, 120])
def test_xilinx(wanted):
    s = xilinx_pll(100e6, wanted * 1e6)
    assert s.frequency == pytest.approx(wanted * 1e6, rel=0.01)
    # DS181, speed grade 1: phase detector 19..450 MHz, oscillator 800..1600 MHz.
    assert 100e6 / s.reference_divider * s.multiplier / s.output_divider == s.frequency
    assert 19e6 <= s.phase_detector <= 450e6 and 800e6 <= s.oscillator <= 1600e6


def test_icepll_agrees():
    """What icepll gives for 12 to 24 MHz: DIVR 0, DIVF 63, DIVQ 5."""
    s = ice40_pll(12e6, 24e6)
    assert (s.reference_divider, s.multiplier, s.output_divider) == (1, 64, 32)


@pytest.mark.parametrize(
    "pll, wanted, message",
    [
        (ecp5_pll, 2e6, "must be one that the PLL makes from 25 MHz, not 2 MHz; .* is near"),
        (ice40_pll, 12e6, "from 12 MHz, not 12 MHz; 16.* MHz is near"),
        (ice40_pll, 500e6, "not 500 MHz"),
        (xilinx_pll, 5e6, "from 100 MHz, not 5 MHz"),
    ],
)
def test_clocks_out_of_reach(pll, wanted, message):
    with pytest.raises(ValueError, match=message):
        pll({ecp5_pll: 25e6, ice40_pll: 12e6, xilinx_pll: 100e6}[pll], wanted)
