"""Pm x Pr multiply lanes with output-stationary accumulators."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from haloconv.planner.config import EngineConfig
from haloconv.planner.latency import has_spare_registers, row_cycles
from haloconv.rtl.fused_sum import picked_sum
from haloconv.rtl.product_sum import product_sum
from haloconv.rtl.registered_product import registered_product
from haloconv.rtl.weight_buffer import weight_shape

__all__ = ["LaneSums", "MacLanes", "sum_shape"]

# Offsets are within -255..255 (nine bits), and so is no product at -2**16.
PRODUCT = signed(17)


def sum_shape(config: EngineConfig) -> Shape:
    """Shape of a lane's sum over any group, at most int32.

    Each step of a group takes the next weight word, so it has no more steps than there are words.
    """
    weight = 255 if config.weight_zero_points else 128
    largest = config.weight_words * 255 * weight
    return signed(min(32, largest.bit_length() + 1))


class LaneSums(data.ArrayLayout):
    """The sums of all lanes, by column."""

    def __init__(self, config: EngineConfig) -> None:
        column = data.ArrayLayout(sum_shape(config), config.out_lanes)
        super().__init__(column, config.split_lanes)


class MacLanes(wiring.Component):
    """Each lane multiplies an input offset by a weight offset and accumulates its own products.

    The last product of a group is added on the way out, while the accumulator is cleared: so the
    next group starts from zero without a multiplexer in front of 32-bit adders. In channel mode
    whoever takes the sums adds those of an output lane.

    Beside serial requantisers the lanes keep the sums until they are taken: they are shifted out,
    and no register takes them over. The accumulators are then those of the iCE40's multipliers.

    Timing: latency :attr:`latency` from operands to sums; a step a cycle.

    Resources: Pm * Pr multipliers of nine bits with their registers, as many accumulators of
    :func:`sum_shape`; with the unit "max_pool" as many comparators of 17 bits.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    operands, weights : In(ArrayLayout(ArrayLayout(..., Pr), Pm))
    valid, last : In(1)
        Stand with the operands; ``last`` ends a group, what follows starts a new one.
    maximum : In(1)
        With the unit "max_pool": keep the largest product of each lane. Holds during a layer.
    shift, clear : In(Pr)
        Beside serial requantisers: the sums of a column move by Q output lanes; they are zero two
        cycles later.
    sums : Out(LaneSums)
        Of the products up to those of ``latency`` cycles ago; holds for one cycle. Beside serial
        requantisers they come a cycle later and stay.
    """

    operands: data.View
    weights: data.View
    valid: Signal
    last: Signal
    maximum: Signal
    shift: Signal
    clear: Signal
    sums: data.View

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        lanes_out, lanes_split = config.out_lanes, config.split_lanes
        operands = data.ArrayLayout(data.ArrayLayout(signed(9), lanes_split), lanes_out)
        weights = data.ArrayLayout(data.ArrayLayout(weight_shape(config), lanes_split), lanes_out)
        super().__init__(
            {
                "operands": In(operands),
                "weights": In(weights),
                "valid": In(1),
                "last": In(1),
                **(
                    {"shift": In(lanes_split), "clear": In(lanes_split)}
                    if row_cycles(config) > 1
                    else {}
                ),
                **({"maximum": In(1)} if "max_pool" in config.built_units else {}),
                "sums": Out(LaneSums(config)),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from the operands to ``sums``: the product, and where there are spare registers
        one for its operands."""
        return 2 if has_spare_registers(self._config) else 1

    def elaborate(self, platform) -> Module:
        m = Module()
        pools = "max_pool" in self._config.built_units
        valid, last = Signal(), Signal()
        if row_cycles(self._config) > 1:
            m.d.sync += [valid.eq(self.valid), last.eq(self.last)]
            self._keep(m, platform, valid, last)
            return m
        valid_before, last_before = Signal(), Signal()
        m.d.sync += [
            valid_before.eq(self.valid),
            last_before.eq(self.last),
            valid.eq(valid_before),
            last.eq(last_before),
        ]
        fresh = Signal(init=1)
        with m.If(valid):
            m.d.sync += fresh.eq(last)
        # All sums are cleared by one register: no gate stands before so long a net, and a reset
        # comes the same way, a cycle later.
        clear = Signal(init=1)
        m.d.sync += clear.eq(valid_before & last_before)
        for lane in range(self._config.out_lanes):
            for split in range(self._config.split_lanes):
                whole = registered_product(
                    m, platform, f"product_{lane}_{split}",
                    self.operands[lane][split], self.weights[lane][split], cycles=2,
                )  # fmt: skip
                product = whole[: PRODUCT.width].as_signed()
                total = self.sums[split][lane]
                held = Signal(total.shape(), reset_less=True, name=f"held_{lane}_{split}")
                if pools:
                    # A maximum fits a product, and so does what is held of it.
                    most = held[: PRODUCT.width].as_signed()
                    replaces = Signal(name=f"replaces_{lane}_{split}")
                    m.d.comb += replaces.eq(fresh | (product > most))
                    m.d.comb += total.eq(
                        picked_sum(
                            m, platform, f"sum_{lane}_{split}", len(held), held, product,
                            self.maximum, replaces,
                        )
                    )  # fmt: skip
                else:
                    m.d.comb += total.eq(held + product)
                # In this order the flip-flops' own reset and enable do both.
                with m.If(clear):
                    m.d.sync += held.eq(0)
                with m.Elif(valid):
                    m.d.sync += held.eq(total)
        return m

    def _keep(self, m: Module, platform: object, valid: Signal, last: Signal) -> None:
        """Lanes that keep their sums until they are shifted out."""
        config = self._config
        # An asynchronous reset on the iCE40, whose registers begin at 0: a gate that inverts one
        # that begins at 1 would stand before it.
        reset, clear = Signal(init=1), Signal(config.split_lanes)
        m.d.sync += [reset.eq(0), clear.eq(self.clear | reset.replicate(config.split_lanes))]
        pools = "max_pool" in config.built_units
        fresh = Signal(init=1)
        if pools:
            with m.If(valid):
                m.d.sync += fresh.eq(last)
        for split in range(config.split_lanes):
            shift = self.shift[split]
            for lane in range(config.out_lanes):
                name, total = f"{lane}_{split}", self.sums[split][lane]
                operands = self.operands[lane][split], self.weights[lane][split]
                # From the lane that is Q further on.
                source = lane + config.results_per_cycle
                value = (
                    self.sums[split][source] if source < config.out_lanes else C(0, total.shape())
                )
                if not pools:
                    held = product_sum(
                        m, platform, f"sum_{name}", *operands,
                        add=valid, load=shift, value=value, clear=clear[split],
                    )  # fmt: skip
                    m.d.comb += total.eq(held)
                    continue
                whole = registered_product(m, platform, f"product_{name}", *operands)
                product = whole[: PRODUCT.width].as_signed()
                held = Signal(total.shape(), name=f"held_{name}")
                m.d.comb += total.eq(held)
                most = held[: PRODUCT.width].as_signed()
                replaces = Signal(name=f"replaces_{name}")
                m.d.comb += replaces.eq(fresh | (product > most))
                following = picked_sum(
                    m, platform, f"sum_{name}", len(held), held, product, self.maximum, replaces
                )
                with m.If(clear[split]):
                    m.d.sync += held.eq(0)
                with m.Elif(shift):
                    m.d.sync += held.eq(value)
                with m.Elif(valid):
                    m.d.sync += held.eq(following)
