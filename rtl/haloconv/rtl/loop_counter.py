"""Counters of loops: they load the trips of a loop, count, and say which trip is the last."""

from amaranth import *

from haloconv.rtl.target import family_of

__all__ = ["counted", "loop_counter"]

# Each half of a CCU2C has P = table[D, C, B, A], sum = P ^ carry in, and where P is low the carry
# out table[0, 0, B, A]; it is the carry in where P is high. D is high, which needs no wire.
FIRST_BIT = 0x1D02
"""P = B ? ~C : ~A; carry A & ~B: counts A, or loads ~C where B is high."""
OTHER_BITS = 0x3A00
"""P = C ? ~B : A; no carry of its own: counts A, or loads ~B where C is high."""


def counted(
    m: Module, platform: object, name: str, count: Value, load: Value, value: Value
) -> Signal:
    """Return ``Mux(load, ~value, count + 1)`` as wide as ``count``; on the ECP5 in a LUT a bit."""
    width = len(count)
    result = Signal(width, name=f"{name}_next")
    loaded = Signal(width, name=f"{name}_loaded")
    m.d.comb += loaded.eq(value)
    if family_of(platform) != "ecp5":
        m.d.comb += result.eq(Mux(load, ~loaded, count + 1))
        return result
    carry: Value = Const(0, 1)
    for low in range(0, width, 2):
        ports: dict[str, Value] = {}
        for half in (0, 1):
            bit = low + half
            if bit == width:
                # Half of the last one is left over.
                break
            a, b, c = count[bit], loaded[bit], load
            if bit == 0:
                b, c = c, b
            ports |= {f"i_A{half}": a, f"i_B{half}": b, f"i_C{half}": c, f"i_D{half}": Const(1, 1)}
            ports[f"o_S{half}"] = result[bit]
        carry_out = Signal(name=f"{name}_carry_{low}")
        m.submodules[f"{name}_count_{low}"] = Instance(
            "CCU2C",
            p_INIT0=Const(OTHER_BITS if low else FIRST_BIT, 16),
            p_INIT1=Const(OTHER_BITS, 16),
            p_INJECT1_0="NO",
            p_INJECT1_1="NO",
            i_CIN=carry,
            o_COUT=carry_out,
            **ports,
        )
        carry = carry_out
    return result


def loop_counter(
    m: Module,
    platform: object,
    name: str,
    width: int,
    *,
    enable: Value,
    load: Value,
    trips: Value,
    done: bool = False,
) -> Signal:
    """Return a register that is high in the last of ``trips`` trips.

    With ``enable`` and ``load`` a loop of ``trips``, at least 1 and below ``2**width``, begins in
    the next cycle; with ``enable`` alone the next trip. The count behind it runs up to -2. With
    ``done`` it starts as in a last trip, also after a reset.
    """
    last = Signal(name=f"{name}_last", init=done, reset_less=not done)
    if width == 1:
        # Loops of one trip.
        with m.If(enable):
            m.d.sync += last.eq(1)
        return last
    count = Signal(width, name=f"{name}_count", init=(1 << width) - 2, reset_less=not done)
    following = counted(m, platform, name, count, load, trips)
    with m.If(enable):
        m.d.sync += [count.eq(following), last.eq(following == (1 << width) - 2)]
    return last
