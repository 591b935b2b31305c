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


def registered_product(
    m: Module, platform: object, name: str, a: Value, b: Value, *, cycles: int = 1
) -> Signal:
    """Return ``a * b`` of the cycle before, in as many bits as both have and signed if either is.

    With ``cycles`` of 2 it is that of two cycles before: the operands are registered as well, so
    that wires to the multiplier have a cycle of their own.

    Yosys leaves such registers outside the multipliers of ECP5 and iCE40, where they cost wires
    and time, on the iCE40 a logic cell a bit. So there the multiplier is written out: a MULT18X18D
    for operands up to 18 bits, a SB_MAC16 for 16 bits, signed. These registers have no reset;
    elsewhere the product has one, as Yosys' iCE40 flow builds wrong hardware from one without.

    ``synth_ice40 -dsp`` of Yosys 0.70 drops the register of a SB_MAC16 that it can recognise;
    ``haloconv.flow.synthesis`` therefore shows it another cell.
    """
    if cycles not in (1, 2):
        raise ValueError(f"Cycles of a product must be 1 or 2, not {cycles!r}")
    shape = (a * b).shape()
    product = Signal(shape, name=name)
    family = family_of(platform)
    if family == "ecp5":
        # The operands stand at the upper end: low bits that are zero need no wires, as copies of a
        # sign would.
        low_a, low_b = (max(0, 18 - len(v) - (not v.shape().signed)) for v in (a, b))
        a = Cat(Const(0, low_a), _sized(m, f"{name}_a", a, 18 - low_a))
        b = Cat(Const(0, low_b), _sized(m, f"{name}_b", b, 18 - low_b))
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
            **{
                f"p_REG_INPUT{operand}_{line}": f"{line}0"
                for operand in "AB"
                for line in ("CLK", "CE", "RST")
                if cycles == 2
            },
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
        m.d.comb += product.eq(full[low_a + low_b :])
    elif family == "ice40" and all(value.shape().signed and len(value) <= 16 for value in (a, b)):
        full = Signal(32, name=f"{name}_full")
        m.submodules[f"{name}_multiplier"] = mac16(
            m, name, a, b, full,
            p_A_REG=Const(cycles - 1, 1),
            p_B_REG=Const(cycles - 1, 1),
            p_TOPOUTPUT_SELECT=Const(3, 2),
            p_BOTOUTPUT_SELECT=Const(3, 2),
        )  # fmt: skip
        m.d.comb += product.eq(full)
    else:
        if cycles == 2:
            early_a, early_b = (
                Signal(a.shape(), name=f"{name}_a"),
                Signal(b.shape(), name=f"{name}_b"),
            )
            m.d.sync += [early_a.eq(a), early_b.eq(b)]
            a, b = early_a, early_b
        m.d.sync += product.eq(a * b)
    return product
