"""Gives each lane its input: by mode, with the edge mask applied."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from haloconv.planner.config import EngineConfig
from haloconv.rtl.widths import index_bits

__all__ = ["OperandSelect"]


class OperandSelect(wiring.Component):
    """Channel mode: lane (m, r) takes channel r of part ``select`` of word 0. Row mode: channel
    ``select`` of word r. Depthwise: channel m of word r. Where the mask is low the operand is zero.

    Timing: latency :attr:`latency`, a step a cycle; ``mask`` and ``select`` stand with ``words``.

    Resources: for each split lane a byte multiplexer over its word; Pm x Pr two-way multiplexers
    of nine bits; the mask uses the registers' reset.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    words : In(ArrayLayout(ArrayLayout(signed(9), word_bytes), Pr))
    select : In, mask : In(Pr)
    channel_mode, depthwise : In(1)
    operands : Out(ArrayLayout(ArrayLayout(signed(9), Pr), Pm))
    """

    words: data.View
    select: Signal
    mask: Signal
    channel_mode: Signal
    depthwise: Signal
    operands: data.View

    latency = 2
    """Cycles from ``words`` to ``operands``."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        word = data.ArrayLayout(signed(9), config.word_bytes)
        row = data.ArrayLayout(signed(9), config.split_lanes)
        super().__init__(
            {
                "words": In(data.ArrayLayout(word, config.split_lanes)),
                "select": In(index_bits(config.word_bytes)),
                "mask": In(config.split_lanes),
                "channel_mode": In(1),
                "depthwise": In(1),
                "operands": Out(data.ArrayLayout(row, config.out_lanes)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        lanes_out, lanes_split = config.out_lanes, config.split_lanes
        kept = Signal(lanes_split, reset_less=True)
        m.d.sync += kept.eq(Mux(self.channel_mode, self.mask[0].replicate(lanes_split), self.mask))
        for split in range(lanes_split):
            # Shared over the output lanes: a channel of word 0 or of the lane's own word.
            shared = Signal(signed(9), reset_less=True, name=f"shared_{split}")
            parts = Signal(signed(9), name=f"part_{split}")
            with m.Switch(self.select):
                for part in range(config.word_steps):
                    with m.Case(part):
                        m.d.comb += parts.eq(self.words[0][part * lanes_split + split])
            m.d.sync += shared.eq(Mux(self.channel_mode, parts, self.words[split][self.select]))
            for lane in range(lanes_out):
                own = Signal(signed(9), reset_less=True, name=f"own_{split}_{lane}")
                m.d.sync += own.eq(self.words[split][lane])
                operand = self.operands[lane][split]
                with m.If(kept[split]):
                    m.d.sync += operand.eq(Mux(self.depthwise, own, shared))
                with m.Else():
                    m.d.sync += operand.eq(0)
        return m
