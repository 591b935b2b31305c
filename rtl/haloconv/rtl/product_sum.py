"""Sums of products in the accumulator of the multiplier."""

from amaranth import *

from haloconv.rtl.registered_product import mac16, registered_product
from haloconv.rtl.target import family_of

__all__ = ["product_sum"]


def product_sum(
    m: Module,
    platform: object,
    name: str,
    a: Value,
    b: Value,
    *,
    add: Value,
    load: Value,
    value: Value,
    clear: Value,
) -> Signal:
    """Return a register as wide as ``value`` of products of signed ``a`` and ``b``.

    With ``add`` the product of the cycle before is added to it, with ``load`` it becomes ``value``,
    which comes first; while ``clear`` is high it stays at zero, and shows it one cycle later at the
    latest. On the iCE40, for operands of at most 16 bits, all of it is a SB_MAC16, whose reset is
    asynchronous: ``clear`` must be a register. Elsewhere it is a register of logic.
    """
    result = Signal(signed(len(value)), name=name)
    if family_of(platform) == "ice40" and max(len(a), len(b)) <= 16 and len(value) <= 32:
        loaded, full = Signal(signed(32), name=f"{name}_loaded"), Signal(32, name=f"{name}_full")
        m.d.comb += [loaded.eq(value), result.eq(full)]
        m.submodules[f"{name}_multiplier"] = mac16(
            m, name, a, b, full,
            # Both halves add the product to their register, and carry.
            p_TOPADDSUB_LOWERINPUT=Const(2, 2),
            p_BOTADDSUB_LOWERINPUT=Const(2, 2),
            p_TOPADDSUB_CARRYSELECT=Const(3, 2),
            p_TOPOUTPUT_SELECT=Const(1, 2),
            p_BOTOUTPUT_SELECT=Const(1, 2),
            i_C=loaded[16:],
            i_D=loaded[:16],
            i_OLOADTOP=load,
            i_OLOADBOT=load,
            i_OHOLDTOP=~(add | load),
            i_OHOLDBOT=~(add | load),
            i_ORSTTOP=clear,
            i_ORSTBOT=clear,
        )  # fmt: skip
        return result
    product = registered_product(m, platform, f"{name}_product", a, b)
    with m.If(clear):
        m.d.sync += result.eq(0)
    with m.Elif(load):
        m.d.sync += result.eq(value)
    with m.Elif(add):
        m.d.sync += result.eq(result + product)
    return result
