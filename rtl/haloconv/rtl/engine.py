"""The whole engine: memory ports on one side, control registers on the other."""

from typing import Any

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from haloconv.planner.config import EngineConfig
from haloconv.planner.descriptor import ELEMENTWISE
from haloconv.planner.latency import chunk_bytes, queue_latency, results_room, row_cycles
from haloconv.planner.tile import MODES
from haloconv.rtl.burst_splitter import BurstSplitter
from haloconv.rtl.byte_gearbox import ByteGearbox
from haloconv.rtl.control import Control, Events
from haloconv.rtl.drain import Drain
from haloconv.rtl.elementwise import ElementwiseUnit
from haloconv.rtl.halo_buffer import HaloBuffer
from haloconv.rtl.mac_lanes import MacLanes
from haloconv.rtl.operand_select import OperandSelect
from haloconv.rtl.output_writer import OutputWriter
from haloconv.rtl.ports import MemorySignature, ReadData, RegisterSignature, WriteBeat
from haloconv.rtl.program_fetch import ProgramFetch
from haloconv.rtl.segment_queue import SEGMENTS_AHEAD, SegmentQueue
from haloconv.rtl.segment_walker import SegmentWalker
from haloconv.rtl.stream_fifo import StreamFifo
from haloconv.rtl.tap_walker import TapWalker
from haloconv.rtl.tile_loader import TileLoader
from haloconv.rtl.tile_sequencer import TileSequencer
from haloconv.rtl.weight_buffer import WeightBuffer
from haloconv.rtl.widths import DescriptorLayout, DescriptorWord, ResultRow, Segment

__all__ = ["Datapath", "Engine"]


