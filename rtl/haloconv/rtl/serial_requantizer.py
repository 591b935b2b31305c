"""One int32 sum into one int8 result in 32 cycles, without multipliers."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from haloconv.planner.latency import SERIAL_CYCLES
from haloconv.planner.requantization import ROUNDINGS
from haloconv.rtl.fused_sum import masked_sum
from haloconv.rtl.requantizer import mode_selected, requantizer_members

__all__ = ["SerialRequantizer"]


class SerialRequantizer(wiring.Component):
    """The same results as :class:`~haloconv.rtl.requantizer.Requantizer`, two bits a cycle.

    The product ``P = sum * multiplier`` is formed from the lowest bits of the multiplier on, and
    what is finished of it leaves the accumulator at the bottom, until the result stands there::

        left shift:   sum up by one bit a cycle, then 16 steps: P >> 31
        right by r:   16 + r / 2 steps: P >> 31 + r; the multiplier has no bits left in the last

        step:         accumulator = (accumulator + 0..3 * sum) >> 2

    Of the bits that left, the last two and "any" of those before decide on the rounding. The first
    rounding of "double" and "double_up" is where the accumulator starts from, 2**30, and nothing
    below that counts afterwards.

    Timing
    ------
    Latency SERIAL_CYCLES, 32; interval the same. ``o`` is combinational, from the accumulator
    through two additions and a comparison: meant for FPGAs that are small rather than fast.

    Resources
    ---------
    Two adders of 33 bits, two and a comparator of 9; some 230 LUTs; no multiplier, no memory.

    Parameters
    ----------
    roundings : tuple of str
        Modes to build, all but "fp32".

    Members
    -------
    start : In(1)
        Take ``i_*``, once in 32 cycles at most.
    done : Out(1)
        ``o`` stands, for this cycle: 32 cycles after ``start``.
    i_sum, i_multiplier, i_shift, rounding, raw, zero_point, clamp_low, clamp_high, o
        As in Requantizer.

    Raises
    ------
    ValueError
        If ``roundings`` is empty or has "fp32".
    """

    start: Signal
    done: Signal
    i_sum: Signal
    i_multiplier: Signal
    i_shift: Signal
    rounding: Signal
    raw: Signal
    zero_point: Signal
    clamp_low: Signal
    clamp_high: Signal
    o: Signal

    latency = SERIAL_CYCLES
    """Cycles from ``start`` to ``o``."""

    def __init__(self, roundings: tuple[str, ...] = ("double",)) -> None:
        able = tuple(name for name in ROUNDINGS if name != "fp32")
        if not roundings or not set(roundings) <= set(able):
            raise ValueError(
                f"roundings of a serial requantiser must be of {', '.join(able)}, not {roundings!r}"
            )
        self._roundings = tuple(name for name in ROUNDINGS if name in roundings)
        super().__init__({"start": In(1), "done": Out(1), **requantizer_members()})

    def _selected(self, name: str) -> Value:
        return mode_selected(self._roundings, self.rounding, name)

    def elaborate(self, platform) -> Module:
        m = Module()
        double, double_up = self._selected("double"), self._selected("double_up")
        away = self._selected("away")

        # Left by 15 is out of range as is all beyond, 0 apart; so are sums of more than 16 bits,
        # which need not be moved for that.
        given = self.i_shift
        right = Signal()
        fits = ~(self.i_sum[15:31] ^ self.i_sum[31].replicate(16)).any()
        left = (given[:4] | given[4].replicate(4)) & (fits & ~given[5]).replicate(4)
        beyond = Signal(5)  # of a right shift by r: r - 1
        # Below zero: the sum moves up. From 0 on: steps; 16 of them and r / 2 more.
        time = Signal(signed(6))
        moving, working = Signal(), Signal()
        age = Signal(range(SERIAL_CYCLES))
        pending = Signal()
        total = Signal(signed(32), reset_less=True)
        digits = Signal(32, reset_less=True)
        m.d.comb += [
            moving.eq(time[5]),
            working.eq(~moving & (~time[4] | (beyond > Cat(C(0, 1), time[:4])))),
            self.done.eq(pending & (age == SERIAL_CYCLES - 1)),
        ]
        m.d.sync += [age.eq(age + 1), time.eq(time + 1)]
        with m.If(self.done):
            m.d.sync += pending.eq(0)
        with m.If(moving & ~self.raw):
            m.d.sync += total.eq(total << 1)
        with m.If(working):
            m.d.sync += digits.eq(digits[2:])

        # One step. The lowest bit of either sum is a finished bit of P.
        held = Signal(signed(32), reset_less=True)
        low = masked_sum(m, platform, "low_sum", 33, held, digits[0], total)
        high = masked_sum(m, platform, "high_sum", 33, low[1:].as_signed(), digits[1], total)
        bit_0, bit_1, below = (Signal(reset_less=True, name=n) for n in ("bit_0", "bit_1", "below"))
        # Bits below 31 are in the first rounding.
        forgets = double & right & ~time[4]
        with m.If(working):
            m.d.sync += [
                held.eq(high[1:]),
                bit_1.eq(high[0]),
                bit_0.eq(low[0] & ~forgets),
                below.eq((below | bit_0 | bit_1) & ~forgets),
            ]
        with m.If(self.start):
            m.d.sync += [
                pending.eq(1),
                age.eq(0),
                time.eq(-left),
                right.eq(given[5]),
                beyond.eq(Mux(given[5], ~given[:5], 0)),
                total.eq(self.i_sum),
                digits.eq(self.i_multiplier[:31]),
                held.eq(((double | double_up) & given[5]) << 30),
                bit_0.eq(0),
                bit_1.eq(0),
                below.eq(0),
            ]
        self._finish(m, held, bit_1, bit_0, below, ~right | beyond[0], right, total, away, double)
        return m

    def _finish(
        self,
        m: Module,
        held: Signal,
        bit_1: Value,
        bit_0: Value,
        below: Value,
        odd: Value,
        right: Value,
        total: Value,
        away: Value,
        double: Value,
    ) -> None:
        """Rounding, zero point, clamp; where ``odd``, the upper bit that left belongs to it."""
        negative = held[31]
        floor = Cat(Mux(odd, Cat(bit_1, held[:7]), held[:8]), negative)
        top = held[8:31] ^ negative.replicate(23)
        over = top.any() | Mux(odd, held[7] ^ negative, 0)
        half = Mux(odd, bit_0, bit_1)
        rest = below | (~odd & bit_0)
        to_zero = negative & ~rest & (away | (double & right))
        up = half & ~to_zero

        # As in Requantizer: distances above the lower bound, clamped to 0 and ``span``.
        offset = Signal(signed(9), reset_less=True)
        span = Signal(8, reset_less=True)
        m.d.sync += [
            offset.eq(self.zero_point - self.clamp_low),
            span.eq(self.clamp_high - self.clamp_low),
        ]
        moved = Signal(signed(11))
        m.d.comb += moved.eq(Cat(Const(1, 1), floor).as_signed() + Cat(up, offset).as_signed())
        below_low = Mux(over, negative, moved[10])
        above = Mux(over, ~negative, ~moved[10] & moved[9])
        left = Signal(signed(9))
        m.d.comb += left.eq(span - moved[1:9])
        clamped = Mux(above | left[8], span, moved[1:9]) & ~below_low.replicate(8)
        byte = (clamped + self.clamp_low)[:8]
        m.d.comb += self.o.eq(Cat(Mux(self.raw, total[:8], byte), total[8:]))
