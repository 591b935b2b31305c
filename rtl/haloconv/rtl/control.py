"""Control registers, counters and the order of events of a program."""

from typing import Any

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from haloconv.planner.config import EngineConfig
from haloconv.planner.descriptor import DESCRIPTOR_BYTES
from haloconv.planner.registers import ErrorCode, Register
from haloconv.rtl.descriptor_check import DescriptorCheck
from haloconv.rtl.ports import RegisterSignature
from haloconv.rtl.register_file import Events, RegisterFile
from haloconv.rtl.widths import DescriptorLayout, DescriptorWord

__all__ = ["Control", "Events"]


class Control(wiring.Component):
    """Runs the descriptors of a program one after the other and stops at the first error.

    After an error or an abort no new segment is asked for; the bursts of the last one leave,
    outstanding reads are waited for and thrown away, then the datapath is cleared. Nothing hangs as
    long as the memory answers. A program that does not lie at a multiple of the bus width stops
    with the error DESCRIPTOR.

    Timing: a register reads back one cycle after its address. Between two layers: the descriptor's
    fetch and three cycles.

    Resources: those of the register file, which keeps the counters; two adders.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    registers : In(RegisterSignature)
    descriptor : In(DescriptorLayout), word : In(DescriptorWord), fetched : In(1)
        Of the program fetch.
    fetch : Out(1), program : Out
        Fetch the descriptor at ``program``.
    fetching : Out(1)
        Beats read belong to the descriptor.
    clear : Out(1)
        Reset the datapath.
    start : Out(1)
        Start the layer.
    halted : Out(1)
        Read beats are thrown away, no request leaves.
    layer_done : In(1)
    reads_outstanding, write_waiting : In(1)
    read_error, write_error : In(1)
    events : In(Events)
    """

    registers: Any  # its members have no static types
    descriptor: data.View
    word: Any
    fetched: Signal
    fetch: Signal
    program: Signal
    fetching: Signal
    clear: Signal
    start: Signal
    halted: Signal
    layer_done: Signal
    reads_outstanding: Signal
    write_waiting: Signal
    read_error: Signal
    write_error: Signal
    events: data.View

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "registers": In(RegisterSignature()),
                "descriptor": In(DescriptorLayout()),
                "word": In(DescriptorWord()),
                "fetched": In(1),
                "fetch": Out(1),
                "program": Out(config.address_bits),
                "fetching": Out(1),
                "clear": Out(1),
                "start": Out(1),
                "halted": Out(1),
                "layer_done": In(1),
                "reads_outstanding": In(1),
                "write_waiting": In(1),
                "read_error": In(1),
                "write_error": In(1),
                "events": In(Events(config)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        config, d, bus = self._config, self.descriptor, self.registers
        # Counting ends before busy: the last events take their turns at the counters' adder.
        busy, counting, done, error = Signal(), Signal(), Signal(), Signal()
        finished, last_round = Signal(), Signal()
        code = Signal(ErrorCode)
        layers = Signal(16)
        program_base = Signal(config.address_bits)
        starting = Signal()
        write_register = bus.write
        aborting = Signal()
        m.d.comb += [
            starting.eq(
                write_register & (bus.address == Register.CONTROL) & bus.write_data[0] & ~busy
            ),
            aborting.eq(write_register & (bus.address == Register.CONTROL) & bus.write_data[1]),
        ]
        with m.If(write_register & (bus.address == Register.PROGRAM_LOW) & ~busy):
            m.d.sync += program_base.eq(bus.write_data)

        m.submodules.check = check = DescriptorCheck(config)
        misplaced = Signal()
        m.d.comb += [
            check.start.eq(self.fetch),
            check.word.eq(self.word),
            check.descriptor.eq(d),
            # A descriptor across beats is one beat longer than its fetch.
            misplaced.eq(self.program[: exact_log2(config.bus_bytes)].any()),
        ]
        # The first failure since start; it is acted upon between two steps of the sequence.
        failed = Signal(ErrorCode)
        with m.If(starting):
            m.d.sync += failed.eq(ErrorCode.NONE)
        with m.Elif(counting & (failed == ErrorCode.NONE)):
            with m.If(self.read_error):
                m.d.sync += failed.eq(ErrorCode.READ)
            with m.Elif(self.write_error):
                m.d.sync += failed.eq(ErrorCode.WRITE)
            with m.Elif(aborting):
                m.d.sync += failed.eq(ErrorCode.ABORTED)

        m.submodules.file = file = RegisterFile(config)

        step = (DESCRIPTOR_BYTES & -DESCRIPTOR_BYTES).bit_length() - 1

        # ``fetching`` and ``halted`` are registers beside the state: they steer the memory ports.
        def stop(reason: Value | ErrorCode) -> None:
            m.d.sync += [code.eq(reason), error.eq(1), self.halted.eq(1)]
            m.next = "HALT"

        with m.FSM():
            with m.State("IDLE"), m.If(starting):
                m.d.sync += [
                    busy.eq(1),
                    counting.eq(1),
                    last_round.eq(0),
                    done.eq(0),
                    error.eq(0),
                    code.eq(ErrorCode.NONE),
                    layers.eq(0),
                    self.program.eq(program_base),
                ]
                m.next = "FETCH"
            with m.State("FETCH"):
                m.d.comb += [self.fetch.eq(1), self.clear.eq(1)]
                m.d.sync += self.fetching.eq(1)
                m.next = "DESCRIPTOR"
            with m.State("DESCRIPTOR"):
                with m.If(failed != ErrorCode.NONE):
                    m.d.sync += self.fetching.eq(0)
                    stop(failed)
                with m.Elif(self.fetched):
                    m.d.sync += self.fetching.eq(0)
                    m.next = "CHECK"
            with m.State("CHECK"):
                with m.If(failed != ErrorCode.NONE):
                    stop(failed)
                with m.Elif(check.unsuited | misplaced):
                    stop(ErrorCode.DESCRIPTOR)
                with m.Elif(check.oversized):
                    stop(ErrorCode.LIMIT)
                with m.Else():
                    m.d.comb += self.start.eq(1)
                    m.next = "RUN"
            with m.State("RUN"):
                with m.If(failed != ErrorCode.NONE):
                    stop(failed)
                with m.Elif(self.layer_done):
                    m.next = "SETTLE"
            with m.State("SETTLE"):
                # One cycle more, for the answer to the last write.
                with m.If(self.write_error):
                    stop(ErrorCode.WRITE)
                with m.Elif(failed != ErrorCode.NONE):
                    stop(failed)
                with m.Else():
                    # The next layer, or program, finds the datapath as after a reset, so that its
                    # counters do not depend on what ran before.
                    m.d.comb += [self.clear.eq(1), finished.eq(1)]
                    m.d.sync += [
                        layers.eq(layers + 1),
                        # The bits below stay as they are.
                        self.program[step:].eq(self.program[step:] + (DESCRIPTOR_BYTES >> step)),
                    ]
                    with m.If(d.last):
                        m.d.sync += counting.eq(0)
                        m.next = "COUNT"
                    with m.Else():
                        m.next = "FETCH"
            with m.State("HALT"), m.If(~self.reads_outstanding & ~self.write_waiting):
                m.d.comb += self.clear.eq(1)
                m.d.sync += [counting.eq(0), self.halted.eq(0)]
                m.next = "COUNT"
            # A round of turns that began earlier, and a whole one.
            with m.State("COUNT"), m.If(file.round):
                m.d.sync += last_round.eq(1)
                with m.If(last_round):
                    m.d.sync += [busy.eq(0), done.eq(~error)]
                    m.next = "IDLE"

        m.d.comb += [
            file.address.eq(bus.address),
            bus.read_data.eq(file.data),
            file.start.eq(starting),
            file.counting.eq(counting),
            file.events.eq(self.events),
            file.fetched.eq(self.fetched),
            file.finished.eq(finished),
        ]
        with m.Switch(bus.address):
            with m.Case(Register.STATUS):
                m.d.comb += file.live.eq(Cat(busy, done, error, C(0, 13), layers))
            with m.Case(Register.ERROR_CODE):
                m.d.comb += file.live.eq(code)
            with m.Case(Register.PROGRAM_LOW):
                m.d.comb += file.live.eq(program_base)
        return m
