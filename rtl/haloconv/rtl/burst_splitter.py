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
        # Pages are whole blocks, and no burst is longer than a block. A burst ends with its page if
        # it begins in the page's last block, so the next one begins at a block; one that begins
        # earlier has a block's length, and the next one the same place in the next block.
        block_beats = min(page_beats, BURST_BEATS)
        low_bits, page_bits = exact_log2(block_beats), exact_log2(page_beats)
        last_block = page_beats // block_beats - 1

        def ends_page(block: Value, ahead: int = 0) -> Value:
            """Whether the block that many blocks further is the last one of its page."""
            return block[: page_bits - low_bits] == (last_block - ahead) % (last_block + 1)

        low = Signal(low_bits, reset_less=True)
        block = Signal(self._config.address_bits - shift - low_bits, reset_less=True)
        # Beats between the start of the block and the burst, if the burst may not go past the block
        # that it begins in, and from there to the last beat of the segment.
        skew = Signal(low_bits, reset_less=True)
        # Wide enough for a skew even where no segment is as long as a block.
        length_bits = len(self.i.payload.length) - shift
        reach = Signal(max(low_bits, length_bits) + 1, reset_less=True)
        busy = Signal()
        # Of a register, as whoever offers the next segment waits for it.
        final = Signal(reset_less=True)
        burst = Signal(9)
        m.d.comb += [
            burst.eq((reach[:low_bits] | (~final).replicate(low_bits)) - skew + 1),
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
        start = self.i.payload.address
        first_low, first_block = start[shift : shift + low_bits], start[shift + low_bits :]
        first_skew, next_skew = Signal.like(skew), Signal.like(skew)
        first_reach, next_reach = Signal.like(reach), Signal.like(reach)
        offset = Cat(start[:shift], first_skew)
        m.d.comb += [
            first_skew.eq(Mux(ends_page(first_block), first_low, 0)),
            # The block that ends a page is followed by another page's first.
            next_skew.eq(Mux(ends_page(block, 1) & ~ends_page(block), low, 0)),
            first_reach.eq((offset + self.i.payload.length - 1) >> shift),
            next_reach.eq(reach + next_skew - block_beats),
        ]
        with m.If(self.i.ready):
            m.d.sync += [
                busy.eq(self.i.valid),
                low.eq(first_low),
                block.eq(first_block),
                skew.eq(first_skew),
                reach.eq(first_reach),
                final.eq(first_reach[low_bits:] == 0),
            ]
        with m.Elif(out_free):
            m.d.sync += [
                low.eq(Mux(ends_page(block), 0, low)),
                block.eq(block + 1),
                skew.eq(next_skew),
                reach.eq(next_reach),
                final.eq(next_reach[low_bits:] == 0),
            ]
        return m
