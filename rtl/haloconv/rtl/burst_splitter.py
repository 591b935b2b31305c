"""Runs of bytes become read bursts."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from haloconv.planner.config import EngineConfig
from haloconv.rtl.ports import BURST_BEATS, BURST_BYTES, ReadRequest
from haloconv.rtl.widths import Segment

__all__ = ["BurstSplitter"]


class BurstSplitter(wiring.Component):
    """Splits each segment into bursts of at most 256 beats that never cross 4 KiB.

    Timing: latency 2; one burst a cycle, also across segments.

    Resources: no multiplier, no memory.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    i : In(stream of Segment)
        Length at least 1.
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
                "i": In(stream.Signature(Segment(config))),
                "o": Out(stream.Signature(ReadRequest(config.address_bits))),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        bus = self._config.bus_bytes
        shift = exact_log2(bus)
        page_beats = BURST_BYTES // bus
        length = self.i.payload.length
        # Beat numbers from here on: the byte offset only matters for how many beats there are.
        address = Signal(self._config.address_bits - shift)
        beats = Signal(len(length) + 1)
        busy = Signal()
        to_page = Signal(range(page_beats + 1))
        limit = Signal(range(max(page_beats, BURST_BEATS) + 1))
        burst = Signal(9)
        final = Signal()
        m.d.comb += [
            to_page.eq(page_beats - address[: exact_log2(page_beats)]),
            limit.eq(Mux(to_page < BURST_BEATS, to_page, BURST_BEATS)),
            final.eq(beats <= limit),
            burst.eq(Mux(final, beats, limit)),
        ]
        out_free = Signal()
        m.d.comb += [
            out_free.eq(~self.o.valid | self.o.ready),
            self.i.ready.eq(~busy | (final & out_free)),
            self.busy.eq(busy | self.o.valid),
        ]
        with m.If(out_free):
            m.d.sync += self.o.valid.eq(busy)
        with m.If(out_free & busy):
            m.d.sync += [
                self.o.payload.address.eq(Cat(C(0, shift), address)),
                self.o.payload.beats.eq(burst),
                address.eq(address + burst),
                beats.eq(beats - burst),
            ]
            with m.If(final):
                m.d.sync += busy.eq(0)
        with m.If(self.i.valid & self.i.ready):
            start = self.i.payload.address
            m.d.sync += [
                busy.eq(1),
                address.eq(start[shift:]),
                beats.eq((length + start[:shift] + (bus - 1)) >> shift),
            ]
        return m
