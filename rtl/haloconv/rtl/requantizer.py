"""One int32 sum into one int8 result each cycle, in the built rounding modes."""

from collections.abc import Iterable

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from haloconv.planner.requantization import ROUNDINGS

__all__ = ["Requantizer"]


def _differs(bits: Value, sign: Value) -> Value:
    """High when a bit of ``bits`` is not ``sign``."""
    return (bits ^ sign.replicate(len(bits))).any()


class Requantizer(wiring.Component):
    """Scale, round, move and clamp one int32 sum a cycle, exactly (docs/arithmetic.md).

    Every mode is a shift of one product ``P = a * q`` to the right by ``s = 32 + amount`` and one
    increment, so that the modes share multiplier, shifter and clamp and differ in a few gates::

        i_sum -> align -> [normalise, round to 24 bits] -> 4 products -> sums -> P
          P ^ sign -> shift by 16, 8 -> 4, 2, 1 -> ^ sign, + Zy + increment -> clamp -> o

    * A left shift (``i_shift`` >= 0) leaves the int8 range unless the sum fits 16 bits, so the sum
      is moved up by a constant 16 bits instead, and the shifter takes ``15 - i_shift`` back. What
      does not fit becomes a value of the same sign that is sure to saturate.
    * With ``P = B * 2**31 + ...`` and ``r`` the bit below ``B``, the first rounding of "double"
      makes ``B + r``. That sum is never formed: it matters to the second rounding only through a
      carry that runs through all bits between ``r`` and the second rounding bit, "all ones" there.
      Negative products are shifted as their ones' complement, which turns "tie away from zero"
      into "tie up" of the magnitude. "single" has no such carry; "away" lets it start from all
      bits below; "double_up" asks for "none" instead of "all" where the product is negative.
    * "fp32" brings the sum to 31 bits and rounds it to 24, so that the product of the significands
      has its leading one in one of two places, and the rounding of the product to 24 bits is the
      same carry, started at a fixed bit.

    There is no valid and no stall: whoever needs them delays them by :attr:`latency`.

    Timing
    ------
    Latency 8 cycles, 11 with "fp32", 1 without any mode; initiation interval 1. Both hold for raw
    sums as well.

    Resources
    ---------
    4 multipliers of 18 x 18 bits at any choice of modes (none without modes), no memory.

    Parameters
    ----------
    roundings : iterable of str
        Modes to build, of :data:`haloconv.planner.requantization.ROUNDINGS`. Without any, the sum
        passes whatever ``raw`` says.

    Members
    -------
    i_sum : In(signed(32))
        Exact sum, bias included.
    i_multiplier : In(32)
        0 or 2**30..2**31 - 1; for "fp32" the bits of a positive finite float32.
    i_shift : In(signed(6))
        -31..31, positive to the left. Not used by "fp32".
    rounding : In(range(5))
        Index in ROUNDINGS of a built mode; not used if only one is built. This and all below may
        change only while no sum that matters is in the pipeline.
    raw : In(1)
        Pass the sum.
    zero_point : In(signed(8))
    clamp_low, clamp_high : In(signed(8))
        ``clamp_low`` <= ``clamp_high``.
    o : Out(signed(32))
        Result of the sum of :attr:`latency` cycles ago: an int8 value, or the sum.

    Raises
    ------
    TypeError
        If ``roundings`` is no iterable of names.
    ValueError
        If a name is unknown or given twice.
    """

    i_sum: Signal
    i_multiplier: Signal
    i_shift: Signal
    rounding: Signal
    raw: Signal
    zero_point: Signal
    clamp_low: Signal
    clamp_high: Signal
    o: Signal

    def __init__(self, roundings: Iterable[str] = ("double",)) -> None:
        if isinstance(roundings, str) or not isinstance(roundings, Iterable):
            raise TypeError(f"roundings must be a tuple of names, not {roundings!r}")
        names = tuple(roundings)
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"roundings must hold names, not {name!r}")
            if name not in ROUNDINGS:
                raise ValueError(f"roundings must be of {', '.join(ROUNDINGS)}, not {name!r}")
        if len(set(names)) != len(names):
            raise ValueError(f"roundings must name each mode once, not {names!r}")
        self._roundings = tuple(name for name in ROUNDINGS if name in names)
        super().__init__(
            {
                "i_sum": In(signed(32)),
                "i_multiplier": In(32),
                "i_shift": In(signed(6)),
                "rounding": In(range(len(ROUNDINGS))),
                "raw": In(1),
                "zero_point": In(signed(8)),
                "clamp_low": In(signed(8)),
                "clamp_high": In(signed(8)),
                "o": Out(signed(32)),
            }
        )

    @property
    def roundings(self) -> tuple[str, ...]:
        """Built modes, in the order of ROUNDINGS."""
        return self._roundings

    @property
    def latency(self) -> int:
        """Cycles from ``i_*`` to ``o``."""
        if not self._roundings:
            return 1
        return 11 if "fp32" in self._roundings else 8

    def _selected(self, *names: str) -> Value:
        """High when one of ``names`` is built and selected; a constant where that is known."""
        built = [name for name in self._roundings if name in names]
        if len(built) == len(self._roundings):
            return Const(1)
        return Cat(self.rounding == ROUNDINGS.index(name) for name in built).any()

    def elaborate(self, platform) -> Module:
        m = Module()
        if not self._roundings:
            total = Signal(signed(32), reset_less=True)
            m.d.sync += total.eq(self.i_sum)
            m.d.comb += self.o.eq(total)
            return m

        def register(value: Value, name: str, **kwargs) -> Signal:
            q = Signal(value.shape(), name=name, reset_less=kwargs.pop("reset_less", True))
            m.d.sync += q.eq(value)
            return q

        raw = self.raw
        has_float = "fp32" in self._roundings
        is_float = (self._selected("fp32") & ~raw) if has_float else Const(0)

        a, q, amount, force, left = self._align(m, is_float)
        if has_float:
            a_low, a_high, q, amount, force, left = self._normalise(
                m, is_float, a, q, amount, left, register
            )
        else:
            a_low, a_high, amount = a[:16], a[16:].as_signed(), amount[:5]

        # Four products: high and low 16 bits of either side. Those of an iCE40 go wrong without
        # their reset (Yosys merges them into adders), so they keep it everywhere.
        q_low, q_high = q[:16], q[16:31]
        low = register(a_low * q_low, "low", reset_less=False)
        middle_0 = register(a_high * q_low, "middle_0", reset_less=False)
        middle_1 = register(a_low * q_high, "middle_1", reset_less=False)
        high = register(a_high * q_high, "high", reset_less=False)
        travelling = Cat(amount, force, left)
        travelling = register(travelling, "travelling_1")

        # |middle_0| <= 2**31 and 0 <= middle_1 < 2**31 + 2**24, so 33 bits hold the sum; high and
        # low do not overlap, 31 bits of high reach the sign of P.
        middle = Signal(signed(33), reset_less=True)
        m.d.sync += middle.eq(middle_0 + middle_1)
        outer = register(Cat(low[:32], high[:31]), "outer")
        travelling = register(travelling, "travelling_2")

        upper = Signal(signed(47), reset_less=True)
        m.d.sync += upper.eq(outer[16:].as_signed() + middle)
        below_16 = register(outer[:16].any(), "below_16")
        travelling = register(travelling, "travelling_3")

        amount, force, left = travelling[:5], travelling[5], travelling[6]
        product = Cat(Const(0, 16), upper)
        negative = Signal()
        m.d.comb += negative.eq(upper[46] & ~raw)
        bits = Signal(31)  # rounding bit of amount 0, then the integer bits; bit 62 is the sign
        m.d.comb += bits.eq(product[31:62] ^ negative.replicate(31))
        seeds = self._carry_seeds(product, negative, below_16, left)

        # Shift right, largest step first, keeping 8 integer bits above the furthest step to come:
        # `over` collects what lies above, `ones` and `zeros` are what they say of all bits that
        # leave below. Raw sums pass in place, with the bits that the shifter drops beside it.
        over, ones, zeros = force, Const(1), Const(1)
        for step, width in ((16, 24), (8, 16)):
            shift = amount[step.bit_length() - 1]
            over, ones, zeros, bits = self._shift(m, shift, step, width, bits, over, ones, zeros)
        dropped = register(Cat(product[30], product[47:62]), "dropped_5")
        bits = register(bits, "bits_5")
        over = register(over, "over_5")
        ones, zeros = register(ones, "ones_5"), register(zeros, "zeros_5")
        seeds = register(seeds, "seeds_5")
        amount = register(amount[:3], "amount_5")
        negative = register(negative, "negative_5")

        ones, zeros = ones & seeds[0], zeros & seeds[1]
        dropped = register(Cat(dropped[0], bits[9:], dropped[1:]), "dropped_6")
        for step, width in ((4, 12), (2, 10), (1, 9)):
            shift = amount[step.bit_length() - 1]
            over, ones, zeros, bits = self._shift(m, shift, step, width, bits, over, ones, zeros)
        half = register(bits[0], "half_6")
        floor = register(Cat(bits[1:] ^ negative.replicate(8), negative), "floor_6")
        over = register(over, "over_6")
        ones, zeros = register(ones, "ones_6"), register(zeros, "zeros_6")
        passing = Cat(dropped[0], half, floor[:8], dropped[1:])

        negative = floor[8]
        if has_float:
            odd = floor[0] ^ negative
            up = Mux(
                is_float,
                Mux(half, ~zeros | odd, ones & odd),
                (half & ~zeros) | ones,
            )
        else:
            up = (half & ~zeros) | ones
        # One adder with carry in: the lowest bit makes the carry. -256 - 128 .. 256 + 127.
        moved = Signal(signed(11))
        m.d.comb += moved.eq(
            Cat(Const(1, 1), floor).as_signed() + Cat(up ^ negative, self.zero_point).as_signed()
        )
        result = Signal(signed(10), reset_less=True)
        with m.If(raw):
            m.d.sync += result.eq(0)
        with m.Else():
            m.d.sync += result.eq(moved[1:])
        over = register(over, "over_7")
        negative = register(negative, "negative_7")
        passing_7 = Signal(32, reset_less=True)
        with m.If(raw):
            m.d.sync += passing_7.eq(passing)
        with m.Else():
            m.d.sync += passing_7.eq(0)

        above = Signal()
        below = Signal()
        m.d.comb += [above.eq(result > self.clamp_high), below.eq(result < self.clamp_low)]
        clamped = ~raw & (over | above | below)
        bound = Mux(Mux(over, ~negative, above), self.clamp_high, self.clamp_low)
        sign = Mux(clamped, bound[7], result[9] & ~raw)
        byte = Signal(8, reset_less=True)
        extension = Signal(24, reset_less=True)
        m.d.sync += byte.eq(Mux(clamped, bound, result[:8] | passing_7[:8]))
        with m.If(sign):
            m.d.sync += extension.eq(-1)
        with m.Else():
            m.d.sync += extension.eq(passing_7[8:])
        m.d.comb += self.o.eq(Cat(byte, extension))
        return m

    def _align(self, m: Module, is_float: Value) -> tuple[Signal, Signal, Signal, Value, Signal]:
        """First stage: sum moved up by 16 bits or not, multiplier, shift amount.

        Returns the registers of the sum, of the multiplier, and of the amount (9 bits signed, with
        "fp32" still without the normalising shift), whether to saturate, and a mark: with "fp32"
        that the sum was moved, else that the first rounding takes place (a right shift).
        """
        total, shift = self.i_sum, self.i_shift
        has_float = "fp32" in self._roundings
        sign = total[31]
        fits = Signal()
        m.d.comb += fits.eq(~_differs(total[15:31], sign))
        left = Signal()
        m.d.comb += left.eq(Mux(is_float, fits, ~shift[5]) & ~self.raw)
        # Left shifts of 16 and more push every sum but 0 out of range.
        lost = ~is_float & (~fits | (shift[4] & total[:16].any()))

        a = Signal(signed(32), name="a_1", reset_less=True)
        with m.If(left):
            m.d.sync += [
                a[:16].eq(0),
                a[16:30].eq(total[:14]),
                a[30].eq(Mux(lost, ~sign, total[14])),
            ]
        with m.Else():
            m.d.sync += a[:31].eq(total[:31])
        m.d.sync += a[31].eq(sign)

        # Raw sums are multiplied by 2**30, significands of a float32 have 24 bits. A subnormal
        # scale reads as a normal one of the same exponent: either gives 0.
        q = Signal(31, name="q_1", reset_less=True)
        with m.If(self.raw):
            m.d.sync += q[:23].eq(0)
        with m.Else():
            m.d.sync += q[:23].eq(self.i_multiplier[:23])
        with m.If(self.raw | is_float):
            m.d.sync += q[24:30].eq(0)
        with m.Else():
            m.d.sync += q[24:30].eq(self.i_multiplier[24:30])
        m.d.sync += [
            q[23].eq(~self.raw & (is_float | self.i_multiplier[23])),
            q[30].eq(self.raw | (~is_float & self.i_multiplier[30])),
        ]

        # s - 32: -1 - shift for a right shift, 15 - shift once the sum is moved; 118 - exponent.
        amount = Signal(signed(9), name="amount_1", reset_less=True)
        fixed = Cat(~shift[:4], shift[5] & ~shift[4])
        if has_float:
            m.d.sync += amount.eq(Mux(is_float, 118 - self.i_multiplier[23:31], fixed))
        else:
            m.d.sync += amount.eq(fixed)
        with m.If(self.raw):
            m.d.sync += amount.eq(0)
        mark = Signal(name="mark_1", reset_less=True)
        m.d.sync += mark.eq(left)
        return a, q, amount, Const(0), mark

    def _normalise(self, m, is_float, a, q, amount, moved, register):
        """Three stages of "fp32": bring the sum to 31 bits and sign, round it to 24."""
        # Steps 8 and 4.
        by_8 = Signal()
        m.d.comb += by_8.eq(is_float & ~_differs(a[23:31], a[31]))
        a_8 = Mux(by_8, Cat(Const(0, 8), a[:24]), a.as_unsigned())
        by_4 = Signal()
        m.d.comb += by_4.eq(is_float & ~_differs(a_8[27:31], a_8[31]))
        a_2 = register(Mux(by_4, Cat(Const(0, 4), a_8[:28]), a_8), "a_2")
        count = register(Cat(by_4, by_8, moved), "count_2")
        q, amount = register(q, "q_2"), register(amount, "amount_2")

        # Steps 2 and 1. Of the bits that the rounding drops, only "any" is kept below the half.
        by_2 = Signal()
        m.d.comb += by_2.eq(is_float & ~_differs(a_2[29:31], a_2[31]))
        a_4 = Mux(by_2, a_2[3:30], a_2[5:])
        rest = a_2[:3].any() | (~by_2 & a_2[3:5].any())
        by_1 = Signal()
        m.d.comb += by_1.eq(is_float & (a_4[26] == a_4[25]))
        a_3 = register(Mux(by_1, a_4[:26], a_4[1:]), "a_3")  # bits 6..31
        rest = register(rest | (~by_1 & a_4[0]), "rest_3")
        whole = Signal(6, reset_less=True, name="whole_3")  # bits 0..5 for the other modes
        with m.If(is_float):
            m.d.sync += whole.eq(0)
        with m.Else():
            m.d.sync += whole.eq(a_2[:6])
        count = register(Cat(by_1, by_2, count), "count_3")
        q, amount = register(q, "q_3"), register(amount, "amount_3")

        # The carry of the rounding stays in the low part, which grows to 17 bits.
        up = is_float & a_3[0] & (a_3[1] | rest)
        a_low = Signal(17, reset_less=True)
        with m.If(is_float):
            m.d.sync += a_low[:7].eq(0)
        with m.Else():
            m.d.sync += a_low[:7].eq(Cat(whole, a_3[0]))
        m.d.sync += a_low[7:].eq(a_3[1:10] + up)
        a_high = register(a_3[10:].as_signed(), "a_high")
        right = Signal(signed(10))
        m.d.comb += right.eq(amount + Cat(count[:4], count[4] & is_float))
        far = ~right[9] & right[5:9].any()
        amount = register(right[:5] | far.replicate(5), "amount_4")
        # A sum of 0 has no leading one.
        force = register(right[9] & (a_3[25] ^ a_3[24]), "force_4")
        return a_low, a_high, register(q, "q_4"), amount, force, register(count[4], "mark_4")

    def _carry_seeds(self, product, negative, below_16, left) -> Value:
        """Whether "all" and "none" of the bits under bit 31 carry into the rounding bit."""
        selected = self._selected
        any_28 = below_16 | product[16:29].any()
        any_29 = any_28 | product[29]
        any_30 = any_29 | product[30]
        bit_30 = product[30] ^ negative
        ones: list[Value] = []
        zeros: list[Value] = []
        if "double" in self._roundings:
            ones.append(selected("double") & ~left & bit_30)
        if "double_up" in self._roundings:
            ones.append(selected("double_up") & ~left & ~negative & bit_30)
            zeros.append(selected("double_up") & ~left & negative & ~bit_30)
        if "away" in self._roundings:
            ones.append(selected("away") & negative & ~any_30)
        if "fp32" in self._roundings:
            # Half to even of the product at bit 31, or at bit 30 if it is one bit shorter.
            long = product[54] ^ negative
            up_31 = (product[30] & (product[31] | any_29)) ^ negative
            up_30 = (product[29] & (product[30] | any_28)) ^ negative
            ones.append(selected("fp32") & Mux(long, up_31, up_30 & bit_30))
            zeros.append(selected("fp32") & ~Mux(long, up_31, up_30 | bit_30))
        return Cat(Cat(*ones).any(), Cat(*zeros).any())

    def _shift(self, m, shift, step, width, bits, over, ones, zeros):
        """One step of the shifter; returns over, ones, zeros and ``width`` bits."""
        shifted = Signal(width, name=f"shifted_{step}")
        m.d.comb += shifted.eq(Mux(shift, bits[step:], bits[:width]))
        over = over | (~shift & bits[width:].any())
        ones = ones & (~shift | bits[:step].all())
        zeros = zeros & ~(shift & bits[:step].any())
        return over, ones, zeros, shifted
