"""Fills halo buffer, weight buffer and parameter table from the string of bytes read."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from haloconv.planner.config import EngineConfig
from haloconv.planner.latency import chunk_bytes, scale_entry_bytes
from haloconv.planner.tile import MODES
from haloconv.rtl.parameter_table import ParameterWrite
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
    ``loaded`` is high for one cycle when all operands of a tile can be read.

    Resources: word_bytes subtractors of nine bits, and those of :class:`WeightPlacer`.

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
        m.d.comb += [
            channel_mode.eq(d.mode == MODES.index("channel")),
            depthwise.eq(d.mode == MODES.index("depthwise")),
        ]

        # What the state at hand wants to take, and whether it gets it.
        want = Signal(bits_for(chunk_bytes(config)))
        active, take = Signal(), Signal()
        m.d.comb += [
            take.eq(active & (self.level >= want)),
            self.consume.eq(Mux(take, want, 0)),
            self.taken.count.eq(self.consume),
        ]
        parameter_half = Signal(init=1)
        weight_half = Signal(init=1)
        input_half = Signal(init=1)

        # Channels of the tile, counted for biases and scales.
        channel = Signal(16)
        lane_m = Signal(index_bits(config.out_lanes))
        write_lane = Signal(index_bits(config.results_per_cycle))
        write_row = Signal(len(self.parameter_write.row))
        channel_group = Signal(index_bits(config.channel_groups))
        row_base = config.channel_groups * config.group_steps
        channel_last = Signal()
        m.d.comb += channel_last.eq(channel == tile.tile_m - 1)

        def start_channels(half: Value) -> list:
            return [
                channel.eq(0),
                lane_m.eq(0),
                write_lane.eq(0),
                channel_group.eq(0),
                write_row.eq(Mux(half, row_base, 0)),
            ]

        def next_channel() -> None:
            m.d.sync += channel.eq(channel + 1)
            group_end = lane_m == config.out_lanes - 1
            m.d.sync += lane_m.eq(Mux(group_end, 0, lane_m + 1))
            with m.If(group_end):
                m.d.sync += channel_group.eq(channel_group + 1)
            with m.If(group_end | (write_lane == config.results_per_cycle - 1)):
                m.d.sync += [write_lane.eq(0), write_row.eq(write_row + 1)]
            with m.Else():
                m.d.sync += write_lane.eq(write_lane + 1)

        m.d.sync += [
            self.parameter_write.row.eq(write_row),
            self.parameter_write.lane.eq(write_lane),
            self.parameter_write.bias.eq(self.taken.bias),
            self.parameter_write.scale.eq(self.taken.scale),
            self.parameter_write.value.eq(Cat(self.data[index] for index in range(4))),
            self.parameter_write.shift.eq(self.data[4]),
        ]

        # Weights: groups of Pm, taps, channel steps, and in channel mode the rows of a word.
        groups_left = Signal(16)
        tap = Signal(16)
        step = Signal(16)
        row = Signal(index_bits(config.out_lanes))
        word = Signal(len(self.weight_address))
        group = Signal(index_bits(config.channel_groups))
        group_channels = Signal(8)
        final_step, final_tap, final_row = Signal(), Signal(), Signal()
        m.d.comb += [
            group_channels.eq(Mux(groups_left == 0, tile.m_tail, config.out_lanes)),
            final_step.eq(step == tile.c_steps - 1),
            final_tap.eq(tap == d.taps - 1),
            final_row.eq(~channel_mode | (row == group_channels - 1)),
        ]
        m.submodules.placer = placer = WeightPlacer(config)
        m.d.comb += [
            placer.take.eq(self.taken.weight),
            placer.place.word.eq(word),
            placer.place.row.eq(row),
            placer.place.group.eq(group),
            placer.place.count.eq(want),
            placer.channel_mode.eq(channel_mode),
            placer.subtract.eq(d.load_scale),
            placer.zero_point.group.eq(channel_group),
            placer.zero_point.row.eq(lane_m),
            placer.zero_point.value.eq(self.data[scale_entry_bytes(config) - 1]),
            placer.zero_point.enable.eq(self.taken.scale),
            self.weight_rows.eq(placer.rows),
            self.weight_address.eq(placer.address),
            self.weight_data.eq(placer.weights),
        ]
        for index in range(max(config.out_lanes, config.split_lanes)):
            m.d.comb += placer.data[index].eq(self.data[index])

        # Input: rows of pixels of words.
        start = Signal(Position(config))
        row_position = Signal(Position(config))
        pixel = Signal(Position(config))
        position = Signal(Position(config))
        skip = Signal(16)
        skip_phase = Signal(8)
        phase = Signal(8)
        rows_left = Signal(16)
        columns_left = Signal(16)
        words_left = Signal(16)
        word_final = Signal()
        m.d.comb += [
            start.bank.eq(0),
            start.word.eq(Mux(input_half, 0, config.input_words)),
            word_final.eq(words_left == 0),
        ]
        phase_wraps = Signal()
        m.d.comb += phase_wraps.eq(phase == d.phases - 1)
        column_word = Mux(phase_wraps, d.load_wrap_word, d.load_column_word)
        column_bank = Mux(phase_wraps, d.load_wrap_bank, d.load_column_bank)
        next_phase = Mux(phase_wraps, 0, phase + 1)
        write_word = Signal()

        with m.FSM():
            with m.State("NEXT"), m.If(self.i.valid):
                with m.If(tile.new_parameters):
                    m.d.sync += [parameter_half.eq(~parameter_half)]
                    m.d.sync += start_channels(~parameter_half)
                    with m.If(d.has_bias):
                        m.next = "BIASES"
                    with m.Elif(d.load_scale):
                        m.next = "SCALES"
                    with m.Else():
                        m.next = "OPERANDS"
                with m.Else():
                    m.next = "OPERANDS"
            with m.State("BIASES"):
                m.d.comb += [
                    active.eq(1),
                    want.eq(4),
                    self.taken.bias.eq(take),
                ]
                with m.If(take):
                    next_channel()
                    with m.If(channel_last):
                        m.d.sync += start_channels(parameter_half)
                        with m.If(d.load_scale):
                            m.next = "SCALES"
                        with m.Else():
                            m.next = "OPERANDS"
            with m.State("SCALES"):
                m.d.comb += [
                    active.eq(1),
                    want.eq(scale_entry_bytes(config)),
                    self.taken.scale.eq(take),
                ]
                with m.If(take):
                    next_channel()
                    with m.If(channel_last):
                        m.next = "OPERANDS"
            with m.State("OPERANDS"):
                m.d.sync += [
                    groups_left.eq(tile.m_groups - 1),
                    group.eq(0),
                    tap.eq(0),
                    step.eq(0),
                    row.eq(0),
                    word.eq(Mux(weight_half, 0, config.weight_words)),
                ]
                with m.If(tile.new_weights):
                    m.d.sync += weight_half.eq(~weight_half)
                    m.next = "WEIGHTS"
                with m.Else():
                    m.next = "INPUT"
            with m.State("WEIGHTS"):
                m.d.comb += [
                    active.eq(1),
                    want.eq(
                        Mux(
                            channel_mode,
                            Mux(final_step, tile.c_tail, config.split_lanes),
                            group_channels,
                        )
                    ),
                    self.taken.weight.eq(take),
                ]
                with m.If(take):
                    m.d.sync += row.eq(Mux(final_row, 0, row + 1))
                    with m.If(final_row):
                        m.d.sync += [word.eq(word + 1), step.eq(Mux(final_step, 0, step + 1))]
                        with m.If(final_step):
                            m.d.sync += tap.eq(Mux(final_tap, 0, tap + 1))
                            with m.If(final_tap):
                                m.d.sync += [group.eq(group + 1), groups_left.eq(groups_left - 1)]
                                with m.If(groups_left == 0):
                                    m.next = "INPUT"
            with m.State("INPUT"):
                m.d.sync += [
                    row_position.eq(start),
                    phase.eq(0),
                    skip.eq(tile.skip_columns),
                    rows_left.eq(tile.rows - 1),
                ]
                with m.If(~tile.new_input):
                    m.next = "SETTLE"
                with m.Else():
                    m.d.sync += input_half.eq(~input_half)
                    with m.If(tile.rows == 0):
                        m.next = "SETTLE"
                    with m.Else():
                        m.next = "SKIP COLUMNS"
            with m.State("SKIP COLUMNS"):
                m.d.sync += skip_phase.eq(phase)
                with m.If(skip == 0):
                    m.d.sync += skip.eq(tile.skip_rows)
                    m.next = "SKIP ROWS"
                with m.Else():
                    m.d.sync += skip.eq(skip - 1)
                    m.d.sync += self._stepped(row_position, row_position, column_word, column_bank)
                    m.d.sync += phase.eq(next_phase)
            with m.State("SKIP ROWS"):
                m.d.sync += [
                    pixel.eq(row_position),
                    position.eq(row_position),
                    columns_left.eq(tile.columns - 1),
                    words_left.eq(tile.pixel_words - 1),
                ]
                with m.If(skip == 0):
                    m.next = "PIXELS"
                with m.Else():
                    m.d.sync += skip.eq(skip - 1)
                    m.d.sync += self._stepped(
                        row_position, row_position, d.load_row_word, d.load_row_bank
                    )
            with m.State("PIXELS"):
                m.d.comb += [
                    active.eq(1),
                    want.eq(
                        Mux(
                            word_final,
                            tile.word_tail,
                            Mux(depthwise, config.out_lanes, config.word_bytes),
                        )
                    ),
                    self.taken.input.eq(take),
                    write_word.eq(take),
                ]
                with m.If(take):
                    with m.If(~word_final):
                        m.d.sync += words_left.eq(words_left - 1)
                        m.d.sync += self._stepped(position, position, d.word_word, d.word_bank)
                    with m.Else():
                        m.d.sync += [
                            words_left.eq(tile.pixel_words - 1),
                            columns_left.eq(columns_left - 1),
                            phase.eq(next_phase),
                        ]
                        for target in (pixel, position):
                            m.d.sync += self._stepped(target, pixel, column_word, column_bank)
                        with m.If(columns_left == 0):
                            for target in (row_position, pixel, position):
                                m.d.sync += self._stepped(
                                    target, row_position, d.load_row_word, d.load_row_bank
                                )
                            m.d.sync += [
                                columns_left.eq(tile.columns - 1),
                                phase.eq(skip_phase),
                                rows_left.eq(rows_left - 1),
                            ]
                            with m.If(rows_left == 0):
                                m.next = "SETTLE"
            with m.State("SETTLE"):
                # The writes of the last chunk are one register away from the buffers.
                m.d.comb += [self.loaded.eq(1), self.i.ready.eq(1)]
                m.next = "NEXT"

        m.d.sync += [self.input_write.eq(write_word), self.input_position.eq(position)]
        for index in range(config.word_bytes):
            m.d.sync += self.input_data[index].eq(self.data[index].as_signed() - d.in_zero_point)
        return m

    def _stepped(self, target, base, word: Value, bank: Value) -> list:
        """Assignments that move ``base`` by a step of (word, bank) into ``target``."""
        lanes = self._config.split_lanes
        total = base.bank + bank
        carry = total >= lanes
        return [
            target.bank.eq(Mux(carry, total - lanes, total)),
            target.word.eq(base.word + word + carry),
        ]
