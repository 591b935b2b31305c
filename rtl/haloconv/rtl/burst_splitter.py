"""Runs of bytes become read bursts."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for, exact_log2

from haloconv.planner.config import EngineConfig
from haloconv.rtl.ports import BURST_BEATS, BURST_BYTES, ReadRequest
from haloconv.rtl.widths import Segment

__all__ = ["BurstSplitter", "Run"]


class Run(data.StructLayout):
    """A run of bytes as its beats see it: the ``address`` of the first byte, and the place of the
    ``last`` one, counted from the start of the beat that holds the first."""

    def __init__(self, config: EngineConfig) -> None:
        segment = Signal(Segment(config))
        longest = (1 << len(segment.length)) - 1
        super().__init__(
            {
                "address": segment.address.shape(),
                "last": bits_for(longest + config.bus_bytes - 2),
            }
        )
        self._shift = exact_log2(config.bus_bytes)

    def covering(self, run: data.View, segment: data.View) -> list:
        """Assignments that make ``run`` cover a Segment of at least one byte."""
        return [
            run.address.eq(segment.address),
            run.last.eq(segment.length + segment.address[: self._shift] - 1),
        ]


class BurstSplitter(wiring.Component):
    """Splits each run of bytes into bursts of at most 256 beats that never cross 4 KiB.

    Timing: latency 2; one burst a cycle, also across runs.

    Resources: no multiplier, no memory.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    i : In(stream of Run)
    o : Out(stream of ReadRequest)
        The payload holds while it waits.
    busy : Out(1)
        A burst has not left yet.
    """

    i: stream.Interface
    o: stream.Interface
    busy: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(Run(config))),
                "o": Out(stream.Signature(ReadRequest(config.address_bits))),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        bus = self._config.bus_bytes
        shift = exact_log2(bus)
        page_beats = BURST_BYTES // bus
        # Pages are whole blocks, and no burst is longer than a block. A burst ends with its page if
        # it begins in the page's last block, so the next one begins at a block; one that begins
        # earlier has a block's length, and the next one the same place in the next block.
        block_beats = min(page_beats, BURST_BEATS)
        low_bits, page_bits = exact_log2(block_beats), exact_log2(page_beats)
        low = Signal(low_bits, reset_less=True)
        block = Signal(self._config.address_bits - shift - low_bits, reset_less=True)
        more = Signal(len(self.i.payload.last) - shift, reset_less=True)  # beats after the next
        busy = Signal()
        page_end = Signal()
        skew = Signal(low_bits)
        reach = Signal(max(len(more), low_bits) + 1)
        final = Signal()
        burst = Signal(9)
        m.d.comb += [
            page_end.eq(block[: page_bits - low_bits].all() if page_bits > low_bits else 1),
            skew.eq(Mux(page_end, low, 0)),
            reach.eq(more + skew),
            final.eq(reach[low_bits:] == 0),
            burst.eq(Mux(final, more[:low_bits], ~skew) + 1),
        ]
        out_free = Signal()
        m.d.comb += [
            out_free.eq(~self.o.valid | self.o.ready),
            self.i.ready.eq(~busy | (final & out_free)),
            self.busy.eq(busy | self.o.valid),
        ]
        request = Signal.like(self.o.payload, reset_less=True)
        m.d.comb += self.o.payload.eq(request)
        with m.If(out_free):
            m.d.sync += [
                self.o.valid.eq(busy),
                request.address.eq(Cat(C(0, shift), low, block)),
                request.beats.eq(burst),
            ]
        start = self.i.payload.address[shift:]
        with m.If(self.i.ready):
            m.d.sync += [
                busy.eq(self.i.valid),
                low.eq(start[:low_bits]),
                block.eq(start[low_bits:]),
                more.eq(self.i.payload.last >> shift),
            ]
        with m.Elif(out_free):
            m.d.sync += [
                low.eq(Mux(page_end, 0, low)),
                block.eq(block + 1),
                more.eq(Cat(reach[:low_bits], reach[low_bits:] - 1)),
            ]
        return m