class Datapath(wiring.Component):
    """From tiles to results: all that the start of a layer and an abort clear.

    Timing: variable; see the blocks.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    descriptor : In(DescriptorLayout)
        Holds from ``start`` to ``done``.
    word : In(DescriptorWord)
        The whole descriptor, before ``start``.
    start : In(1), done : Out(1)
        ``done`` stays high once every result was accepted.
    clearing : In(1)
        This cycle clears the datapath; it counts as one in which that has been done.
    events : Out(Events)
    o_segment : Out(stream of Segment)
        Bytes to read.
    i : In(stream of ReadData)
        The beats of those segments.
    o : Out(stream of WriteBeat)
    """

    descriptor: data.View
    word: Any
    start: Signal
    done: Signal
    clearing: Signal
    events: data.View
    o_segment: stream.Interface
    i: stream.Interface
    o: stream.Interface

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        beat = WriteBeat(config.address_bits, config.bus_bytes)
        super().__init__(
            {
                "descriptor": In(DescriptorLayout()),
                "word": In(DescriptorWord()),
                "start": In(1),
                "done": Out(1),
                "clearing": In(1),
                "events": Out(Events(config)),
                "o_segment": Out(stream.Signature(Segment(config))),
                "i": In(stream.Signature(ReadData(config.bus_bytes))),
                "o": Out(stream.Signature(beat)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        config, d = self._config, self.descriptor
        m.submodules.sequencer = sequencer = TileSequencer(config)
        m.submodules.segments = segments = SegmentWalker(config)
        m.submodules.gearbox = gearbox = ByteGearbox(config, chunk=chunk_bytes(config))
        m.submodules.loader = loader = TileLoader(config)
        m.submodules.walker = walker = TapWalker(config, room=results_room(config))
        m.submodules.drain = drain = Drain(config)
        m.submodules.writer = writer = OutputWriter(config)
        for block in (sequencer, segments, loader, walker, drain, writer):
            m.d.comb += block.descriptor.eq(d)
        unit = None
        if "elementwise" in config.built_units:
            m.submodules.elementwise = unit = ElementwiseUnit(config, room=results_room(config))
            m.d.comb += unit.descriptor.eq(d)
        elementwise = C(0, 1) if unit is None else d.mode == ELEMENTWISE
        m.d.comb += sequencer.word.eq(self.word)
        m.d.comb += sequencer.start.eq(self.start & ~elementwise)

        # Load: segments go to memory and, in the same order, to the gearbox.
        m.submodules.asked = asked = SegmentQueue(config)
        wiring.connect(m, segments.o, asked.i)
        wiring.connect(m, asked.o, wiring.flipped(self.o_segment))
        wiring.connect(m, asked.o_run, gearbox.i_segment)
        wiring.connect(m, sequencer.o_fetch, segments.i)
        wiring.connect(m, sequencer.o_load, loader.i)
        wiring.connect(m, wiring.flipped(self.i), gearbox.i)
        m.d.comb += [
            loader.data.eq(gearbox.data),
            loader.level.eq(gearbox.level),
            gearbox.consume.eq(loader.consume),
            segments.release_input.eq(walker.release_input),
            segments.release_weights.eq(walker.release_weights),
            segments.release_parameters.eq(drain.release_parameters),
        ]

        self._compute(m, loader, walker, drain)
        wiring.connect(m, sequencer.o_compute, walker.i)

        # Results: the walker has reserved room for every row.
        m.submodules.rows = rows = StreamFifo(
            ResultRow(config),
            depth=results_room(config),
            block_ram=True,
            registered=queue_latency(config) == 3,
            reserved=True,
        )
        wiring.connect(m, rows.o, writer.i)
        m.d.comb += [
            writer.i_tile.payload.eq(sequencer.o_write.payload),
            writer.i_tile.valid.eq(sequencer.o_write.valid),
            sequencer.o_write.ready.eq(writer.i_tile.ready),
        ]
        wiring.connect(m, writer.o, wiring.flipped(self.o))
        finished = Signal()
        m.d.comb += [
            rows.i.valid.eq(drain.valid),
            rows.i.payload.eq(drain.row),
            walker.returned.eq(rows.o.valid & rows.o.ready),
            finished.eq(sequencer.done & walker.idle & walker.room_free),
            writer.flush.eq(finished),
            self.done.eq(finished & writer.idle),
            self.events.computing.eq(walker.computing),
            self.events.waiting_load.eq(
                walker.waiting_load & ~(walker.idle & sequencer.done & ~self.clearing)
            ),
            self.events.waiting_drain.eq(walker.waiting_drain),
            self.events.taken.eq(loader.taken),
            self.events.written.eq(writer.written),
        ]
        if unit is not None:
            with m.If(elementwise):
                self._elementwise(m, unit, asked, gearbox, drain, writer, finished)
        return m

    def _elementwise(
        self,
        m: Module,
        unit: ElementwiseUnit,
        asked: SegmentQueue,
        gearbox: ByteGearbox,
        drain: Drain,
        writer: OutputWriter,
        finished: Signal,
    ) -> None:
        """In elementwise layers the unit takes the places of sequencer, loader and lanes."""
        pending = Signal()
        with m.If(self.start):
            m.d.sync += pending.eq(1)
        with m.Elif(writer.i_tile.ready):
            m.d.sync += pending.eq(0)
        taken = self.events.taken
        m.d.comb += [
            unit.start.eq(self.start),
            asked.i.payload.eq(unit.o.payload),
            asked.i.valid.eq(unit.o.valid),
            unit.o.ready.eq(asked.i.ready),
            unit.data.eq(gearbox.data),
            unit.level.eq(gearbox.level),
            gearbox.consume.eq(unit.consume),
            unit.returned.eq(writer.i.valid & writer.i.ready),
            drain.other.valid.eq(unit.valid),
            drain.other.sums.eq(unit.sums),
            drain.other.count.eq(unit.count),
            drain.other.last.eq(unit.last),
            drain.other.multiplier.eq(unit.multiplier),
            drain.other.shift.eq(unit.shift),
            writer.i_tile.payload.address.eq(self.descriptor.output_address),
            writer.i_tile.valid.eq(pending),
            # ``start`` is over in the cycle in which the unit becomes busy.
            finished.eq(~self.start & ~pending & ~unit.busy),
            taken.count.eq(unit.consume),
            taken.input.eq(unit.taken_input),
            taken.weight.eq(0),
            taken.bias.eq(0),
            taken.scale.eq(unit.taken_scale | unit.taken_table),
            self.events.waiting_load.eq(0),
        ]

    def _compute(self, m: Module, loader: TileLoader, walker: TapWalker, drain: Drain) -> None:
        """Buffers, operand selection, lanes and drain, each step delayed to meet its operands."""
        config, d = self._config, self.descriptor
        m.submodules.halo = halo = HaloBuffer(config)
        m.submodules.weights = weights = WeightBuffer(config)
        m.submodules.operands = operands = OperandSelect(config)
        m.submodules.lanes = lanes = MacLanes(config)
        channel_mode = d.mode == MODES.index("channel")
        if "max_pool" in config.built_units:
            m.d.comb += lanes.maximum.eq(d.maximum)
        m.d.comb += [
            halo.write.eq(loader.input_write),
            halo.write_position.eq(loader.input_position),
            halo.write_data.eq(loader.input_data),
            weights.write_rows.eq(loader.weight_rows),
            weights.write_address.eq(loader.weight_address),
            weights.write_data.eq(loader.weight_data),
            drain.parameter_write.eq(loader.parameter_write),
            walker.loaded.eq(loader.loaded),
        ]

        def late(value: Value, cycles: int, name: str, *, reset_less: bool = True) -> Value:
            for stage in range(cycles):
                held = Signal(len(value), reset_less=reset_less, name=f"{name}_{stage}")
                m.d.sync += held.eq(value)
                value = held
            return value

        step, token = walker.step, walker.token
        to_lanes = halo.latency + operands.latency
        last = late(step.last, to_lanes, "last", reset_less=False)
        m.d.comb += [
            operands.position.eq(step.position),
            operands.select.eq(step.select),
            halo.read_position.eq(operands.read_position),
            halo.channel_mode.eq(channel_mode),
            operands.words.eq(halo.data),
            operands.mask.eq(
                late(walker.mask, to_lanes - walker.mask_latency - operands.mask_latency, "mask")
            ),
            operands.channel_mode.eq(channel_mode),
            operands.depthwise.eq(d.mode == MODES.index("depthwise")),
            weights.read_address.eq(late(step.weight, to_lanes - weights.latency, "weight")),
            lanes.operands.eq(operands.operands),
            lanes.weights.eq(weights.data),
            lanes.valid.eq(late(step.valid, to_lanes, "valid", reset_less=False)),
            lanes.last.eq(last),
            drain.load.eq(late(last, lanes.latency, "load", reset_less=False)),
            Value.cast(drain.token).eq(late(Value.cast(token), to_lanes + lanes.latency, "token")),
            drain.sums.eq(lanes.sums),
        ]
        if row_cycles(config) > 1:
            m.d.comb += [lanes.shift.eq(drain.shift), lanes.clear.eq(drain.clear)]


class Engine(wiring.Component):
    """A convolution engine that runs programs of layer descriptors by itself.

    Timing: variable; haloconv.planner predicts it.

    Resources: those of its blocks; docs/area.md has measured figures.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    memory : Out(MemorySignature)
    registers : In(RegisterSignature)
    """

    memory: Any  # members of interfaces have no static types
    registers: Any

    def __init__(self, config: EngineConfig | None = None) -> None:
        self._config = EngineConfig() if config is None else config
        super().__init__(
            {
                "memory": Out(MemorySignature(self._config.address_bits, self._config.bus_bytes)),
                "registers": In(RegisterSignature()),
            }
        )

    @property
    def config(self) -> EngineConfig:
        """What this engine is built for."""
        return self._config

    def elaborate(self, platform) -> Module:
        m = Module()
        config, memory = self._config, self.memory
        m.submodules.control = control = Control(config)
        m.submodules.program = program = ProgramFetch(config)
        m.submodules.bursts = bursts = BurstSplitter(config)
        datapath = Datapath(config)
        # A register drives this long net, so the datapath is cleared a cycle later. Where it may
        # still ask for something then, behind a halt, nothing of it is seen.
        clear = Signal()
        m.d.sync += clear.eq(control.clear)
        m.d.comb += datapath.clearing.eq(clear)
        m.submodules.datapath = ResetInserter(clear)(datapath)
        wiring.connect(m, wiring.flipped(self.registers), control.registers)

        m.d.comb += [
            program.start.eq(control.fetch),
            program.address.eq(control.program),
            control.descriptor.eq(program.descriptor),
            control.word.eq(program.word),
            datapath.word.eq(program.word),
            control.fetched.eq(program.done),
            datapath.descriptor.eq(program.descriptor),
            datapath.start.eq(control.start),
            control.layer_done.eq(datapath.done),
            control.events.eq(datapath.events),
        ]

        # Requests: the descriptor's, or the datapath's.
        with m.If(control.fetching):
            m.d.comb += [
                bursts.i.payload.eq(program.o.payload),
                bursts.i.valid.eq(program.o.valid),
                program.o.ready.eq(bursts.i.ready),
            ]
        with m.Elif(~(control.halted | clear)):
            m.d.comb += [
                bursts.i.payload.eq(datapath.o_segment.payload),
                bursts.i.valid.eq(datapath.o_segment.valid),
                datapath.o_segment.ready.eq(bursts.i.ready),
            ]
        wiring.connect(m, bursts.o, wiring.flipped(memory.read_request))

        # Beats: to whoever asked; a halted engine throws them away. Each beat on its way belongs to
        # one of the segments asked for.
        longest = (2 << len(bursts.i.payload.length)) // config.bus_bytes
        outstanding = Signal(range(SEGMENTS_AHEAD * longest + 1))
        asked, came = Signal(), Signal()
        m.d.comb += [
            asked.eq(memory.read_request.valid & memory.read_request.ready),
            came.eq(memory.read_data.valid & memory.read_data.ready),
            program.i.payload.eq(memory.read_data.payload),
            datapath.i.payload.eq(memory.read_data.payload),
            control.read_error.eq(came & memory.read_data.payload.error),
            control.reads_outstanding.eq((outstanding != 0) | bursts.busy),
        ]
        m.d.sync += outstanding.eq(
            outstanding + Mux(asked, memory.read_request.payload.beats, 0) - came
        )
        with m.If(control.halted):
            m.d.comb += memory.read_data.ready.eq(1)
        with m.Elif(control.fetching):
            m.d.comb += [
                program.i.valid.eq(memory.read_data.valid),
                memory.read_data.ready.eq(program.i.ready),
            ]
        with m.Else():
            m.d.comb += [
                datapath.i.valid.eq(memory.read_data.valid),
                memory.read_data.ready.eq(datapath.i.ready),
            ]

        m.d.comb += [
            memory.write.payload.eq(datapath.o.payload),
            memory.write.valid.eq(datapath.o.valid & ~clear),
            datapath.o.ready.eq(memory.write.ready),
            control.write_waiting.eq(memory.write.valid & ~memory.write.ready),
            control.write_error.eq(memory.write_error),
        ]
        return m
