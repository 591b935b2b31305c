"""Segments on their way to memory, and where their bytes lie in the beats that come back."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from haloconv.planner.config import EngineConfig
from haloconv.planner.latency import has_spare_registers
from haloconv.rtl.byte_gearbox import Run
from haloconv.rtl.stream_fifo import StreamFifo
from haloconv.rtl.stream_register import StreamCut, StreamRegister
from haloconv.rtl.widths import Segment

__all__ = ["SEGMENTS_AHEAD", "SegmentQueue"]

SEGMENTS_AHEAD = 64
"""Segments that may be asked for before their bytes have come."""


class SegmentQueue(wiring.Component):
    """Hands segments on to the burst splitter, and their runs, in the same order, to the gearbox.

    No more than :data:`SEGMENTS_AHEAD` runs are under way.

    Timing: latency 1 to the splitter and :func:`~haloconv.planner.latency.run_latency` to the
    gearbox; a segment a cycle. The latter hides behind that of most memories: a beat comes three
    cycles and their latency after its segment came at the earliest.
    :func:`~haloconv.planner.latency.segments_waiting` segments wait for the splitter; where these
    are two, no ``ready`` passes through.

    Resources: as many segments and up to three runs of registers, an adder, a block RAM.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    i : In(stream of Segment)
    o : Out(stream of Segment)
    o_run : Out(stream of Run)
        With the ``address`` within a beat alone.
    """

    i: stream.Interface
    o: stream.Interface
    o_run: stream.Interface

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        segment = Segment(config)
        super().__init__(
            {
                "i": In(stream.Signature(segment)),
                "o": Out(stream.Signature(segment)),
                "o_run": Out(stream.Signature(Run(config))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        shift = exact_log2(config.bus_bytes)
        run = Signal(Run(config))
        places = data.StructLayout({"offset": shift, "last": len(run.last)})
        spare = has_spare_registers(config)
        between = StreamCut if spare else StreamRegister
        m.submodules.ask = ask = between(Segment(config))
        wiring.connect(m, ask.o, wiring.flipped(self.o))
        # The count below says when to stop.
        m.submodules.runs = runs = StreamFifo(
            places, depth=SEGMENTS_AHEAD, block_ram=True, registered=spare, reserved=True
        )
        last = runs.o
        if spare:
            m.submodules.cut = cut = StreamCut(places)
            wiring.connect(m, runs.o, cut.i)
            last = cut.o

        under_way = Signal(range(SEGMENTS_AHEAD + 1))
        full, asks, noted = Signal(), Signal(), Signal()
        m.d.comb += [
            full.eq(under_way == SEGMENTS_AHEAD),
            ask.i.payload.eq(self.i.payload),
            ask.i.valid.eq(self.i.valid & ~full),
            self.i.ready.eq(ask.i.ready & ~full),
            asks.eq(self.i.valid & self.i.ready),
            # The run's adder begins at the register.
            *Run(config).covering(run, ask.newest),
            runs.i.payload.offset.eq(run.address[:shift]),
            runs.i.payload.last.eq(run.last),
            runs.i.valid.eq(noted),
            self.o_run.payload.address.eq(last.payload.offset),
            self.o_run.payload.last.eq(last.payload.last),
            self.o_run.valid.eq(last.valid),
            last.ready.eq(self.o_run.ready),
        ]
        leaves = self.o_run.valid & self.o_run.ready
        m.d.sync += [noted.eq(asks), under_way.eq(under_way + asks - leaves)]
        return m
