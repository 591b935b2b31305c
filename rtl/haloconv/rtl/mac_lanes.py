"""Pm x Pr multiply lanes with output-stationary int32 accumulators."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from haloconv.planner.config import EngineConfig
from haloconv.rtl.weight_buffer import weight_shape
from haloconv.rtl.widths import tree_sum

__all__ = ["MacLanes"]

# Offsets are within -255..255 (nine bits), so a product needs 17 bits and a sign.
PRODUCT = signed(18)


class MacLanes(wiring.Component):
    """Each lane multiplies an input offset by a weight offset.

    In channel mode the Pr products of an output lane are added in a tree and accumulate in its
    first column. In the row modes every lane accumulates its own products. Sums wrap modulo 2**32:
    intermediate wraps cancel, as the finished sum is known to fit int32.

    Timing: latency :attr:`latency` from operands to the accumulator; a step a cycle.

    Resources: Pm * Pr multipliers of nine bits, as many 32-bit adders, Pm trees of Pr products.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    operands, weights : In(ArrayLayout(ArrayLayout(..., Pr), Pm))
    channel_mode : In(1)
    valid, first : In(1)
        Stand with the operands; ``first`` starts a new sum.
    maximum : In(1)
        With the unit "max_pool": keep the largest product of each lane. Holds during a layer.
    sums : Out(ArrayLayout(ArrayLayout(signed(32), Pm), Pr))
        By column, ``latency`` cycles after the operands.
    """

    operands: data.View
    weights: data.View
    channel_mode: Signal
    valid: Signal
    first: Signal
    maximum: Signal
    sums: data.View

    latency = 3
    """Cycles from the operands to ``sums``."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        lanes_out, lanes_split = config.out_lanes, config.split_lanes
        operands = data.ArrayLayout(data.ArrayLayout(signed(9), lanes_split), lanes_out)
        weights = data.ArrayLayout(data.ArrayLayout(weight_shape(config), lanes_split), lanes_out)
        sums = data.ArrayLayout(data.ArrayLayout(signed(32), lanes_out), lanes_split)
        super().__init__(
            {
                "operands": In(operands),
                "weights": In(weights),
                "channel_mode": In(1),
                "valid": In(1),
                "first": In(1),
                **({"maximum": In(1)} if "max_pool" in config.built_units else {}),
                "sums": Out(sums),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        lanes_out, lanes_split = self._config.out_lanes, self._config.split_lanes
        valid_2, first_2, valid_3, first_3 = Signal(), Signal(), Signal(), Signal()
        m.d.sync += [
            valid_2.eq(self.valid),
            first_2.eq(self.first),
            valid_3.eq(valid_2),
            first_3.eq(first_2),
        ]
        tree_width = signed(18 + (lanes_split - 1).bit_length())
        for lane in range(lanes_out):
            products: list[Value] = []
            for split in range(lanes_split):
                # Keeps its reset: yosys' iCE40 flow builds wrong hardware from a reset-less one.
                product = Signal(PRODUCT, name=f"product_{lane}_{split}")
                m.d.sync += product.eq(self.operands[lane][split] * self.weights[lane][split])
                products.append(product)
            for split in range(lanes_split):
                shape = tree_width if split == 0 else PRODUCT
                addend = Signal(shape, name=f"addend_{lane}_{split}")
                if split == 0:
                    m.d.sync += addend.eq(
                        Mux(self.channel_mode, tree_sum(list(products)), products[0])
                    )
                else:
                    m.d.sync += addend.eq(products[split])
                total = Signal(signed(32), reset_less=True, name=f"sum_{lane}_{split}")
                with m.If(valid_3):
                    m.d.sync += total.eq(Mux(first_3, 0, total) + addend)
                    if "max_pool" in self._config.built_units:
                        with m.If(self.maximum):
                            m.d.sync += total.eq(Mux(first_3 | (addend > total), addend, total))
                m.d.comb += self.sums[split][lane].eq(total)
        return m
