"""Subtracts weight zero points and spreads a chunk of weights over the lanes."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from haloconv.planner.config import EngineConfig
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
    ``count``; in the row modes it holds one weight for each output lane, copied over its row.

    Timing: latency 1, a chunk a cycle.

    Resources: max(Pm, Pr) subtractors of nine bits and a byte table of channel_groups x Pm if
    weight zero points are built; Pm x Pr two-way multiplexers.

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

    def _zero_points(self, m: Module, width: int) -> list[Value]:
        """The zero point of each byte of the chunk."""
        config, lanes_out = self._config, self._config.out_lanes
        m.submodules.zero_points = memory = Memory(
            shape=unsigned(8 * lanes_out), depth=config.channel_groups, init=[]
        )
        write_port = memory.write_port(granularity=8)
        # Asynchronous: a handful of words, and the group is known only as its weights come.
        read_port = memory.read_port(domain="comb")
        enable = Signal(lanes_out)
        m.d.comb += [
            enable.eq(Mux(self.zero_point.enable, 1 << self.zero_point.row, 0)),
            write_port.en.eq(enable),
            write_port.addr.eq(self.zero_point.group),
            write_port.data.eq(self.zero_point.value.as_unsigned().replicate(lanes_out)),
            read_port.addr.eq(self.place.group),
        ]
        table = Signal(data.ArrayLayout(signed(8), lanes_out))
        with m.If(self.subtract):
            m.d.comb += Value.cast(table).eq(read_port.data)
        row_zero = Signal(signed(8))
        m.d.comb += row_zero.eq(table[self.place.row])
        zeros = []
        for index in range(width):
            zero = Signal(signed(8), name=f"zero_{index}")
            m.d.comb += zero.eq(row_zero)
            with m.If(~self.channel_mode):
                m.d.comb += zero.eq(table[index] if index < lanes_out else 0)
            zeros.append(zero)
        return zeros

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        lanes_out, lanes_split = config.out_lanes, config.split_lanes
        width = max(lanes_out, lanes_split)
        if config.weight_zero_points:
            zeros = self._zero_points(m, width)
        else:
            zeros = [C(0, signed(8)) for _ in range(width)]
        offsets = []
        for index in range(width):
            offset = Signal(weight_shape(config), name=f"offset_{index}")
            m.d.comb += offset.eq(self.data[index] - zeros[index])
            offsets.append(offset)

        m.d.sync += self.address.eq(self.place.word)
        for lane in range(lanes_out):
            chosen = self.take & (~self.channel_mode | (self.place.row == lane))
            m.d.sync += self.rows[lane].eq(chosen)
        # One row value serves all lanes in channel mode: the write enables choose among them.
        for split in range(lanes_split):
            inside = Signal(weight_shape(config), name=f"inside_{split}")
            with m.If(self.place.count > split):
                m.d.comb += inside.eq(offsets[split])
            for lane in range(lanes_out):
                m.d.sync += self.weights[lane][split].eq(
                    Mux(self.channel_mode, inside, offsets[lane])
                )
        return m
