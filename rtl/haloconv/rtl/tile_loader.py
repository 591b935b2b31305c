"""Fills halo buffer, weight buffer and parameter table from the string of bytes read."""

from typing import Any

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from haloconv.planner.config import EngineConfig
from haloconv.planner.latency import chunk_bytes, has_spare_registers, scale_entry_bytes
from haloconv.planner.tile import MODES
from haloconv.rtl.loop_counter import counted, loop_counter
from haloconv.rtl.parameter_table import ParameterWrite
from haloconv.rtl.position_step import one_of, stepped
from haloconv.rtl.weight_buffer import weight_shape
from haloconv.rtl.weight_placer import WeightPlacer
from haloconv.rtl.widths import DescriptorLayout, LoadTile, Position, index_bits

__all__ = ["LoadedBytes", "TileLoader"]


class LoadedBytes(data.StructLayout):
    """Bytes taken in a cycle, and what they were."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(
            {
                "count": bits_for(chunk_bytes(config)),
                "input": 1,
                "weight": 1,
                "bias": 1,
                "scale": 1,
            }
        )


class TileLoader(wiring.Component):
    """Takes the operands of each tile in the order of the segment walker.

    Inputs are stored as offsets from their zero point, weights likewise, so that masked operands
    are plain zeros. Rows and columns of a span outside the tensor are stepped over, not stored.

    Timing: variable; a chunk a cycle: a channel of biases or scales, Pr weights of one output
    channel (channel mode) or the weights of Pm output channels (row modes), one word of a pixel.
    ``loaded`` is high for one cycle when all operands of a tile were taken; they are written before
    the walker's first step can read them.

    Resources: word_bytes subtractors of nine bits, a position adder, counters as wide as the
    buffers allow, those of :class:`WeightPlacer`, and where there are any to spare a register of a
    chunk.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    descriptor : In(DescriptorLayout)
    i : In(stream of LoadTile)
    data, level, consume : the gearbox's string
    input_write, input_position, input_data : Out, to the halo buffer
    weight_rows, weight_address, weight_data : Out, to the weight buffer
    parameter_write : Out(ParameterWrite), to the parameter table
    loaded : Out(1)
    taken : Out(LoadedBytes)
    """

    descriptor: data.View
    i: stream.Interface
    level: Signal
    consume: Signal
    input_write: Signal
    input_position: data.View
    input_data: data.View
    weight_rows: Signal
    weight_address: Signal
    weight_data: data.View
    parameter_write: data.View
    loaded: Signal
    taken: data.View
    data: data.View  # last, as it hides the module from the annotations after it

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        chunk = chunk_bytes(config)
        weights = data.ArrayLayout(
            data.ArrayLayout(weight_shape(config), config.split_lanes), config.out_lanes
        )
        super().__init__(
            {
                "descriptor": In(DescriptorLayout()),
                "i": In(stream.Signature(LoadTile(config))),
                "data": In(data.ArrayLayout(8, chunk)),
                "level": In(bits_for(chunk + config.bus_bytes)),
                "consume": Out(bits_for(chunk)),
                "input_write": Out(1),
                "input_position": Out(Position(config)),
                "input_data": Out(data.ArrayLayout(signed(9), config.word_bytes)),
                "weight_rows": Out(config.out_lanes),
                "weight_address": Out(index_bits(2 * config.weight_words)),
                "weight_data": Out(weights),
                "parameter_write": Out(ParameterWrite(config)),
                "loaded": Out(1),
                "taken": Out(LoadedBytes(config)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        config, d, tile = self._config, self.descriptor, self.i.payload
        channel_mode, depthwise = Signal(), Signal()
        m.d.sync += [
            channel_mode.eq(d.mode == MODES.index("channel")),
            depthwise.eq(d.mode == MODES.index("depthwise")),
        ]

        self._bytes = self._late(m, self.data)
        # What the state at hand wants to take, and whether it gets it: each size is compared with
        # the level on its own, and the result chosen, as the choice of a size takes as long.
        want = Signal(bits_for(chunk_bytes(config)))
        take = Signal()
        m.d.comb += [
            self.consume.eq(Mux(take, want, 0)),
            self.taken.count.eq(self.consume),
        ]
        inside = {name: Signal(name=f"in_{name}") for name in (
            "next", "operands", "weights", "input", "skip_columns", "skip_rows", "pixels",
        )}  # fmt: skip
        parameter_half, weight_half, input_half = Signal(init=1), Signal(init=1), Signal(init=1)
        channel_last = self._channels(m, platform, inside["next"], parameter_half)
        weights_want, weights_there, weights_last = self._weights(
            m, platform, channel_mode, weight_half, inside["operands"], want
        )
        pixels_want, pixels_there, skipped, pixels_last = self._pixels(
            m, platform, depthwise, input_half, inside, take
        )
        entry = scale_entry_bytes(config)

        with m.FSM():
            with m.State("NEXT"):
                m.d.comb += inside["next"].eq(1)
                with m.If(self.i.valid):
                    m.next = "OPERANDS"
                    with m.If(tile.new_parameters):
                        m.d.sync += parameter_half.eq(~parameter_half)
                        with m.If(d.has_bias):
                            m.next = "BIASES"
                        with m.Elif(d.load_scale):
                            m.next = "SCALES"
            with m.State("BIASES"):
                m.d.comb += [want.eq(4), take.eq(self._holds(4)), self.taken.bias.eq(take)]
                with m.If(take & channel_last):
                    m.next = "OPERANDS"
                    with m.If(d.load_scale):
                        m.next = "SCALES"
            with m.State("SCALES"):
                m.d.comb += [
                    want.eq(entry),
                    take.eq(self._holds(entry)),
                    self.taken.scale.eq(take),
                ]
                with m.If(take & channel_last):
                    m.next = "OPERANDS"
            with m.State("OPERANDS"):
                m.d.comb += inside["operands"].eq(1)
                m.next = "INPUT"
                with m.If(tile.new_weights):
                    m.d.sync += weight_half.eq(~weight_half)
                    m.next = "WEIGHTS"
            with m.State("WEIGHTS"):
                m.d.comb += [
                    want.eq(weights_want),
                    take.eq(weights_there),
                    self.taken.weight.eq(take),
                ]
                with m.If(take & weights_last):
                    m.next = "INPUT"
            with m.State("INPUT"):
                m.d.comb += inside["input"].eq(1)
                m.next = "SETTLE"
                with m.If(tile.new_input):
                    m.d.sync += input_half.eq(~input_half)
                    with m.If(tile.rows != 0):
                        m.next = "SKIP COLUMNS"
            with m.State("SKIP COLUMNS"):
                m.d.comb += inside["skip_columns"].eq(1)
                with m.If(skipped):
                    m.next = "SKIP ROWS"
            with m.State("SKIP ROWS"):
                m.d.comb += inside["skip_rows"].eq(1)
                with m.If(skipped):
                    m.next = "PIXELS"
            with m.State("PIXELS"):
                m.d.comb += [
                    inside["pixels"].eq(1),
                    want.eq(pixels_want),
                    take.eq(pixels_there),
                    self.taken.input.eq(take),
                ]
                with m.If(take & pixels_last):
                    m.next = "SETTLE"
            with m.State("SETTLE"):
                # The writes of the last chunk are a few registers away from the buffers; the walker
                # takes longer to its first step.
                m.d.comb += [self.loaded.eq(1), self.i.ready.eq(1)]
                m.next = "NEXT"
        return m

    def _late(self, m: Module, value: Any) -> Any:
        """``value`` a cycle later, for what goes along with the bytes taken.

        The way through the gearbox is long, so a register follows it, where there are any to spare.
        """
        if not has_spare_registers(self._config):
            return value
        # What is a bit says whether there is anything.
        held = Signal(value.shape(), name="late", reset_less=len(Value.cast(value)) > 1)
        m.d.sync += held.eq(value)
        return held

    def _holds(self, size: Value | int) -> Value:
        """Whether the string holds as many bytes."""
        if isinstance(size, int) and size & (size - 1) == 0:
            return self.level[size.bit_length() - 1 :].any()
        return self.level >= size

    def _tail(self, m: Module, name: str) -> tuple[Value, Value]:
        """A field of the tile, and whether the string holds as many bytes.

        The queue of tiles is slow to read; two cycles and more go by until such a field is needed.
        """
        tail = self.i.payload[name]
        if self._config.tiles_ahead:
            held = Signal(len(tail), reset_less=True, name=f"held_{name}")
            m.d.sync += held.eq(tail)
            tail = held
        return tail, self._holds(tail)

    def _channels(self, m: Module, platform, begin: Value, half: Value) -> Signal:
        """Biases and scales, a channel at a time; return whether a channel is the tile's last."""
        config, q = self._config, self._config.results_per_cycle
        taken = self.taken.bias | self.taken.scale
        last = Signal(name="channel_last")
        trips = self.i.payload.tile_m
        m.d.comb += last.eq(
            loop_counter(
                m, platform, "channels", len(trips), enable=begin | taken, load=begin | last,
                trips=trips,
            )
        )  # fmt: skip
        lane_m = Signal(index_bits(config.out_lanes))
        group = Signal(index_bits(config.channel_groups))
        lane, row = Signal(index_bits(q)), Signal(len(self.parameter_write.row))
        group_end, lane_end = Signal(), Signal()
        m.d.comb += [
            group_end.eq(lane_m == config.out_lanes - 1),
            lane_end.eq(group_end | (lane == q - 1)),
        ]
        with m.If(taken):
            m.d.sync += lane_m.eq(Mux(group_end, 0, lane_m + 1))
            with m.If(group_end):
                m.d.sync += group.eq(group + 1)
        with m.If(begin | (taken & last)):
            m.d.sync += [lane_m.eq(0), group.eq(0)]
        if config.group_steps == 1:
            m.d.comb += [lane.eq(lane_m), row.eq(group)]
        else:
            with m.If(taken):
                m.d.sync += lane.eq(Mux(lane_end, 0, lane + 1))
                with m.If(lane_end):
                    m.d.sync += row.eq(row + 1)
            with m.If(begin | (taken & last)):
                m.d.sync += [lane.eq(0), row.eq(0)]

        # Zero points go by channel, also where a row of parameters has fewer.
        self._zero_point_place = group, lane_m
        write, rows = self.parameter_write, config.channel_groups * config.group_steps
        m.d.comb += [
            write.row.eq(self._late(m, row + Mux(half, rows, 0))),
            write.lane.eq(self._late(m, lane)),
            write.bias.eq(self._late(m, self.taken.bias)),
            write.scale.eq(self._late(m, self.taken.scale)),
            write.value.eq(Cat(self._bytes[index] for index in range(4))),
            write.shift.eq(self._bytes[4]),
        ]
        return last

    def _weights(
        self, m: Module, platform, channel_mode: Value, half: Value, begin: Value, want: Value
    ) -> tuple[Value, Value, Value]:
        """Groups of Pm, taps, channel steps, and in channel mode the rows of a word.

        Return the bytes that a chunk has, whether they are there, whether it is the tile's last.
        """
        config, d, tile = self._config, self.descriptor, self.i.payload
        row = Signal(index_bits(config.out_lanes))
        group = Signal(index_bits(config.channel_groups))
        word, start = Signal(len(self.weight_address)), Signal(len(self.weight_address))
        m_tail, m_tail_there = self._tail(m, "m_tail")
        c_tail, c_tail_there = self._tail(m, "c_tail")
        members, members_there = Signal(len(m_tail)), Signal()
        final = {name: Signal(name=f"final_{name}") for name in ("row", "step", "tap", "group")}
        m.d.comb += [
            members.eq(Mux(final["group"], m_tail, config.out_lanes)),
            members_there.eq(Mux(final["group"], m_tail_there, self._holds(config.out_lanes))),
            final["row"].eq(~channel_mode | (row + 1 == members)),
            # The half whose turn it is; where a word is taken, it is no longer needed.
            start.eq(Mux(half, 0, config.weight_words)),
        ]
        ends: Value = self.taken.weight & final["row"]
        with m.If(begin | ends):
            m.d.sync += word.eq(counted(m, platform, "word", word, begin, ~start))
        with m.If(self.taken.weight):
            m.d.sync += row.eq(row + 1)
        with m.If(begin | ends):
            m.d.sync += row.eq(0)
        for name, trips in (
            ("step", tile.c_steps),
            ("tap", d.taps[: len(tile.c_steps)]),
            ("group", tile.m_groups),
        ):
            last = final[name]
            m.d.comb += last.eq(
                loop_counter(
                    m, platform, f"{name}s", len(trips), enable=begin | ends, load=begin | last,
                    trips=trips,
                )
            )  # fmt: skip
            ends = ends & last
            if name == "tap":
                with m.If(ends):
                    m.d.sync += group.eq(group + 1)
                with m.If(begin):
                    m.d.sync += group.eq(0)

        m.submodules.placer = placer = WeightPlacer(config)
        zero_group, zero_row = self._zero_point_place
        m.d.comb += [
            placer.take.eq(self._late(m, self.taken.weight)),
            placer.place.word.eq(self._late(m, word)),
            placer.place.row.eq(self._late(m, row)),
            placer.place.group.eq(self._late(m, group)),
            placer.place.count.eq(self._late(m, want)),
            placer.channel_mode.eq(channel_mode),
            placer.subtract.eq(d.load_scale),
            placer.zero_point.group.eq(self._late(m, zero_group)),
            placer.zero_point.row.eq(self._late(m, zero_row)),
            placer.zero_point.value.eq(self._bytes[scale_entry_bytes(config) - 1]),
            placer.zero_point.enable.eq(self._late(m, self.taken.scale)),
            self.weight_rows.eq(placer.rows),
            self.weight_address.eq(placer.address),
            self.weight_data.eq(placer.weights),
        ]
        for index in range(max(config.out_lanes, config.split_lanes)):
            m.d.comb += placer.data[index].eq(self._bytes[index])
        row_want = Mux(final["step"], c_tail, config.split_lanes)
        row_there = Mux(final["step"], c_tail_there, self._holds(config.split_lanes))
        all_final = final["row"] & final["step"] & final["tap"] & final["group"]
        return (
            Mux(channel_mode, row_want, members),
            Mux(channel_mode, row_there, members_there),
            all_final,
        )

    def _pixels(
        self,
        m: Module,
        platform,
        depthwise: Value,
        half: Value,
        inside: dict[str, Signal],
        take: Value,
    ) -> tuple[Value, Value, Signal, Value]:
        """Rows of pixels of words, behind the rows and columns that are stepped over.

        Return the bytes that a chunk has, whether they are there, whether all is stepped over,
        whether a chunk is the last.
        """
        config, d, tile = self._config, self.descriptor, self.i.payload
        pixels, skip_rows = inside["pixels"], inside["skip_rows"]
        word_last, column_last, row_last = Signal(), Signal(), Signal()
        taken = Signal()
        m.d.comb += taken.eq(take & pixels)
        word_end, column_end = taken & word_last, taken & word_last & column_last
        for last, name, trips, begin, end in (
            (word_last, "words", tile.pixel_words, skip_rows, taken),
            (column_last, "columns", tile.columns, skip_rows, word_end),
            (row_last, "rows", tile.rows, inside["input"], column_end),
        ):
            m.d.comb += last.eq(
                loop_counter(
                    m, platform, name, len(trips), enable=begin | end, load=begin | last,
                    trips=trips,
                )
            )  # fmt: skip

        # What is left to step over: columns, then rows; the count ends where all bits are set.
        skip, skipped = Signal(len(tile.skip_rows)), Signal()
        skip_columns_end = inside["skip_columns"] & skipped
        following = counted(
            m, platform, "skip", skip, inside["input"] | skip_columns_end,
            Mux(inside["input"], tile.skip_columns, tile.skip_rows),
        )  # fmt: skip
        m.d.sync += [skip.eq(following), skipped.eq(following.all())]
        skips = (inside["skip_columns"] | skip_rows) & ~skipped

        # The phase of a column within the stride, and beside it whether it is the last one.
        phase, first_phase = Signal(8), Signal(8)
        phase_wraps, first_wraps, zero_wraps = Signal(), Signal(), Signal()
        m.d.sync += zero_wraps.eq(d.phases == 1)
        column_moves = (inside["skip_columns"] & ~skipped) | word_end
        with m.If(column_moves):
            m.d.sync += [
                phase.eq(phase + 1),
                phase_wraps.eq((phase + 2)[: len(phase)] == d.phases),
            ]
        with m.If(column_end):
            m.d.sync += [phase.eq(first_phase), phase_wraps.eq(first_wraps)]
        with m.If(inside["input"] | (column_moves & phase_wraps & ~column_end)):
            m.d.sync += [phase.eq(0), phase_wraps.eq(zero_wraps)]
        with m.If(inside["skip_columns"]):
            m.d.sync += [first_phase.eq(phase), first_wraps.eq(phase_wraps)]

        # One adder: along a word, a column or a row, each from where it began.
        shape = Position(config)
        at_row, at_pixel, place = Signal(shape), Signal(shape), Signal(shape)
        base = Signal(shape)
        along_word, along_column, along_row = Signal(), Signal(), Signal()
        m.d.comb += [
            along_word.eq(pixels & ~word_last),
            along_column.eq(Mux(pixels, ~column_last, inside["skip_columns"])),
            along_row.eq(Mux(pixels, word_last & column_last, skip_rows & ~skipped)),
            base.eq(Mux(pixels & ~column_last, at_pixel, at_row)),
        ]
        step = one_of(
            (along_word, Cat(d.word_bank, d.word_word)),
            (
                ~along_word & along_column & ~phase_wraps,
                Cat(d.load_column_bank, d.load_column_word),
            ),
            (~along_word & along_column & phase_wraps, Cat(d.load_wrap_bank, d.load_wrap_word)),
            (along_row, Cat(d.load_row_bank, d.load_row_word)),
        )
        moved = stepped(m, platform, config, "moved", step[:6], step[6:], along_word, place, base)
        with m.If(skips | column_end):
            m.d.sync += at_row.eq(moved)
        with m.If(inside["input"]):
            m.d.sync += [at_row.bank.eq(0), at_row.word.eq(Mux(half, 0, config.input_words))]
        with m.If(skip_rows | word_end):
            m.d.sync += at_pixel.eq(moved)
        with m.If(skip_rows | taken):
            m.d.sync += place.eq(moved)

        m.d.sync += [
            self.input_write.eq(self._late(m, taken)),
            self.input_position.eq(self._late(m, place)),
        ]
        for index in range(config.word_bytes):
            offset = Signal(signed(9), reset_less=True, name=f"input_{index}")
            m.d.sync += offset.eq(self._bytes[index].as_signed() - d.in_zero_point)
            m.d.comb += self.input_data[index].eq(offset)
        word_tail, word_tail_there = self._tail(m, "word_tail")
        whole = Mux(depthwise, config.out_lanes, config.word_bytes)
        whole_there = Mux(depthwise, self._holds(config.out_lanes), self._holds(config.word_bytes))
        return (
            Mux(word_last, word_tail, whole),
            Mux(word_last, word_tail_there, whole_there),
            skipped,
            word_last & column_last & row_last,
        )
