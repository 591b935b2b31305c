"""Walks the tile loops of a layer and tells every other block what its next tile is."""

from typing import Any

from amaranth import *
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from haloconv.planner.config import EngineConfig
from haloconv.planner.descriptor import FIELDS
from haloconv.planner.tile import MODES, ORDERS
from haloconv.rtl.sequencer_program import (
    CELLS,
    LOOPS,
    PROGRAM,
    Capture,
    Left,
    Pick,
    Result,
    Right,
    Row,
    rows,
)
from haloconv.rtl.stream_fifo import StreamFifo
from haloconv.rtl.widths import (
    COORDINATE,
    ComputeTile,
    DescriptorLayout,
    DescriptorWord,
    FetchTile,
    LoadTile,
    WriteTile,
)

__all__ = ["TileSequencer"]

_UNCHECKED: Any = {"no_rw_check": 1}
"""No word is read in the cycle in which it is written, unless nobody looks at it."""
_OTHERWISE = {
    ("compute", "rows"): "output_rows",
    ("compute", "inside_rows"): "rows",
    ("write", "address"): "output_address",
}
"""What the sequencer calls a field of a tile, where consumers call it otherwise."""
_FIELDS = {field.name: field for field in FIELDS}


class TileSequencer(wiring.Component):
    """The loop nest over convolution groups and tiles, order hwmc or mhwc by descriptor.

    A program (:mod:`~haloconv.rtl.sequencer_program`) runs once a tile: step by step it brings the
    running values to the tile, with one adder, and fills in the tile's fields. An operand is marked
    new only when its tile index changes.

    Timing: variable; a tile every :attr:`interval` cycles while its consumers keep up, the first
    one as many cycles after ``start``. Without queues, :attr:`interval` cycles behind the one in
    which the last consumer took the tile before, and one.

    Resources: an adder as wide as an address, two block RAMs (the descriptor's words, the running
    values), a ROM of 45 rows of 34 bits, a register for each field of a tile, four FIFOs of
    ``tiles_ahead`` tiles or none.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    descriptor : In(DescriptorLayout)
        Must hold from ``start`` to the end of the layer.
    word : In(DescriptorWord)
        The whole descriptor, before ``start``.
    start : In(1)
        For one cycle.
    o_fetch, o_load, o_compute, o_write : Out(stream of FetchTile, LoadTile, ...)
        ``o_write`` only has the tiles that finish their sums.
    done : Out(1)
        All tiles were handed out (they may not have been finished).
    """

    descriptor: data.View
    word: Any
    start: Signal
    o_fetch: stream.Interface
    o_load: stream.Interface
    o_compute: stream.Interface
    o_write: stream.Interface
    done: Signal

    interval = len(PROGRAM) + 4
    """Cycles from tile to tile."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "descriptor": In(DescriptorLayout()),
                "word": In(DescriptorWord()),
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
        d = self.descriptor
        depthwise, outputs_first = Signal(), Signal()
        m.d.comb += [
            depthwise.eq(d.mode == MODES.index("depthwise")),
            outputs_first.eq(d.order == ORDERS.index("mhwc")),
        ]
        last = {loop: Signal(name=f"last_{loop}") for loop in LOOPS}
        advance = {loop: Signal(name=f"advance_{loop}") for loop in LOOPS}
        wrap = {loop: Signal(name=f"wrap_{loop}") for loop in LOOPS}
        step, begin, first = Signal(), Signal(), Signal()
        tile = self._tile(m)
        self._loops(m, step, begin, last, advance, wrap, outputs_first)

        # Row 0 of the program memory is idle; the counter waits there.
        count = len(PROGRAM) + 2
        counter = Signal(range(count + 1))
        contents: Any = [{}, *({name: getattr(row, name) for name in Row.WIDTHS} for row in rows())]
        m.submodules.program = program = memory.Memory(
            shape=data.StructLayout(Row.WIDTHS), depth=count + 1, init=contents
        )
        fetch = program.read_port()
        row: Any = fetch.data
        m.d.comb += fetch.addr.eq(counter)
        with m.If(counter == count):
            m.d.sync += counter.eq(0)
        with m.Elif(begin | step | (counter != 0)):
            m.d.sync += counter.eq(counter + 1)

        single = {loop: Signal(name=f"single_{loop}") for loop in LOOPS}
        self._run(m, row, tile, first, depthwise, last, single, advance, wrap)
        self._news(m, tile, first, advance, wrap, single, last, depthwise)

        ports = (
            ("fetch", self.o_fetch),
            ("load", self.o_load),
            ("compute", self.o_compute),
            ("write", self.o_write),
        )
        ahead = self._config.tiles_ahead
        hand_out, ready = Signal(), Signal()
        places: list[Any] = []
        for name, port in ports:
            wanted = last["c"] if name == "write" else C(1)
            place = port
            if ahead:
                m.submodules[f"{name}_queue"] = queue = StreamFifo(
                    port.payload.shape(), depth=ahead
                )
                wiring.connect(m, queue.o, wiring.flipped(port))
                place = queue.i
                m.d.comb += place.valid.eq(hand_out & wanted)
            else:
                with m.If(hand_out & wanted):
                    m.d.sync += place.valid.eq(1)
                with m.Elif(place.ready):
                    m.d.sync += place.valid.eq(0)
            for field, _ in place.payload.shape():
                source = tile[_OTHERWISE.get((name, str(field)), str(field))]
                m.d.comb += place.payload[field].eq(source)
            places.append(place)
        if ahead:
            m.d.comb += ready.eq(Cat(place.ready for place in places).all())
        else:
            # The fields stay until all have taken them, then the next tile begins.
            m.d.comb += ready.eq(~Cat(place.valid for place in places).any())

        finished = Signal()
        m.d.comb += finished.eq(row.result == Result.HIGH_Q)
        with m.If(step):
            m.d.sync += first.eq(0)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += begin.eq(self.start)
                with m.If(self.start):
                    m.d.sync += [self.done.eq(0), first.eq(1)]
                    m.next = "RUN"
            with m.State("RUN"), m.If(finished):
                m.next = "HAND OUT"
            with m.State("HAND OUT"), m.If(ready):
                m.d.comb += hand_out.eq(1)
                with m.If(Cat(last.values()).all()):
                    m.d.sync += self.done.eq(1)
                    m.next = "IDLE"
                with m.Else():
                    if ahead:
                        m.d.comb += step.eq(1)
                    m.next = "RUN" if ahead else "WAIT"
            if not ahead:
                with m.State("WAIT"), m.If(ready):
                    m.d.comb += step.eq(1)
                    m.next = "RUN"
        return m

    def _tile(self, m: Module) -> dict[str, Signal]:
        """A register for each field that any consumer wants, as wide as the widest asks."""
        shapes: dict[str, Shape] = {}
        for name, layout in (
            ("fetch", FetchTile(self._config)),
            ("load", LoadTile(self._config)),
            ("compute", ComputeTile(self._config)),
            ("write", WriteTile(self._config)),
        ):
            for field, place in layout:
                field = _OTHERWISE.get((name, str(field)), str(field))
                shape = Shape.cast(place.shape)
                if field not in shapes or shapes[field].width < shape.width:
                    shapes[field] = shape
        return {
            name: Signal(shape, reset_less=True, name=f"tile_{name}")
            for name, shape in shapes.items()
        }

    def _loops(self, m, step, begin, last, advance, wrap, outputs_first) -> None:
        """Which loop goes on from this tile to the next, and which start over with it."""
        goes = {loop: Signal(name=f"goes_{loop}") for loop in LOOPS}
        over = {loop: Signal(name=f"over_{loop}") for loop in LOOPS}
        hw_last = last["h"] & last["w"]
        m.d.comb += goes["c"].eq(~last["c"])
        with m.If(outputs_first):
            m.d.comb += [
                goes["w"].eq(last["c"] & ~last["w"]),
                goes["h"].eq(last["c"] & last["w"] & ~last["h"]),
                goes["m"].eq(last["c"] & hw_last & ~last["m"]),
            ]
        with m.Else():
            m.d.comb += [
                goes["m"].eq(last["c"] & ~last["m"]),
                goes["w"].eq(last["c"] & last["m"] & ~last["w"]),
                goes["h"].eq(last["c"] & last["m"] & last["w"] & ~last["h"]),
            ]
        m.d.comb += [
            goes["g"].eq(last["c"] & last["m"] & hw_last),
            # A loop starts over when any loop outside it goes on.
            over["h"].eq(goes["g"] | (outputs_first & goes["m"])),
            over["w"].eq(over["h"] | goes["h"]),
            over["m"].eq(goes["g"] | (~outputs_first & (goes["h"] | goes["w"]))),
            over["c"].eq(~goes["c"]),
        ]
        for loop in LOOPS:
            with m.If(begin | step):
                m.d.sync += [
                    advance[loop].eq(goes[loop] & ~begin),
                    wrap[loop].eq(over[loop] | begin),
                ]

    def _run(self, m, row, tile, first, depthwise, last, single, advance, wrap) -> None:
        """Both operands, the sum, and what is taken from them."""
        config, d = self._config, self.descriptor
        widths = [config.address_bits, COORDINATE, len(tile["input_length"])]
        width = max(*widths, len(tile["weight_length"]))
        m.submodules.words = words = memory.Memory(
            shape=unsigned(32), depth=128, init=[], attrs=_UNCHECKED
        )
        m.submodules.cells = cells = memory.Memory(
            shape=unsigned(width), depth=32, init=[], attrs=_UNCHECKED
        )
        word_port, word_write = words.read_port(), words.write_port()
        cell_port, cell_write = cells.read_port(), cells.write_port()
        assert len(CELLS) <= 32

        def of(flags: dict[str, Signal], loop: Value) -> Value:
            chosen = Signal(name=f"chosen_{len(choices)}")
            choices.append(chosen)
            with m.Switch(loop):
                for number, name in enumerate(LOOPS):
                    with m.Case(number):
                        m.d.comb += chosen.eq(flags[name])
            return chosen

        choices: list[Signal] = []
        # Read.
        pixel_last, run_last, picked = Signal(), Signal(), Signal(2)
        m.d.comb += [
            pixel_last.eq(Mux(depthwise, last["m"], last["c"])),
            run_last.eq(Mux(d.row_segments, last["w"], pixel_last)),
        ]
        goes_next, last_next = of(advance, row.loop), of(last, row.loop)
        with m.Switch(row.pick):
            for pick, bits in (
                (Pick.STEP, goes_next),
                (Pick.LAST, last_next),
                (Pick.LAST_M, last["m"]),
                (Pick.PIXEL, pixel_last),
                (Pick.RUN, run_last),
                (Pick.WEIGHTS, Cat(last["m"], last["c"])),
            ):
                with m.Case(pick):
                    m.d.comb += picked.eq(bits)
        m.d.comb += [
            word_port.addr.eq(row.word | picked),
            cell_port.addr.eq(row.cell),
            word_write.addr.eq(self.word.index),
            word_write.data.eq(self.word.data),
            word_write.en.eq(self.word.valid),
        ]
        loop, cell = Signal(len(row.loop)), Signal(len(row.cell))
        m.d.sync += [loop.eq(row.loop), cell.eq(row.cell)]

        # Load.
        left, right = Signal(width, reset_less=True), Signal(width, reset_less=True)
        carry = Signal(reset_less=True)
        total = Signal(width)
        # The carry takes part as a bit below both operands: one adder for all three.
        m.d.comb += total.eq((Cat(carry, left) + Cat(carry, right))[1:])
        negative = total[COORDINATE - 1]
        row_before, column_before, column_over = Signal(), Signal(), Signal()
        goes_on, starts_over = of(advance, loop), of(wrap, loop)
        keep_left, keep_right = Signal(), Signal()
        left_total, right_total, invert = Signal(), Signal(), Signal()
        with m.Switch(row.left):
            for code, keep in (
                (Left.RESULT, C(1)),
                (Left.CELL, C(1)),
                (Left.ROOT, ~starts_over),
                (Left.NESTED, C(1)),
                (Left.CELL_IF_ROW_BEFORE, row_before),
                (Left.CELL_IF_COLUMN_BEFORE, column_before),
                (Left.CELL_UNLESS_COLUMN_BEFORE, ~column_before),
                (Left.CELL_IF_RUN_BEFORE, column_before & d.row_segments),
            ):
                with m.Case(code):
                    m.d.comb += keep_left.eq(keep)
        with m.Switch(row.right):
            for code, keep in (
                (Right.WORD, C(1)),
                (Right.MINUS_WORD, C(1)),
                (Right.WORD_IF_MOVED, goes_on | starts_over),
                (Right.WORD_IF_ADVANCED, goes_on),
                (Right.COUNT, starts_over),
                (Right.RESULT, C(1)),
                (Right.MINUS_RESULT_IF_RUN_OVER, column_over & d.row_segments),
                (Right.RESULT_UNLESS_ROW_BEFORE, ~row_before),
            ):
                with m.Case(code):
                    m.d.comb += keep_right.eq(keep)
        # The sign of the sum comes last, so it meets nothing but these two.
        keep_by_sign = Signal()
        m.d.comb += keep_by_sign.eq(
            Mux(negative, row.right == Right.MINUS_RESULT_IF_BELOW,
                row.right == Right.MINUS_RESULT_IF_ABOVE)
        )  # fmt: skip
        counting = row.right == Right.COUNT
        m.d.comb += [
            left_total.eq((row.left == Left.RESULT) | ((row.left == Left.NESTED) & starts_over)),
            right_total.eq(row.right >= Right.RESULT),
            invert.eq(
                (row.right == Right.MINUS_WORD)
                | counting
                | (row.right == Right.MINUS_RESULT_IF_BELOW)
                | (row.right == Right.MINUS_RESULT_IF_ABOVE)
                | (row.right == Right.MINUS_RESULT_IF_RUN_OVER)
            ),
        ]
        with m.If(keep_left):
            m.d.sync += left.eq(Mux(left_total, total, cell_port.data))
        with m.Else():
            m.d.sync += left.eq(0)
        m.d.sync += [
            right.eq(Mux(right_total, total, word_port.data[:width]) ^ invert.replicate(width)),
            carry.eq(Mux(keep_right, invert, counting & goes_on) | keep_by_sign),
        ]
        with m.If(~keep_right & ~keep_by_sign):
            m.d.sync += right.eq(0)
        writes, counts = Signal(), Signal()
        target, whose = Signal(len(row.cell)), Signal(len(row.loop))
        m.d.sync += [
            writes.eq((row.left == Left.ROOT) | (row.left == Left.NESTED)),
            counts.eq(counting),
            target.eq(cell),
            whose.eq(loop),
        ]
        self._capture(m, row, tile, word_port.data)

        # Sum.
        m.d.comb += [
            cell_write.addr.eq(target),
            cell_write.data.eq(total),
            cell_write.en.eq(writes),
        ]
        ends = Signal()
        # The counts are negative and go up to -1.
        m.d.comb += ends.eq(total[:16].all())
        for number, name in enumerate(LOOPS):
            with m.If(counts & (whose == number)):
                m.d.sync += last[name].eq(ends)
                with m.If(first):
                    m.d.sync += single[name].eq(ends)

        empty, nothing = Signal(), Signal()
        m.d.comb += nothing.eq(negative | ~total[:COORDINATE].any())
        with m.Switch(row.result):
            with m.Case(Result.ROW):
                m.d.sync += row_before.eq(negative)
            with m.Case(Result.COLUMN):
                m.d.sync += column_before.eq(negative)
            with m.Case(Result.COLUMN_OVER):
                m.d.sync += column_over.eq(~negative)
            with m.Case(Result.ROWS):
                m.d.sync += [tile["rows"].eq(total), empty.eq(nothing)]
            with m.Case(Result.COLUMNS):
                m.d.sync += [tile["columns"].eq(total), empty.eq(empty | nothing)]
            with m.Case(Result.INPUT_ADDRESS), m.If(empty):
                # Behind both.
                m.d.sync += [tile["rows"].eq(0), tile["columns"].eq(0)]
        for result in Result:
            name = result.name.lower()
            if name in tile and name not in ("rows", "columns"):
                with m.If(row.result == result):
                    m.d.sync += tile[name].eq(total)

    def _capture(self, m: Module, row, tile: dict[str, Signal], word: Value) -> None:
        """Fields that stand in a word as they are wanted."""
        for capture, fields in (
            (Capture.ROWS, {"output_rows": "rows"}),
            (Capture.COLUMN_GROUPS, {"column_groups": "column_groups"}),
            (Capture.COLUMN_TAIL, {"column_tail": "column_tail"}),
            (Capture.CHANNELS, {"tile_m": "tile_m", "m_groups": "m_groups"}),
            (Capture.CHANNEL_TAIL, {"m_tail": "m_tail"}),
            (Capture.STEPS, {"c_steps": "c_steps", "c_tail": "c_tail"}),
            (Capture.PIXEL, {"pixel_words": "pixel_words", "word_tail": "word_tail"}),
            (Capture.WEIGHT_LENGTH, {"weight_length": "weight_bytes"}),
        ):
            with m.If(row.capture == capture):
                for name, source in fields.items():
                    field = _FIELDS[source]
                    low = field.bit % 32
                    m.d.sync += tile[name].eq(word[low : low + field.width])

    def _news(self, m, tile, first, advance, wrap, single, last, depthwise) -> None:
        """An operand is new in the first tile and where one of its loops shows another index."""
        changed = {loop: Signal(name=f"changed_{loop}") for loop in LOOPS}
        for loop in LOOPS:
            m.d.comb += changed[loop].eq(advance[loop] | (wrap[loop] & ~single[loop]) | first)
        m.d.comb += [
            tile["new_parameters"].eq(changed["g"] | changed["m"]),
            tile["new_weights"].eq(changed["g"] | changed["m"] | changed["c"]),
            tile["new_input"].eq(
                changed["h"]
                | changed["w"]
                | Mux(depthwise, changed["m"], changed["g"] | changed["c"])
            ),
            tile["first_c"].eq(wrap["c"]),
            tile["last_c"].eq(last["c"]),
        ]
