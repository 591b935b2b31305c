"""Subtracts weight zero points and spreads a chunk of weights over the lanes."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from haloconv.planner.config import EngineConfig
from haloconv.rtl.fused_sum import selected_sum
from haloconv.rtl.weight_buffer import weight_shape
from haloconv.rtl.widths import index_bits

__all__ = ["WeightPlace", "WeightPlacer", "ZeroPointWrite"]


class WeightPlace(data.StructLayout):
    """Where a chunk goes: ``word`` of the buffer, output lane ``row``, ``group`` of Pm channels,
    and its ``count`` of bytes."""

    def __init__(self, config: EngineConfig) -> None:
        width = max(config.out_lanes, config.split_lanes)
        super().__init__(
            {
                "word": index_bits(2 * config.weight_words),
                "row": index_bits(config.out_lanes),
                "group": index_bits(config.channel_groups),
                "count": index_bits(width + 1),
            }
        )


class ZeroPointWrite(data.StructLayout):
    """One channel's weight zero point: output lane ``row`` of ``group``."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(
            {
                "row": index_bits(config.out_lanes),
                "group": index_bits(config.channel_groups),
                "value": signed(8),
                "enable": 1,
            }
        )


class WeightPlacer(wiring.Component):
    """In channel mode a chunk is the row of one output lane, padded with zero offsets beyond
    ``count``; in the row modes it holds one weight for each output lane, which fills the row of
    that lane.

    Timing: latency :attr:`latency`, a chunk a cycle. A zero point is there in the next cycle.

    Resources: with weight zero points max(Pm, Pr) subtractors of nine bits, a byte table of
    channel_groups x Pm and a choice of one of its Pm columns; a two-way multiplexer for each lane.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    take : In(1), place : In(WeightPlace), data : In(ArrayLayout(signed(8), max(Pm, Pr)))
    channel_mode, subtract : In(1)
        Hold during a layer. Without ``subtract`` all zero points count as 0.
    zero_point : In(ZeroPointWrite)
    rows, address, weights : Out, to the weight buffer's write port
    """

    take: Signal
    place: data.View
    channel_mode: Signal
    subtract: Signal
    zero_point: data.View
    rows: Signal
    address: Signal
    weights: data.View
    data: data.View  # last, as it hides the module from the annotations after it

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        lanes_out, lanes_split = config.out_lanes, config.split_lanes
        row = data.ArrayLayout(weight_shape(config), lanes_split)
        super().__init__(
            {
                "take": In(1),
                "place": In(WeightPlace(config)),
                "data": In(data.ArrayLayout(signed(8), max(lanes_out, lanes_split))),
                "channel_mode": In(1),
                "subtract": In(1),
                "zero_point": In(ZeroPointWrite(config)),
                "rows": Out(lanes_out),
                "address": Out(index_bits(2 * config.weight_words)),
                "weights": Out(data.ArrayLayout(row, lanes_out)),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from a chunk to its write."""
        return 2 if self._config.weight_zero_points else 1

    def _offsets(self, m: Module, platform) -> list[Value]:
        """Bytes of the chunk less their zero points, a cycle after ``place``."""
        config, lanes_out = self._config, self._config.out_lanes
        m.submodules.zero_points = memory = Memory(
            shape=unsigned(8 * lanes_out), depth=config.channel_groups, init=[]
        )
        write_port = memory.write_port(granularity=8)
        # Asynchronous: a handful of words, and the group is known only as its weights come.
        read_port = memory.read_port(domain="comb")
        enable = Signal(lanes_out)
        # Complements, as subtracting is adding the complement and one.
        m.d.comb += [
            enable.eq(Mux(self.zero_point.enable, 1 << self.zero_point.row, 0)),
            write_port.en.eq(enable),
            write_port.addr.eq(self.zero_point.group),
            write_port.data.eq((~self.zero_point.value).as_unsigned().replicate(lanes_out)),
            read_port.addr.eq(self.place.group),
        ]
        # Initial values as the reset below, which some flip-flops have in common.
        table = Signal(8 * lanes_out, init=(1 << 8 * lanes_out) - 1, reset_less=True)
        row_zero = Signal(8, init=255, reset_less=True)
        m.d.sync += [
            table.eq(read_port.data),
            row_zero.eq(read_port.data.word_select(self.place.row, 8)),
        ]
        with m.If(~self.subtract):
            m.d.sync += [table.eq(-1), row_zero.eq(-1)]
        offsets: list[Value] = []
        for index in range(max(lanes_out, config.split_lanes)):
            byte = Signal(8, reset_less=True, name=f"byte_{index}")
            m.d.sync += byte.eq(self.data[index])
            own = table.word_select(index, 8) if index < lanes_out else C(-1, 8)
            # A one below each carries the one to add.
            total = selected_sum(
                m, platform, f"offset_{index}", 10,
                Cat(C(1, 1), byte).as_signed(), self.channel_mode,
                Cat(C(1, 1), row_zero).as_signed(), Cat(C(1, 1), own).as_signed(),
            )  # fmt: skip
            offsets.append(total[1:].as_signed())
        return offsets

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        lanes_out, lanes_split = config.out_lanes, config.split_lanes
        take, place = self.take, self.place
        if config.weight_zero_points:
            offsets = self._offsets(m, platform)
            take = Signal()
            place = Signal(WeightPlace(config), reset_less=True)
            m.d.sync += [take.eq(self.take), place.eq(self.place)]
        else:
            offsets = [self.data[index] for index in range(max(lanes_out, lanes_split))]

        m.d.sync += self.address.eq(place.word)
        for lane in range(lanes_out):
            chosen = take & (~self.channel_mode | (place.row == lane))
            m.d.sync += self.rows[lane].eq(chosen)
        placed: list[Value] = []
        for index, offset in enumerate(offsets):
            value = Signal(weight_shape(config), reset_less=True, name=f"placed_{index}")
            m.d.sync += value.eq(offset)
            with m.If(place.count <= index):
                m.d.sync += value.eq(0)
            placed.append(value)
        for lane in range(lanes_out):
            for split in range(lanes_split):
                value = Mux(self.channel_mode, placed[split], placed[lane])
                m.d.comb += self.weights[lane][split].eq(value)
        return m
