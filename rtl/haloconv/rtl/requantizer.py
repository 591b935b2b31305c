"""One int32 sum into one int8 result each cycle, in the built rounding modes."""

from collections.abc import Iterable, Mapping
from typing import Any

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from haloconv.planner.requantization import ROUNDINGS
from haloconv.rtl.registered_product import registered_product

__all__ = ["Requantizer", "mode_selected", "requantizer_members"]


def _register(
    m: Module,
    value: Value,
    name: str,
    *,
    clear: Value | None = None,
    reset_less: bool = True,
) -> Signal:
    """Register ``value``; ``clear`` makes 0 of it, by the flip-flop's own reset on most FPGAs."""
    q = Signal(value.shape(), name=name, reset_less=reset_less)
    m.d.sync += q.eq(value)
    if clear is not None:
        with m.If(clear):
            m.d.sync += q.eq(0)
    return q


def _differs(bits: Value, sign: Value) -> Value:
    """High when a bit of ``bits`` is not ``sign``."""
    return (bits ^ sign.replicate(len(bits))).any()


def requantizer_members() -> dict[str, Any]:
    """Return the members that every kind of requantiser has; :class:`Requantizer` explains them."""
    return {
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


def mode_selected(roundings: tuple[str, ...], code: Value, name: str) -> Value:
    """High when mode ``name`` is built and selected; a constant where that is known."""
    if roundings == (name,):
        return Const(1)
    if name not in roundings:
        return Const(0)
    return code == ROUNDINGS.index(name)


class Requantizer(wiring.Component):
    """Scale, round, move and clamp one int32 sum a cycle, exactly (docs/arithmetic.md).

    Every mode is a shift of one product ``P = sum * multiplier`` to the right by ``s`` >= 32 and
    one increment, so the modes share multiplier, shifter and clamp and differ in a few gates::

        i_sum -> align -> [normalise, round to 24 bits] -> 4 products -> middle two added -> P
          P ^ sign -> shift by 16, 8 -> 4, 2 -> 1 -> ^ sign -> + zero point + increment -> clamp

    * A left shift leaves the range of int8 unless the sum fits 16 bits. So such a sum is moved up
      by a constant 16 bits, and the shifter takes ``15 - i_shift`` of them back. Any other stays
      as it is, and stays out of range.
    * "double" and "double_up" round at bit 31 of P first. That sum is never formed: it matters to
      the second rounding only by a carry that runs from bit 30 through all bits below the second
      rounding bit, when all of them are one. Negative products are shifted as their ones'
      complement, which turns "tie away from zero" into "tie up" of the magnitude; "double_up"
      looks for all zero instead where the product is negative. "single" has no such carry, and
      that of "away" starts from all bits of a negative product.
    * "fp32" brings the sum to 31 bits and rounds it to 24, so that the product of the significands
      has its leading one at one of two places. Its rounding to 24 bits is such a carry again, and
      all zero below the rounding bit is a tie.

    There is no valid and no stall: whoever needs them delays them by :attr:`latency`.

    Timing
    ------
    Latency 10 cycles, 13 with "fp32", 1 without any mode; initiation interval 1. Both hold for raw
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
        0..2**31 - 1, and 0 or at least 2**30 where ``i_shift`` is not negative; for "fp32" the bits
        of a positive finite float32.
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
        Result of the sum of :attr:`latency` cycles ago: the bits of an int8 value with zeros above,
        or the sum.

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
        super().__init__(requantizer_members())

    @property
    def roundings(self) -> tuple[str, ...]:
        """Built modes, in the order of ROUNDINGS."""
        return self._roundings

    @property
    def latency(self) -> int:
        """Cycles from ``i_*`` to ``o``."""
        if not self._roundings:
            return 1
        return 13 if "fp32" in self._roundings else 10

    def _selected(self, name: str) -> Value:
        return mode_selected(self._roundings, self.rounding, name)

    def elaborate(self, platform) -> Module:
        m = Module()
        if not self._roundings:
            m.d.comb += self.o.eq(_register(m, self.i_sum, "sum"))
            return m
        if "fp32" in self._roundings:
            multiplicand, multiplier, control = self._prepare_float(m)
        else:
            multiplicand, multiplier, control = self._prepare(m)
        outer, middle, control = self._multiply(m, platform, multiplicand, multiplier, control)
        product, negative, below_16, control = self._add(m, outer, middle, control)
        # The code is decoded a cycle ahead: it stands still long before a product comes.
        late = {name: self._selected(name) for name in ROUNDINGS}
        if len(self._roundings) > 1:
            late |= {name: _register(m, late[name], f"is_{name}") for name in self._roundings}
        floor, up, over, passing = self._shift(m, late, product, negative, below_16, control)
        self._finish(m, floor, up, over, passing)
        return m

    def _align(self, m: Module, is_float: Value, fits: Value) -> tuple[Value, Value, Signal]:
        """Sum moved up by 16 bits or not, multiplier, and whether the sum was moved."""
        total, raw = self.i_sum, self.raw
        moved = Signal()
        m.d.comb += moved.eq(fits & (is_float | ~self.i_shift[5]) & ~raw)
        upper = Mux(moved, total[:15], total[16:31])
        low = _register(m, total[:16], "aligned_low", clear=moved)
        high = _register(m, Cat(upper, total[31]), "aligned_high")

        # Raw sums are multiplied by 2**30, significands of a float32 have 24 bits. A subnormal
        # scale reads as a normal one of the same exponent: either gives 0.
        given = self.i_multiplier
        multiplier = Cat(
            _register(m, given[:23], "multiplier_low", clear=raw),
            _register(m, (given[23] | is_float) & ~raw, "multiplier_23"),
            _register(m, given[24:30], "multiplier_high", clear=raw | is_float),
            _register(m, raw | (given[30] & ~is_float), "multiplier_30"),
        )
        return Cat(low, high), multiplier, _register(m, moved, "moved")

    def _fixed_amount(self, fits: Value) -> Value:
        """Steps to the right beyond bit 31 of P: -1 - shift, or 15 - shift once the sum is moved.

        A left shift by 16 or more, or of a sum of more than 16 bits, is out of range whatever the
        multiplier is, 0 apart. No step at all leaves it there.
        """
        shift = self.i_shift
        stays = ~shift[5] & (shift[4] | ~fits)
        return Cat(~shift[:4], shift[5] & ~shift[4]) & ~stays.replicate(5)

    def _prepare(self, m: Module) -> tuple[tuple[Value, Value], Value, Value]:
        """First stage without "fp32"."""
        fits = ~_differs(self.i_sum[15:31], self.i_sum[31])
        a, q, moved = self._align(m, Const(0), fits)
        amount = _register(m, self._fixed_amount(fits), "amount", clear=self.raw)
        return (a[:16], a[16:].as_signed()), q, Cat(amount, moved, Const(0, 1))

    def _prepare_float(self, m: Module) -> tuple[tuple[Value, Value], Value, Value]:
        """First four stages with "fp32": bring the sum to 31 bits and sign, round it to 24."""
        total = self.i_sum
        float_now = self._selected("fp32") & ~self.raw
        is_float = _register(m, float_now, "is_float_now")

        # Four bits each that a normalising step of 4 drops: nothing but sign?
        empty = [~_differs(total[k : k + 4], total[31]) for k in range(27, 2, -4)]
        fits = ~_differs(total[15:31], total[31])
        a, q, moved = self._align(m, float_now, fits)
        empty_8 = _register(
            m, Cat(empty[0] & empty[1], empty[4] & empty[5]), "empty_8", clear=~float_now
        )
        empty_4 = _register(m, Cat(*empty[::2]), "empty_4", clear=~float_now)
        # Right shift of a float: 118 - exponent + normalising.
        amount = Signal(signed(9))
        m.d.comb += amount.eq(
            Mux(float_now, 118 - self.i_multiplier[23:31], self._fixed_amount(fits))
        )
        amount = _register(m, amount, "amount_1", clear=self.raw)

        # Steps 8 and 4.
        by_8 = Mux(moved, empty_8[1], empty_8[0])
        by_4 = Mux(by_8, Mux(moved, empty_4[3], empty_4[1]), Mux(moved, empty_4[2], empty_4[0]))
        a = Mux(by_8, Cat(Const(0, 8), a[:24]), a)
        a = Mux(by_4, Cat(Const(0, 4), a[:28]), a)
        a = _register(m, a, "normalised_4")
        steps = _register(m, Cat(by_4, by_8, moved & is_float), "steps_2")
        control = _register(m, moved, "control_2")
        q, amount = _register(m, q, "multiplier_2"), _register(m, amount, "amount_2")

        # Steps 2 and 1. Of the bits that the rounding drops, only "any" is kept below the half.
        by_2 = is_float & ~_differs(a[29:31], a[31])
        upper = Mux(by_2, a[3:30], a[5:])  # bits 5..31
        by_1 = is_float & (upper[26] == upper[25])
        rest = a[:3].any() | (~by_2 & a[3:5].any()) | (~by_1 & upper[0])
        upper = _register(m, Mux(by_1, upper[:26], upper[1:]), "normalised_1")  # bits 6..31
        rest = _register(m, rest, "rest")
        exact = _register(m, a[:6], "exact", clear=is_float)  # bits 0..5 for the other modes
        steps = _register(m, Cat(by_1, by_2, steps), "steps_3")
        control = _register(m, control, "control_3")
        q, amount = _register(m, q, "multiplier_3"), _register(m, amount, "amount_3")

        # The carry of the rounding stays in the low part, which grows to 17 bits.
        carry = is_float & upper[0] & (upper[1] | rest)
        rounded = Signal(10)
        m.d.comb += rounded.eq(upper[1:10] + carry)
        low = Cat(
            _register(m, Cat(exact, upper[0]), "multiplicand_exact", clear=is_float),
            _register(m, rounded, "multiplicand_low"),
        )
        high = _register(m, upper[10:].as_signed(), "multiplicand_high")
        right = Signal(signed(10))
        m.d.comb += right.eq(amount + steps)
        right = _register(m, right, "amount_4")
        # A sum of 0 has no leading one and must not saturate.
        nonzero = _register(m, upper[25] ^ upper[24], "nonzero")
        control = _register(m, control, "control_4")
        q = _register(m, q, "multiplier_4")
        far = ~right[9] & right[5:9].any()
        amount = right[:5] | far.replicate(5)
        return (low, high), q, Cat(amount, control, right[9] & nonzero)

    def _multiply(
        self,
        m: Module,
        platform: object,
        multiplicand: tuple[Value, Value],
        multiplier: Value,
        control: Value,
    ) -> tuple[Signal, Signal, Signal]:
        """Three stages: products of high and low 16 bits, of which the middle two are added."""
        low, high = multiplicand

        def product(a: Value, q: Value, name: str) -> Signal:
            return registered_product(m, platform, name, a, q, cycles=2)

        low_low = product(low, multiplier[:16], "low_low")
        high_low = product(high, multiplier[:16], "high_low")
        low_high = product(low, multiplier[16:31], "low_high")
        high_high = product(high, multiplier[16:31], "high_high")
        control = _register(m, _register(m, control, "control_operands"), "control_products")

        # |high_low| <= 2**31 and 0 <= low_high < 2**31 + 2**24, so 33 bits hold the sum. The outer
        # two do not overlap, and 31 bits of high_high reach the sign of P.
        middle = Signal(signed(33))
        m.d.comb += middle.eq(high_low + low_high)
        outer = _register(m, Cat(low_low[:32], high_high[:31]), "outer")
        middle = _register(m, middle, "middle")
        return outer, middle, _register(m, control, "control_middle")

    def _add(
        self, m: Module, outer: Value, middle: Value, control: Value
    ) -> tuple[Value, Signal, Signal, Signal]:
        """One stage: P, its sign (0 for raw sums), and whether any of its low 16 bits is one."""
        total = Signal(signed(47))
        m.d.comb += total.eq(outer[16:].as_signed() + middle)
        product = Cat(Const(0, 16), _register(m, total, "product"))
        negative = _register(m, total[46], "negative", clear=self.raw)
        below_16 = _register(m, outer[:16].any(), "below_16")
        return product, negative, below_16, _register(m, control, "control_product")

    def _shift(
        self,
        m: Module,
        late: Mapping[str, Value],
        product: Value,
        negative: Value,
        below_16: Value,
        control: Value,
    ) -> tuple[Value, Signal, Signal, Value]:
        """Three stages: floor of P >> s in 9 bits, increment, out of range or not, raw sum.

        Steps go from large to small and keep 8 integer bits above the furthest step to come. Of
        the bits that leave above only "any one" matters, of those below "all one" and "all zero".
        Raw sums pass unshifted; ``beside`` carries what the steps drop of them.
        """
        # Bit 31 is the rounding bit if no step is taken, bit 62 the sign.
        bits = product[31:62] ^ negative.replicate(31)
        step_4, step_3 = control[4], control[3]
        bits_4 = Mux(step_4, bits[16:], bits[:24])
        over = Cat(control[6] | (~step_4 & bits[24:].any()), ~step_4 & ~step_3 & bits[16:24].any())
        ones = Cat(~step_4 | bits[:16].all(), ~step_3 | bits_4[:8].all())
        zeros = Cat(~step_4 | ~bits[:16].any(), ~step_3 | ~bits_4[:8].any())
        seed_ones, seed_zeros = self._seeds(m, late, product, negative, below_16, control[5])
        bits = _register(m, Mux(step_3, bits_4[8:], bits_4[:16]), "bits_3")
        over = _register(m, over, "over_3").any()
        ones, zeros = _register(m, ones, "ones_3").all(), _register(m, zeros, "zeros_3").all()
        negative = _register(m, negative, "negative_3")
        beside = _register(m, Cat(product[30], product[47:62]), "beside_3")
        amount = _register(m, control[:3], "amount_3")

        step_2, step_1 = amount[2], amount[1]
        bits_2 = Mux(step_2, bits[4:], bits[:12])
        over |= (~step_2 & bits[12:].any()) | (~step_1 & bits_2[10:].any())
        ones &= (~step_2 | bits[:4].all()) & (~step_1 | bits_2[:2].all())
        zeros &= (~step_2 | ~bits[:4].any()) & (~step_1 | ~bits_2[:2].any())
        beside = _register(m, Cat(beside[0], bits[10:], beside[1:]), "beside_1")
        bits = _register(m, Mux(step_1, bits_2[2:], bits_2[:10]), "bits_1")
        over = _register(m, over, "over_1")
        ones = _register(m, ones & seed_ones, "ones_1")
        zeros = _register(m, zeros & seed_zeros, "zeros_1")
        negative = _register(m, negative, "negative_1")
        step_0 = _register(m, amount[0], "amount_1")

        bits_0 = Mux(step_0, bits[1:], bits[:9])
        over = _register(m, over | (~step_0 & bits[9]), "over")
        ones &= ~step_0 | bits[0]
        zeros &= ~step_0 | ~bits[0]
        half, odd = bits_0[0], bits_0[1]
        is_float = late["fp32"]
        # A tie is half & zeros: up to even for "fp32". Ones carry into the half, and make a tie
        # where they carry into a half of 0.
        up = (half & (~zeros | (is_float & odd))) | (ones & (~is_float | odd))
        up = _register(m, up ^ negative, "up")
        floor = _register(m, Cat(bits_0[1:] ^ negative.replicate(8), negative), "floor")
        half = _register(m, half, "half")
        beside = _register(m, Cat(beside[0], bits[9], beside[1:]), "beside_0")
        return floor, up, over, Cat(beside[0], half, floor[:8], beside[1:])

    def _seeds(
        self,
        m: Module,
        late: Mapping[str, Value],
        product: Value,
        negative: Value,
        below_16: Value,
        moved: Value,
    ) -> tuple[Value, Value]:
        """One stage: do the bits below bit 31 carry as ones (as zeros, tie) into those above?"""
        any_28 = below_16 | product[16:29].any()
        any_30 = any_28 | product[29:31].any()
        bit_30 = product[30] ^ negative
        fixed = ~moved & bit_30 & (late["double"] | (late["double_up"] & ~negative))
        ones = fixed | (late["away"] & negative & ~any_30)
        zeros = late["double_up"] & ~moved & negative & ~bit_30
        ones, zeros = _register(m, ones, "seed_ones"), _register(m, zeros, "seed_zeros")
        if "fp32" in self._roundings:
            # Half to even of the product at bit 31, or at bit 30 if it is one bit shorter.
            up_31 = product[30] & (product[31] | product[29] | any_28)
            up_30 = product[29] & (product[30] | any_28)
            up_31 = _register(m, up_31 ^ negative, "up_31")
            up_30 = _register(m, up_30 ^ negative, "up_30")
            bit_30 = _register(m, bit_30, "bit_30")
            long = _register(m, product[54] ^ negative, "long")
            ones |= late["fp32"] & Mux(long, up_31, up_30 & bit_30)
            zeros |= late["fp32"] & ~Mux(long, up_31, up_30 | bit_30)
        return ones, zeros

    def _finish(self, m: Module, floor: Value, up: Value, over: Value, passing: Value) -> None:
        """Two stages: zero point and increment, then clamp; the lower bound or a raw sum."""
        # Distances above ``clamp_low`` are clamped to 0 and ``span``, then it is added again: one
        # comparison, and the flip-flops' own reset. These stand still while sums come.
        low = _register(m, self.clamp_low, "low", clear=self.raw)
        offset = Signal(signed(9), name="offset", reset_less=True)
        span = Signal(8, name="span", reset_less=True)
        m.d.sync += [
            offset.eq(self.zero_point - self.clamp_low),
            span.eq(self.clamp_high - self.clamp_low),
        ]
        # One adder with carry in: the lowest bit makes the carry. -256 - 255 .. 256 + 255.
        moved = Signal(signed(11))
        m.d.comb += moved.eq(Cat(Const(1, 1), floor).as_signed() + Cat(up, offset).as_signed())
        negative = floor[8]
        below = _register(m, Mux(over, negative, moved[10]), "below", clear=self.raw)
        above = Mux(over, ~negative, ~moved[10] & moved[9])
        above = _register(m, above, "above", clear=self.raw)
        distance = _register(m, moved[1:9], "distance", clear=self.raw)
        passing = _register(m, passing, "passing", clear=~self.raw)

        # The sign of a difference costs less than a comparison.
        left = Signal(signed(9))
        m.d.comb += left.eq(span - distance)
        clamped = Mux(above | left[8], span, distance) | passing[:8]
        clamped = _register(m, clamped, "clamped", clear=below)
        passing = _register(m, passing[8:], "passing_high")
        m.d.comb += self.o.eq(Cat((clamped + low)[:8], passing))
