"""Walks the tile loops of a layer and tells every other block what its next tile is."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from haloconv.planner.config import EngineConfig
from haloconv.planner.tile import MODES, ORDERS
from haloconv.rtl.stream_fifo import StreamFifo
from haloconv.rtl.widths import (
    COORDINATE,
    ComputeTile,
    DescriptorLayout,
    FetchTile,
    LoadTile,
    WriteTile,
)

__all__ = ["TileSequencer"]

AHEAD = 4
"""Tiles that the sequencer runs ahead of the slowest block."""


class TileSequencer(wiring.Component):
    """The loop nest over convolution groups and tiles, order hwmc or mhwc by descriptor.

    All values that depend on the tile are sums of one running term for each loop; an operand is
    marked new only when its tile index changes.

    Timing: variable; a tile every :attr:`interval` cycles while its consumers keep up.

    Resources: about 25 adders of 18 to 32 bits, four FIFOs of AHEAD tiles.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    descriptor : In(DescriptorLayout)
        Must hold from ``start`` to the end of the layer.
    start : In(1)
        For one cycle.
    o_fetch, o_load, o_compute, o_write : Out(stream of FetchTile, LoadTile, ...)
        ``o_write`` only has the tiles that finish their sums.
    done : Out(1)
        All tiles were handed out (they may not have been finished).
    """

    descriptor: data.View
    start: Signal
    o_fetch: stream.Interface
    o_load: stream.Interface
    o_compute: stream.Interface
    o_write: stream.Interface
    done: Signal

    interval = 4
    """Cycles from tile to tile."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "descriptor": In(DescriptorLayout()),
                "start": In(1),
                "o_fetch": Out(stream.Signature(FetchTile(config))),
                "o_load": Out(stream.Signature(LoadTile(config))),
                "o_compute": Out(stream.Signature(ComputeTile(config))),
                "o_write": Out(stream.Signature(WriteTile(config))),
                "done": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        config, d = self._config, self.descriptor
        depthwise = Signal()
        outputs_first = Signal()
        m.d.comb += [
            depthwise.eq(d.mode == MODES.index("depthwise")),
            outputs_first.eq(d.order == ORDERS.index("mhwc")),
        ]

        # Loop counters, innermost c; h, w and m nest by order.
        loops = ("g", "h", "w", "m", "c")
        counts = dict(
            zip(loops, (d.groups, d.tiles_h, d.tiles_w, d.tiles_m, d.tiles_c), strict=True)
        )
        index = {loop: Signal(16, name=f"index_{loop}") for loop in loops}
        last = {loop: Signal(name=f"last_{loop}") for loop in loops}
        single = {loop: Signal(name=f"single_{loop}") for loop in loops}
        advance = {loop: Signal(name=f"advance_{loop}") for loop in loops}
        wrap = {loop: Signal(name=f"wrap_{loop}") for loop in loops}
        for loop in loops:
            m.d.comb += [
                last[loop].eq(index[loop] == counts[loop] - 1),
                single[loop].eq(counts[loop] == 1),
            ]
        hw_last = last["h"] & last["w"]
        m.d.comb += advance["c"].eq(~last["c"])
        with m.If(outputs_first):
            m.d.comb += [
                advance["w"].eq(last["c"] & ~last["w"]),
                advance["h"].eq(last["c"] & last["w"] & ~last["h"]),
                advance["m"].eq(last["c"] & hw_last & ~last["m"]),
            ]
        with m.Else():
            m.d.comb += [
                advance["m"].eq(last["c"] & ~last["m"]),
                advance["w"].eq(last["c"] & last["m"] & ~last["w"]),
                advance["h"].eq(last["c"] & last["m"] & last["w"] & ~last["h"]),
            ]
        inner_last = last["c"] & last["m"] & hw_last
        m.d.comb += advance["g"].eq(inner_last & ~last["g"])
        # A loop starts over when any loop outside it advances.
        m.d.comb += [
            wrap["h"].eq(advance["g"] | (outputs_first & advance["m"])),
            wrap["w"].eq(wrap["h"] | advance["h"]),
            wrap["m"].eq(advance["g"] | (~outputs_first & (advance["h"] | advance["w"]))),
            wrap["c"].eq(advance["g"] | advance["h"] | advance["w"] | advance["m"]),
        ]

        step, begin = Signal(), Signal()

        def term(loop: str, start: Value | int, increment: Value, width: int | Shape) -> Signal:
            """Running term of ``loop``: back to ``start`` with it, ``increment`` further a tile."""
            value = Signal(width, reset_less=True, name=f"term_{len(terms)}_{loop}")
            terms.append(value)
            with m.If(begin | (step & wrap[loop])):
                m.d.sync += value.eq(start)
            with m.Elif(step & advance[loop]):
                m.d.sync += value.eq(value + increment)
            return value

        terms: list[Signal] = []
        for loop in loops:
            with m.If(begin | (step & wrap[loop])):
                m.d.sync += index[loop].eq(0)
            with m.Elif(step & advance[loop]):
                m.d.sync += index[loop].eq(index[loop] + 1)
        address, coordinate, offset = config.address_bits, signed(COORDINATE), signed(33)
        row = term("h", d.row_start, d.row_step, coordinate)
        column = term("w", d.column_start, d.column_step, coordinate)
        low_q = term("w", d.low_q, -d.tile_q, coordinate)
        high_q = term("w", d.high_q, -d.tile_q, coordinate)
        in_h = term("h", d.in_h_start, d.in_h_step, offset)
        in_w = term("w", d.in_w_start, d.in_w_step, offset)
        in_c = term("c", 0, d.in_c_step, address)
        in_m = term("m", 0, d.in_m_step, address)
        in_g = term("g", d.input_address, d.in_g_step, address)
        weight_step_c = Mux(last["m"], d.weight_bytes_m, d.weight_bytes)
        weight_c = term("c", 0, weight_step_c, address)
        weight_m = term("m", 0, d.weight_m_step, address)
        weight_g = term("g", d.weight_address, d.weight_g_step, address)
        bias_m = term("m", 0, d.bias_m_step, address)
        bias_g = term("g", d.bias_address, d.bias_g_step, address)
        scale_m = term("m", 0, d.scale_m_step, address)
        scale_g = term("g", d.scale_address, d.scale_g_step, address)
        out_h = term("h", 0, d.out_h_step, address)
        out_w = term("w", 0, d.out_w_step, address)
        out_m = term("m", 0, d.out_m_step, address)
        out_g = term("g", d.output_address, d.out_g_step, address)

        # An operand is new in the first tile and wherever one of its loops moves or starts over.
        new_input, new_weights, new_parameters = Signal(), Signal(), Signal()
        with m.If(begin):
            m.d.sync += [new_input.eq(1), new_weights.eq(1), new_parameters.eq(1)]
        with m.Elif(step):
            hw_moves = advance["h"] | advance["w"]
            m.d.sync += [
                new_input.eq(
                    advance["c"]
                    | advance["g"]
                    | hw_moves
                    | (
                        advance["m"]
                        & (
                            depthwise
                            | ~single["c"]
                            | (outputs_first & ~(single["h"] & single["w"]))
                        )
                    )
                ),
                new_weights.eq(
                    advance["c"]
                    | advance["m"]
                    | advance["g"]
                    | (hw_moves & (~single["c"] | (~outputs_first & ~single["m"])))
                ),
                new_parameters.eq(
                    advance["m"] | advance["g"] | (hw_moves & ~outputs_first & ~single["m"])
                ),
            ]

        # Stage 1: clip the span to the tensor, add pairs of terms.
        span_h = Mux(last["h"], d.span_h_last, d.span_h)
        span_w = Mux(last["w"], d.span_w_last, d.span_w)
        span_bytes = Mux(last["w"], d.span_bytes_last, d.span_bytes)

        def clip(name: str, start: Value, span: Value, size: Value, shape: Shape) -> tuple:
            """First position inside [0, size) and the one behind the last, unclipped count."""
            first = Signal(shape, reset_less=True, name=f"{name}_first")
            end = Signal(shape, reset_less=True, name=f"{name}_end")
            stop = Signal(shape, name=f"{name}_stop")
            limit = Signal(shape, name=f"{name}_limit")
            m.d.comb += [stop.eq(start + span), limit.eq(size)]
            m.d.sync += [
                first.eq(Mux(start < 0, 0, start)),
                end.eq(Mux(stop < limit, stop, limit)),
            ]
            return first, end

        row_first, row_end = clip("row", row, span_h, d.in_height, coordinate)
        column_first, column_end = clip("column", column, span_w, d.in_width, coordinate)
        byte_first, byte_end = clip("byte", in_w, span_bytes, d.in_row_pitch, signed(34))
        sums = {}
        for name, value in (
            ("in_hw", Mux(in_h < 0, 0, in_h) + Mux(in_w < 0, 0, in_w)),
            ("in_cm", in_c + in_m),
            ("in_g", in_g),
            ("weight_cm", weight_c + weight_m),
            ("weight_g", weight_g),
            ("out_hw", out_h + out_w),
            ("out_mg", out_m + out_g),
        ):
            sums[name] = Signal(address, reset_less=True, name=f"sum_{name}")
            m.d.sync += sums[name].eq(value)
        in_cmg = Signal(address, reset_less=True)

        # Stage 2: the tile as each consumer wants it.
        fetch, load, compute, write = (
            Signal(FetchTile(config), reset_less=True),
            Signal(LoadTile(config), reset_less=True),
            Signal(ComputeTile(config), reset_less=True),
            Signal(WriteTile(config), reset_less=True),
        )
        rows, columns = Signal(coordinate), Signal(coordinate)
        m.d.comb += [
            rows.eq(row_end - row_first),
            columns.eq(column_end - column_first),
        ]
        empty = (rows <= 0) | (columns <= 0)
        pixel_last = Mux(depthwise, last["m"], last["c"])
        tile_m = Mux(last["m"], d.tile_m_last, d.tile_m)
        m_groups = Mux(last["m"], d.m_groups_last, d.m_groups)
        m_tail = Mux(last["m"], d.m_tail_last, d.m_tail)
        c_steps = Mux(last["c"], d.c_steps_last, d.c_steps)
        pixel_bytes = Mux(pixel_last, d.pixel_bytes_last, d.pixel_bytes)
        weight_length = Mux(
            last["c"],
            Mux(last["m"], d.weight_bytes_mc, d.weight_bytes_c),
            Mux(last["m"], d.weight_bytes_m, d.weight_bytes),
        )
        common = {
            "new_parameters": new_parameters,
            "new_weights": new_weights,
            "new_input": new_input,
        }
        values = {
            id(fetch): {
                **common,
                "bias_address": bias_m + bias_g,
                "scale_address": scale_m + scale_g,
                "weight_address": sums["weight_cm"] + sums["weight_g"],
                "input_address": sums["in_hw"] + in_cmg,
                "tile_m": tile_m,
                "weight_length": weight_length,
                "input_length": Mux(d.row_segments, byte_end - byte_first, pixel_bytes),
                "rows": Mux(empty, 0, rows),
                "columns": Mux(empty, 0, columns),
            },
            id(load): {
                **common,
                "skip_rows": Mux(row < 0, -row, 0),
                "rows": Mux(empty, 0, rows),
                "skip_columns": Mux(column < 0, -column, 0),
                "columns": Mux(empty, 0, columns),
                "tile_m": tile_m,
                "m_groups": m_groups,
                "m_tail": m_tail,
                "c_steps": c_steps,
                "c_tail": Mux(last["c"], d.c_tail_last, d.c_tail),
                "pixel_words": Mux(pixel_last, d.pixel_words_last, d.pixel_words),
                "word_tail": Mux(pixel_last, d.word_tail_last, d.word_tail),
            },
            id(compute): {
                **common,
                "first_c": index["c"] == 0,
                "last_c": last["c"],
                "rows": Mux(last["h"], d.rows_last, d.rows),
                "column_groups": Mux(last["w"], d.column_groups_last, d.column_groups),
                "column_tail": Mux(last["w"], d.column_tail_last, d.column_tail),
                "m_groups": m_groups,
                "m_tail": m_tail,
                "c_steps": c_steps,
                "row": row,
                "low_q": low_q,
                "high_q": high_q,
            },
            id(write): {"address": sums["out_hw"] + sums["out_mg"]},
        }

        queues = []
        for name, tile, port in (
            ("fetch", fetch, self.o_fetch),
            ("load", load, self.o_load),
            ("compute", compute, self.o_compute),
            ("write", write, self.o_write),
        ):
            m.submodules[f"{name}_queue"] = queue = StreamFifo(tile.shape(), depth=AHEAD)
            wiring.connect(m, queue.o, wiring.flipped(port))
            m.d.comb += queue.i.payload.eq(tile)
            queues.append(queue)

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += begin.eq(self.start)
                with m.If(self.start):
                    m.d.sync += self.done.eq(0)
                    m.next = "CLIP"
            with m.State("CLIP"):
                m.next = "ADD"
            with m.State("ADD"):
                m.d.sync += in_cmg.eq(sums["in_cm"] + sums["in_g"])
                m.next = "FORM"
            with m.State("FORM"):
                for tile in (fetch, load, compute, write):
                    for field, value in values[id(tile)].items():
                        m.d.sync += tile[field].eq(value)
                m.next = "HAND OUT"
            with m.State("HAND OUT"):
                ready = Signal()
                m.d.comb += ready.eq(
                    queues[0].i.ready & queues[1].i.ready & queues[2].i.ready & queues[3].i.ready
                )
                with m.If(ready):
                    for queue in queues[:3]:
                        m.d.comb += queue.i.valid.eq(1)
                    m.d.comb += [queues[3].i.valid.eq(compute.last_c), step.eq(1)]
                    with m.If(inner_last & last["g"]):
                        m.d.sync += self.done.eq(1)
                        m.next = "IDLE"
                    with m.Else():
                        m.next = "CLIP"
        return m
