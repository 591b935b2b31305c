"""Turns tiles into the segments of memory that hold their operands."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from haloconv.planner.config import EngineConfig
from haloconv.planner.latency import scale_entry_bytes
from haloconv.rtl.loop_counter import loop_counter
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

        # A register for each state: whether the segment offered is taken comes late in a cycle.
        states = ("parameters", "scales", "weights", "input", "rows")
        at = {name: Signal(name=f"at_{name}", init=name == "parameters") for name in states}
        moved, advance = Signal(), Signal()
        row_address = Signal(config.address_bits, reset_less=True)
        address = Signal.like(row_address)
        row_end, tile_end, no_rows = Signal(), Signal(), Signal(reset_less=True)
        begin = at["parameters"]
        row_last = loop_counter(
            m, platform, "rows", len(tile.rows),
            enable=begin | (advance & row_end), load=begin, trips=tile.rows,
        )  # fmt: skip
        column_last = Signal()
        m.d.comb += column_last.eq(
            loop_counter(
                m, platform, "columns", len(tile.columns),
                enable=begin | advance, load=begin | column_last, trips=tile.columns,
            )
        )  # fmt: skip
        # One adder goes on to the next pixel and to the next row.
        base, step, target = Signal.like(address), Signal.like(address), Signal.like(address)
        m.d.sync += no_rows.eq(tile.rows == 0)
        m.d.comb += [
            moved.eq(self.o.ready),
            advance.eq(at["rows"] & moved),
            row_end.eq(d.row_segments | column_last),
            tile_end.eq(at["rows"] & row_end & row_last),
            base.eq(Mux(row_end, row_address, address)),
            step.eq(Mux(row_end, d.in_row_pitch, d.in_pixel_pitch)),
            target.eq(Mux(begin, tile.input_address, base + step)),
        ]
        with m.If(begin | advance):
            m.d.sync += address.eq(target)
        with m.If(begin | (advance & row_end)):
            m.d.sync += row_address.eq(target)

        # No more channels than the tables hold.
        channels = tile.tile_m[: bits_for(config.channel_groups * config.out_lanes)]
        entry = scale_entry_bytes(config)
        sources = {
            "parameters": (tile.bias_address, channels << 2),
            "scales": (tile.scale_address, (channels << 2) + (channels << (entry - 5))),
            "weights": (tile.weight_address, tile.weight_length),
            "rows": (address, tile.input_length),
        }
        # Chosen whether the segment is valid or not: that takes the fewest gates.
        with m.Switch(Cat(at["scales"] | at["rows"], at["weights"] | at["rows"])):
            for number, (first, length) in enumerate(sources.values()):
                with m.Case(number):
                    m.d.comb += [
                        self.o.payload.address.eq(first),
                        self.o.payload.length.eq(length),
                    ]

        # What can be asked for, and what ends each state.
        parameters, weights, rows = Signal(), Signal(), Signal()
        parameters_skipped, weights_skipped, input_skipped = Signal(), Signal(), Signal()
        scales_end = Signal()
        fresh = begin & self.i.valid
        m.d.comb += [
            parameters.eq(fresh & tile.new_parameters & (free["parameters"] != 0)),
            parameters_skipped.eq(fresh & ~tile.new_parameters),
            weights.eq(at["weights"] & tile.new_weights & (free["weights"] != 0)),
            weights_skipped.eq(at["weights"] & ~tile.new_weights),
            rows.eq(take["input"] & ~no_rows),
            input_skipped.eq(at["input"] & ~tile.new_input),
            take["parameters"].eq(parameters & (moved | ~d.has_bias)),
            take["weights"].eq(weights & moved),
            take["input"].eq(at["input"] & tile.new_input & (free["input"] != 0)),
            scales_end.eq(at["scales"] & (moved | ~d.load_scale)),
            self.o.valid.eq(
                (parameters & d.has_bias) | (at["scales"] & d.load_scale) | weights | at["rows"]
            ),
            self.i.ready.eq(input_skipped | (take["input"] & no_rows) | (tile_end & moved)),
        ]
        ends = {
            "parameters": parameters_skipped | take["parameters"],
            "scales": scales_end,
            "weights": weights_skipped | take["weights"],
            "input": input_skipped | take["input"],
            "rows": tile_end & moved,
        }
        begins = {
            "parameters": self.i.ready,
            "scales": take["parameters"],
            "weights": parameters_skipped | scales_end,
            "input": ends["weights"],
            "rows": rows,
        }
        m.d.sync += [at[name].eq((at[name] & ~ends[name]) | begins[name]) for name in states]
        return m
