"""Turns tiles into the segments of memory that hold their operands."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from haloconv.planner.config import EngineConfig
from haloconv.planner.latency import scale_entry_bytes
from haloconv.rtl.widths import DescriptorLayout, FetchTile, Segment

__all__ = ["SegmentWalker"]


class SegmentWalker(wiring.Component):
    """Asks for biases, scales, weights and input of each tile, in this order.

    It runs ahead of the loader as far as free buffer halves allow: two for each of the three
    kinds of operand, taken here and given back by the release ports.

    Timing: variable; one segment a cycle within an operand, one cycle from operand to operand.

    Resources: an address adder, two counters.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    descriptor : In(DescriptorLayout)
    i : In(stream of FetchTile)
    o : Out(stream of Segment)
    release_parameters, release_weights, release_input : In(1)
        A half is free again.
    """

    descriptor: data.View
    i: stream.Interface
    o: stream.Interface
    release_parameters: Signal
    release_weights: Signal
    release_input: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "descriptor": In(DescriptorLayout()),
                "i": In(stream.Signature(FetchTile(config))),
                "o": Out(stream.Signature(Segment(config))),
                "release_parameters": In(1),
                "release_weights": In(1),
                "release_input": In(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        config, d, tile = self._config, self.descriptor, self.i.payload

        free, take = {}, {}
        for kind in ("parameters", "weights", "input"):
            free[kind] = halves = Signal(range(3), init=2, name=f"free_{kind}")
            take[kind] = Signal(name=f"take_{kind}")
            release = getattr(self, f"release_{kind}")
            m.d.sync += halves.eq(halves + release - take[kind])

        moved = Signal()
        begin, advance = Signal(), Signal()
        row_address = Signal(config.address_bits, reset_less=True)
        address = Signal.like(row_address)
        rows_left = Signal(len(tile.rows), reset_less=True)
        columns_left = Signal(len(tile.columns), reset_less=True)
        row_end = Signal()
        # One adder goes on to the next pixel and to the next row.
        base, step, target = Signal.like(address), Signal.like(address), Signal.like(address)
        m.d.comb += [
            moved.eq(self.o.ready),
            row_end.eq(d.row_segments | (columns_left == 1)),
            base.eq(Mux(row_end, row_address, address)),
            step.eq(Mux(row_end, d.in_row_pitch, d.in_pixel_pitch)),
            target.eq(Mux(begin, tile.input_address, base + step)),
        ]
        with m.If(begin | advance):
            m.d.sync += [
                address.eq(target),
                columns_left.eq(Mux(begin | row_end, tile.columns, columns_left - 1)),
            ]
        with m.If(begin | (advance & row_end)):
            m.d.sync += [
                row_address.eq(target),
                rows_left.eq(Mux(begin, tile.rows, rows_left - 1)),
            ]

        # No more channels than the tables hold.
        channels = tile.tile_m[: bits_for(config.channel_groups * config.out_lanes)]
        entry = scale_entry_bytes(config)
        sources = {
            "PARAMETERS": (tile.bias_address, channels << 2),
            "SCALES": (tile.scale_address, (channels << 2) + (channels << (entry - 5))),
            "WEIGHTS": (tile.weight_address, tile.weight_length),
            "ROWS": (address, tile.input_length),
        }
        # Chosen whether the segment is valid or not: that takes the fewest gates.
        source = Signal(range(len(sources)))
        with m.Switch(source):
            for number, (first, length) in enumerate(sources.values()):
                with m.Case(number):
                    m.d.comb += [
                        self.o.payload.address.eq(first),
                        self.o.payload.length.eq(length),
                    ]

        def offer(state: str):
            return source.eq(list(sources).index(state))

        with m.FSM():
            with m.State("PARAMETERS"):
                m.d.comb += [begin.eq(1), offer("PARAMETERS")]
                with m.If(self.i.valid):
                    with m.If(~tile.new_parameters):
                        m.next = "WEIGHTS"
                    with m.Elif(free["parameters"] != 0):
                        m.d.comb += [
                            take["parameters"].eq(moved | ~d.has_bias),
                            self.o.valid.eq(d.has_bias),
                        ]
                        with m.If(take["parameters"]):
                            m.next = "SCALES"
            with m.State("SCALES"):
                m.d.comb += [self.o.valid.eq(d.load_scale), offer("SCALES")]
                with m.If(moved | ~d.load_scale):
                    m.next = "WEIGHTS"
            with m.State("WEIGHTS"):
                m.d.comb += offer("WEIGHTS")
                with m.If(~tile.new_weights):
                    m.next = "INPUT"
                with m.Elif(free["weights"] != 0):
                    m.d.comb += [
                        self.o.valid.eq(1),
                        take["weights"].eq(moved),
                    ]
                    with m.If(moved):
                        m.next = "INPUT"
            with m.State("INPUT"):
                with m.If(~tile.new_input):
                    m.d.comb += self.i.ready.eq(1)
                    m.next = "PARAMETERS"
                with m.Elif(free["input"] != 0):
                    m.d.comb += take["input"].eq(1)
                    with m.If(rows_left == 0):
                        m.d.comb += self.i.ready.eq(1)
                        m.next = "PARAMETERS"
                    with m.Else():
                        m.next = "ROWS"
            with m.State("ROWS"):
                m.d.comb += [self.o.valid.eq(1), offer("ROWS"), advance.eq(moved)]
                with m.If(moved & row_end & (rows_left == 1)):
                    m.d.comb += self.i.ready.eq(1)
                    m.next = "PARAMETERS"
        return m
