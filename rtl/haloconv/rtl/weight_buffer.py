"""Weights of a tile, a word for all lanes each cycle, double buffered."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from haloconv.planner.config import EngineConfig
from haloconv.rtl.block_memory import block_memory
from haloconv.rtl.halo_buffer import halo_latency
from haloconv.rtl.widths import index_bits

__all__ = ["WeightBuffer", "weight_shape"]


def weight_shape(config: EngineConfig) -> Shape:
    """Shape of a stored weight: an offset from its zero point needs nine bits."""
    return signed(9 if config.weight_zero_points else 8)


class WeightBuffer(wiring.Component):
    """Holds Pm x Pr weights a word, written by rows of Pr, one row for each output lane.

    In the row modes a row has one weight, in column m mod Pr for output lane m, and reads give it
    in every column: so rows can share the wires that they are written by.

    Timing: latency :attr:`latency`; one read and one write a cycle. A write can be read in the next
    cycle; reading a word while it is written gives anything. ``channel_mode`` holds from the first
    read of a layer to the last.

    Resources: Pm memories of 2 * weight_words words of Pr weights; a two-way multiplexer for each
    weight.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    write_rows : In(Pm)
        Which output lanes take their row of ``write_data``.
    write_address : In
        Word, with the half folded in.
    write_data : In(ArrayLayout(ArrayLayout(weight, Pr), Pm))
    read_address : In
    channel_mode : In(1)
        Low: each row is its one weight.
    data : Out(ArrayLayout(ArrayLayout(weight, Pr), Pm))
    """

    write_rows: Signal
    write_address: Signal
    write_data: data.View
    read_address: Signal
    channel_mode: Signal
    data: data.View

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        row = data.ArrayLayout(weight_shape(config), config.split_lanes)
        words = data.ArrayLayout(row, config.out_lanes)
        address = index_bits(2 * config.weight_words)
        super().__init__(
            {
                "write_rows": In(config.out_lanes),
                "write_address": In(address),
                "write_data": In(words),
                "read_address": In(address),
                "channel_mode": In(1),
                "data": Out(words),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from ``read_address`` to ``data``: memory, the register behind it that the halo
        buffer has too, and the operand register."""
        return halo_latency(self._config)

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        lanes, width = config.split_lanes, weight_shape(config).width
        channel_mode = Signal()
        m.d.sync += channel_mode.eq(self.channel_mode)
        for lane in range(config.out_lanes):
            m.submodules[f"row_{lane}"] = memory = block_memory(
                lanes * width, 2 * config.weight_words
            )
            write_port, read_port = memory.write_port(), memory.read_port()
            # The operand register of the lane: block RAM reads late in the cycle.
            operand = Signal(lanes * width, reset_less=True, name=f"operand_{lane}")
            read: Value = read_port.data
            if self.latency > 2:
                read = Signal(lanes * width, reset_less=True, name=f"read_{lane}")
                m.d.sync += read.eq(read_port.data)
            single = read.word_select(lane % lanes, width)
            m.d.comb += [
                write_port.en.eq(self.write_rows[lane]),
                write_port.addr.eq(self.write_address),
                write_port.data.eq(self.write_data[lane]),
                read_port.addr.eq(self.read_address),
                Value.cast(self.data[lane]).eq(operand),
            ]
            m.d.sync += operand.eq(Mux(channel_mode, read, single.replicate(lanes)))
        return m
