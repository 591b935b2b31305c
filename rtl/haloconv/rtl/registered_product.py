"""Products whose register is that of the multiplier."""

from amaranth import *

from haloconv.rtl.target import family_of

__all__ = ["mac16", "registered_product"]


def _sized(m: Module, name: str, value: Value, width: int) -> Signal:
    """``value`` with its sign, or zeros, extended to ``width`` bits."""
    if len(value) + (not value.shape().signed) > width:
        raise ValueError(f"an operand of {name} must fit {width} bits, not {value.shape()!r}")
    sized = Signal(signed(width), name=name)
    m.d.comb += sized.eq(value)
    return sized


def mac16(m: Module, name: str, a: Value, b: Value, out: Signal, **given: Value) -> Instance:
    """Return a SB_MAC16 of signed ``a`` and ``b`` of up to 16 bits, ``out`` of 32 bits.

    The whole product passes the multiplier's register; what follows, up to ``out``, is said by the
    parameters and ports ``given``; ports that are not are low.
    """
    ports = {f"i_{port}": Const(0, 16) for port in ("C", "D")} | {
        f"i_{port}": Const(0, 1)
        for port in (
            "AHOLD", "BHOLD", "CHOLD", "DHOLD", "IRSTTOP", "IRSTBOT", "ORSTTOP", "ORSTBOT",
            "OLOADTOP", "OLOADBOT", "ADDSUBTOP", "ADDSUBBOT", "OHOLDTOP", "OHOLDBOT",
            "CI", "ACCUMCI", "SIGNEXTIN",
        )
    }  # fmt: skip
    return Instance(
        "SB_MAC16",
        p_PIPELINE_16x16_MULT_REG2=Const(1, 1),
        p_A_SIGNED=Const(1, 1),
        p_B_SIGNED=Const(1, 1),
        i_CLK=ClockSignal(),
        i_CE=Const(1, 1),
        i_A=_sized(m, f"{name}_a", a, 16),
        i_B=_sized(m, f"{name}_b", b, 16),
        o_O=out,
        **(ports | given),
    )


def registered_product(m: Module, platform: object, name: str, a: Value, b: Value) -> Signal:
    """Return ``a * b`` of the cycle before, in as many bits as both have and signed if either is.

    Yosys leaves such registers outside the multipliers of ECP5 and iCE40, where they cost wires
    and time, on the iCE40 a logic cell a bit. So there the multiplier is written out: a MULT18X18D
    for operands up to 18 bits, a SB_MAC16 for 16 bits, signed. These registers have no reset;
    elsewhere the product has one, as Yosys' iCE40 flow builds wrong hardware from one without.

    ``synth_ice40 -dsp`` of Yosys 0.70 drops the register of a SB_MAC16 that it can recognise;
    ``haloconv.flow.synthesis`` therefore shows it another cell.
    """
    shape = (a * b).shape()
    product = Signal(shape, name=name)
    family = family_of(platform)
    if family == "ecp5":
        a, b = _sized(m, f"{name}_a", a, 18), _sized(m, f"{name}_b", b, 18)
        full = Signal(36, name=f"{name}_full")
        ports: dict[str, Value] = {}
        for index in range(18):
            ports[f"i_A{index}"], ports[f"i_B{index}"] = a[index], b[index]
            ports[f"i_C{index}"] = Const(0, 1)
        for index in range(36):
            ports[f"o_P{index}"] = full[index]
        m.submodules[f"{name}_multiplier"] = Instance(
            "MULT18X18D",
            p_REG_OUTPUT_CLK="CLK0",
            p_REG_OUTPUT_CE="CE0",
            p_REG_OUTPUT_RST="RST0",
            p_GSR="DISABLED",
            i_CLK0=ClockSignal(),
            i_CE0=Const(1, 1),
            i_RST0=Const(0, 1),
            i_SIGNEDA=Const(1, 1),
            i_SIGNEDB=Const(1, 1),
            i_SOURCEA=Const(0, 1),
            i_SOURCEB=Const(0, 1),
            **ports,
        )
        m.d.comb += product.eq(full)
    elif family == "ice40" and all(value.shape().signed and len(value) <= 16 for value in (a, b)):
        full = Signal(32, name=f"{name}_full")
        m.submodules[f"{name}_multiplier"] = mac16(
            m, name, a, b, full, p_TOPOUTPUT_SELECT=Const(3, 2), p_BOTOUTPUT_SELECT=Const(3, 2)
        )
        m.d.comb += product.eq(full)
    else:
        m.d.sync += product.eq(a * b)
    return product
