"""Turns tiles into the segments of memory that hold their operands."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from haloconv.planner.config import EngineConfig
from haloconv.planner.latency import scale_entry_bytes
from haloconv.rtl.widths import DescriptorLayout, FetchTile, Segment

__all__ = ["SegmentWalker"]


class SegmentWalker(wiring.Component):
    """Asks for biases, scales, weights and input of each tile, in this order.

    It runs ahead of the loader as far as free buffer halves allow: two for each of the three
    kinds of operand, taken here and given back by the release ports.

    Timing: variable; one segment a cycle within an operand, one cycle from operand to operand.

    Resources: two address adders.

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
        d, tile = self.descriptor, self.i.payload
        length = tile.input_length

        free, take = {}, {}
        for kind in ("parameters", "weights", "input"):
            free[kind] = halves = Signal(range(3), init=2, name=f"free_{kind}")
            take[kind] = Signal(name=f"take_{kind}")
            release = getattr(self, f"release_{kind}")
            m.d.sync += halves.eq(halves + release - take[kind])

        moved = Signal()
        m.d.comb += moved.eq(self.o.ready)
        row_address = Signal(self._config.address_bits, reset_less=True)
        address = Signal(self._config.address_bits, reset_less=True)
        rows_left = Signal(16, reset_less=True)
        columns_left = Signal(16, reset_less=True)
        row_end = Signal()
        m.d.comb += row_end.eq(d.row_segments | (columns_left == 1))

        with m.FSM():
            with m.State("PARAMETERS"):
                m.d.sync += [
                    row_address.eq(tile.input_address),
                    address.eq(tile.input_address),
                    rows_left.eq(tile.rows),
                    columns_left.eq(tile.columns),
                ]
                with m.If(self.i.valid):
                    with m.If(~tile.new_parameters):
                        m.next = "WEIGHTS"
                    with m.Elif(free["parameters"] != 0):
                        m.d.comb += [
                            take["parameters"].eq(moved | ~d.has_bias),
                            self.o.valid.eq(d.has_bias),
                            self.o.payload.address.eq(tile.bias_address),
                            self.o.payload.length.eq(tile.tile_m << 2),
                        ]
                        with m.If(take["parameters"]):
                            m.next = "SCALES"
            with m.State("SCALES"):
                m.d.comb += [
                    self.o.valid.eq(d.load_scale),
                    self.o.payload.address.eq(tile.scale_address),
                    self.o.payload.length.eq(tile.tile_m * scale_entry_bytes(self._config)),
                ]
                with m.If(moved | ~d.load_scale):
                    m.next = "WEIGHTS"
            with m.State("WEIGHTS"):
                with m.If(~tile.new_weights):
                    m.next = "INPUT"
                with m.Elif(free["weights"] != 0):
                    m.d.comb += [
                        self.o.valid.eq(1),
                        self.o.payload.address.eq(tile.weight_address),
                        self.o.payload.length.eq(tile.weight_length),
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
                m.d.comb += [
                    self.o.valid.eq(1),
                    self.o.payload.address.eq(address),
                    self.o.payload.length.eq(length),
                ]
                with m.If(moved):
                    with m.If(~row_end):
                        m.d.sync += [
                            address.eq(address + d.in_pixel_pitch),
                            columns_left.eq(columns_left - 1),
                        ]
                    with m.Else():
                        m.d.sync += [
                            address.eq(row_address + d.in_row_pitch),
                            row_address.eq(row_address + d.in_row_pitch),
                            columns_left.eq(tile.columns),
                            rows_left.eq(rows_left - 1),
                        ]
                        with m.If(rows_left == 1):
                            m.d.comb += self.i.ready.eq(1)
                            m.next = "PARAMETERS"
        return m
