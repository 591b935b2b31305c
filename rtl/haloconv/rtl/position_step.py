"""Steps of halo buffer positions, which are pairs so that no division by Pr is needed."""

from amaranth import *
from amaranth.lib import data
from amaranth.utils import exact_log2

from haloconv.planner.config import EngineConfig
from haloconv.rtl.fused_sum import selected_sum
from haloconv.rtl.widths import Position

__all__ = ["one_of", "stepped"]


def one_of(*choices: tuple[Value, Value]) -> Value:
    """Return the value whose condition is high, of (condition, value); zero if none is.

    At most one is: so two choices take a LUT of four inputs a bit, where a chain of conditions
    needs one for each.
    """
    result: Value = C(0, 1)
    for condition, value in choices:
        result = result | (value & condition.replicate(len(value)))
    return result


def stepped(
    m: Module,
    platform: object,
    config: EngineConfig,
    name: str,
    bank: Value,
    word: Value,
    select: Value,
    one: data.View,
    other: data.View,
) -> data.View:
    """Return the position that lies (``bank``, ``word``) behind ``Mux(select, one, other)``.

    ``bank`` is below Pr. ``word`` counts modulo the address range, so its sign does not matter.
    """
    moved = Signal(Position(config), name=name)
    lanes = config.split_lanes
    if lanes & (lanes - 1) == 0:
        # Bank and word are one number.
        bits = exact_log2(lanes)

        def number(bank: Value, word: Value) -> Value:
            return Cat(bank[:bits], word[: len(moved.word)]).as_signed()

        total = selected_sum(
            m, platform, f"{name}_number", bits + len(moved.word), number(bank, word), select,
            number(one.bank, one.word), number(other.bank, other.word),
        )  # fmt: skip
        m.d.comb += [moved.bank.eq(total[:bits]), moved.word.eq(total[bits:])]
        return moved
    total, carry = Signal(7, name=f"{name}_total"), Signal(name=f"{name}_carry")
    m.d.comb += [
        total.eq(Mux(select, one.bank, other.bank) + bank),
        carry.eq(total >= lanes),
        moved.bank.eq(Mux(carry, total - lanes, total)),
        moved.word.eq(Mux(select, one.word, other.word) + word[: len(moved.word)] + carry),
    ]
    return moved
