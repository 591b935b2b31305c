"""Additions that choose an operand in the same LUT.

Synthesis puts the choice into LUTs of its own in front of the carry chain of an ECP5, whose LUTs
have two inputs to spare; so these additions are written as its CCU2C there. Both forms take the
same operands, have no latency, and are compared on the netlist in the tests.
"""

from amaranth import *

from haloconv.rtl.target import family_of

__all__ = ["masked_sum", "picked_sum", "selected_sum"]

# Each half of a CCU2C has P = table[D, C, B, A], sum = P ^ carry in, and where P is low the carry
# out table[0, 0, B, A]; it is the carry in where P is high.
SELECTED = 0x656A
"""P = A ^ (C ? B : D), carry A."""
MASKED = 0x6A6A
"""P = A ^ (B & C) with D high, carry A: an input that is high needs no wire."""
PICKED = 0xC6A8
"""P = A ^ B with D high and C low; A with C high and D low; B with both high. Carry A & B."""


def _chain(
    m: Module, name: str, table: int, width: int, a: Value, b: Value, c: Value, d: Value
) -> Signal:
    """Sum of a chain of CCU2C; ``a``, ``b``, ``c``, ``d`` have ``width`` bits each."""
    result = Signal(signed(width), name=name)
    carry: Value = Const(0, 1)
    for low in range(0, width, 2):
        ports: dict[str, Value] = {}
        for half in (0, 1):
            if low + half == width:
                # Half of the last one is left over.
                break
            for letter, operand in zip("ABCD", (a, b, c, d), strict=True):
                ports[f"i_{letter}{half}"] = operand[low + half]
            ports[f"o_S{half}"] = result[low + half]
        carry_out = Signal(name=f"{name}_carry_{low}")
        m.submodules[f"{name}_{low}"] = Instance(
            "CCU2C",
            p_INIT0=Const(table, 16),
            p_INIT1=Const(table, 16),
            p_INJECT1_0="NO",
            p_INJECT1_1="NO",
            i_CIN=carry,
            o_COUT=carry_out,
            **ports,
        )
        carry = carry_out
    return result


def _sized(m: Module, name: str, value: Value, width: int) -> Signal:
    """``value`` with its sign extended to ``width`` bits."""
    sized = Signal(signed(width), name=name)
    m.d.comb += sized.eq(value)
    return sized


def selected_sum(
    m: Module, platform: object, name: str, width: int, a: Value, select: Value, b: Value, c: Value
) -> Signal:
    """Return ``a + Mux(select, b, c)`` modulo ``2**width``, signed; a LUT a bit."""
    if family_of(platform) == "ecp5":
        operands = (
            _sized(m, f"{name}_{k}", v, width) for k, v in zip("abc", (a, b, c), strict=True)
        )
        a, b, c = operands
        return _chain(m, name, SELECTED, width, a, b, select.replicate(width), c)
    total = Signal(signed(width), name=name)
    m.d.comb += total.eq(a + Mux(select, b, c))
    return total


def masked_sum(
    m: Module, platform: object, name: str, width: int, a: Value, select: Value, b: Value
) -> Signal:
    """Return ``a + Mux(select, b, 0)`` modulo ``2**width``, signed; a LUT a bit."""
    if family_of(platform) == "ecp5":
        a, b = _sized(m, f"{name}_a", a, width), _sized(m, f"{name}_b", b, width)
        high = Const(-1, signed(width))
        return _chain(m, name, MASKED, width, a, b, select.replicate(width), high)
    total = Signal(signed(width), name=name)
    if family_of(platform) == "ice40":
        # The carries run on unmasked operands there, and the LUT behind them drops the sum.
        m.d.comb += total.eq(Mux(select, a + b, a))
    else:
        m.d.comb += total.eq(a + (b & select.replicate(width).as_signed()))
    return total


def picked_sum(
    m: Module,
    platform: object,
    name: str,
    width: int,
    a: Value,
    b: Value,
    pick: Value,
    second: Value,
) -> Signal:
    """Return ``Mux(pick, Mux(second, b, a), a + b)`` modulo ``2**width``, signed.

    A LUT a bit on the ECP5, two elsewhere.
    """
    if family_of(platform) == "ecp5":
        a, b = _sized(m, f"{name}_a", a, width), _sized(m, f"{name}_b", b, width)
        adds = ~pick | second
        return _chain(m, name, PICKED, width, a, b, pick.replicate(width), adds.replicate(width))
    total = Signal(signed(width), name=name)
    m.d.comb += total.eq(Mux(pick, Mux(second, b, a), a + b))
    return total
