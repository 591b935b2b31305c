"""Weights of a tile, a word for all lanes each cycle, double buffered."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from haloconv.planner.config import EngineConfig
from haloconv.planner.latency import has_spare_registers
from haloconv.rtl.block_memory import block_memory
from haloconv.rtl.widths import index_bits

__all__ = ["WeightBuffer", "weight_shape"]


def weight_shape(config: EngineConfig) -> Shape:
    """Shape of a stored weight: an offset from its zero point needs nine bits."""
    return signed(9 if config.weight_zero_points else 8)


class WeightBuffer(wiring.Component):
    """Holds Pm x Pr weights a word, written by rows of Pr, one row for each output lane.

    In memory the weights of a split lane lie together, as its inputs do in the halo buffer: so a
    block RAM and the lanes that it feeds can be neighbours, and nothing but addresses and what is
    written goes to all of them.

    Timing: latency :attr:`latency`; one read and one write a cycle. A write can be read in the next
    cycle; reading a word while it is written gives anything.

    Resources: a memory of 2 * weight_words words of Pm * Pr weights, each with a write enable; a
    register of a word where there are any to spare, which is the block RAM's own on the ECP5.

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
    data : Out(ArrayLayout(ArrayLayout(weight, Pr), Pm))
    """

    write_rows: Signal
    write_address: Signal
    write_data: data.View
    read_address: Signal
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
                "data": Out(words),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from ``read_address`` to ``data``: memory, and where there are spare registers one
        behind it, as block RAM is slow."""
        return 2 if has_spare_registers(self._config) else 1

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        width = weight_shape(config).width
        places = [
            (lane, split) for split in range(config.split_lanes) for lane in range(config.out_lanes)
        ]
        m.submodules.memory = memory = block_memory(len(places) * width, 2 * config.weight_words)
        write_port, read_port = memory.write_port(granularity=width), memory.read_port()
        read: Value = read_port.data
        if has_spare_registers(config):
            read = Signal(len(places) * width, reset_less=True)
            m.d.sync += read.eq(read_port.data)
        m.d.comb += [
            write_port.en.eq(self.write_rows.replicate(config.split_lanes)),
            write_port.addr.eq(self.write_address),
            write_port.data.eq(Cat(self.write_data[lane][split] for lane, split in places)),
            read_port.addr.eq(self.read_address),
        ]
        for number, (lane, split) in enumerate(places):
            weight = read.word_select(number, width).as_signed()
            m.d.comb += self.data[lane][split].eq(weight)
        return m
