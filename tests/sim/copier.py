"""Small engines for tests of the simulators: they copy bytes from one place to another."""

import random

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from haloconv.planner.registers import COUNTERS_BUILT, ErrorCode, Register
from haloconv.rtl.ports import MemorySignature, RegisterSignature, WriteBeat

__all__ = ["QUIRKS", "Copier", "NestedCopier"]

QUIRKS = (
    "none",
    "hangs",
    "drops_request",
    "changes_request",
    "drops_write",
    "changes_write",
    "zero_beats",
    "unaligned_request",
    "crosses_page",
    "unaligned_write",
)


class Copier(wiring.Component):
    """Copy ``length`` bytes from the program address to ``destination``.

    It asks for bursts of 1, 2, 4, 6, 9, 13 beats in turn, clipped at the end and at 4 KiB, keeps
    up to ``window`` beats in flight and writes each beat as it comes.
    A last beat that is not full is written with a partial strobe. The counter ``cycles`` counts
    from the start to the last write accepted, ``input_bytes`` the read and ``output_bytes`` the
    written beats times the bus width, ``load_stall_cycles`` the cycles spent waiting for a beat
    and ``drain_stall_cycles`` those in which a write waits.

    With addresses of 32 bits, the upper half of the program address is the index in
    :data:`QUIRKS` of a fault that it shows: one netlist for all of them. OPTIONS read
    as ``options`` says.
    """

    registers: wiring.PureInterface
    memory: wiring.PureInterface

    def __init__(
        self,
        *,
        length: int,
        destination: int,
        address_bits: int = 32,
        bus_bytes: int = 8,
        window: int = 16,
        options: int = COUNTERS_BUILT,
    ) -> None:
        self._options = options
        self._length = length
        self._destination = destination
        self._address_bits = address_bits
        self._bus_bytes = bus_bytes
        self._window = window
        super().__init__(
            {
                "memory": Out(MemorySignature(address_bits, bus_bytes)),
                "registers": In(RegisterSignature()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus = self._bus_bytes
        request, beat, write = (
            self.memory.read_request,
            self.memory.read_data,
            self.memory.write,
        )
        total = -(-self._length // bus)
        program = Signal(64)
        source = Signal(self._address_bits)
        target = Signal(self._address_bits)
        to_ask = Signal(range(total + 1))
        to_write = Signal(range(total + 1))
        in_flight = Signal(range(self._window + 1))
        size = Signal(4, init=1)
        status = Signal(3)
        error = Signal(8)
        busy = status[0]
        quirk = Signal(range(len(QUIRKS)))
        if self._address_bits == 32:
            m.d.comb += quirk.eq(program[32:])
        shows = {name: quirk == index for index, name in enumerate(QUIRKS)}
        counters = {
            name: Signal(64, name=f"count_{name}")
            for name in (
                "cycles",
                "input_bytes",
                "output_bytes",
                "load_stall_cycles",
                "drain_stall_cycles",
            )
        }

        words = {
            Register.IDENTITY: 0x434F5059,
            Register.OPTIONS: self._options,
            Register.STATUS: status,
            Register.ERROR_CODE: error,
            Register.ERROR_DETAIL: to_write,
            Register.PROGRAM_LOW: program[:32],
            Register.PROGRAM_HIGH: program[32:],
        }
        for name, counter in counters.items():
            words[Register[name.upper()]] = counter[:32]
            words[Register[name.upper()] + 1] = counter[32:]
        port = self.registers
        with m.Switch(port.address):
            for address, word in words.items():
                with m.Case(int(address)):
                    m.d.sync += port.read_data.eq(word)
            with m.Default():
                m.d.sync += port.read_data.eq(0)

        start = Signal()
        abort = Signal()
        control = port.write & (port.address == Register.CONTROL)
        m.d.comb += [
            start.eq(control & port.write_data[0] & ~busy),
            abort.eq(control & port.write_data[1]),
        ]
        with m.If(port.write & (port.address == Register.PROGRAM_LOW)):
            m.d.sync += program[:32].eq(port.write_data)
        with m.If(port.write & (port.address == Register.PROGRAM_HIGH)):
            m.d.sync += program[32:].eq(port.write_data)
        with m.If(start):
            m.d.sync += [
                status.eq(1),
                error.eq(0),
                source.eq(program),
                target.eq(self._destination),
                to_ask.eq(total),
                to_write.eq(total),
                size.eq(1),
            ]
            m.d.sync += [counter.eq(0) for counter in counters.values()]

        # Requests: as many beats as the size, what is left, and the page allow.
        page = Signal(13)
        want = Signal(9)
        beats = Signal(9)
        m.d.comb += [
            page.eq((4096 - source[:12]) // bus),
            want.eq(Mux(size < to_ask, size, to_ask)),
            beats.eq(Mux((want < page) | shows["crosses_page"], want, page)),
        ]
        asked = Signal()
        with m.If(busy & (to_ask > 0) & (~request.valid) & (in_flight + beats <= self._window)):
            m.d.sync += [
                request.valid.eq(1),
                request.payload.address.eq(source + shows["unaligned_request"]),
                request.payload.beats.eq(Mux(shows["zero_beats"], 0, beats)),
                source.eq(source + beats * bus),
                to_ask.eq(to_ask - beats),
                size.eq(Mux(size == 13, 1, size + (size >> 1) + (size < 3))),
            ]
            m.d.comb += asked.eq(1)
        with m.If(request.valid & request.ready):
            m.d.sync += request.valid.eq(0)
        with m.Elif(request.valid):
            with m.If(shows["drops_request"]):
                m.d.sync += request.valid.eq(0)
            with m.If(shows["changes_request"]):
                m.d.sync += request.payload.beats.eq(request.payload.beats + 1)

        # Data passes through one register to the write port.
        free = Signal()
        taken = Signal()
        m.d.comb += [
            free.eq(~write.valid | write.ready),
            beat.ready.eq(busy & free & ~shows["hangs"]),
            taken.eq(beat.valid & beat.ready),
        ]
        m.d.sync += in_flight.eq(in_flight + Mux(asked, beats, 0) - taken)
        with m.If(write.valid & ~write.ready):
            with m.If(shows["drops_write"]):
                m.d.sync += write.valid.eq(0)
            with m.If(shows["changes_write"]):
                m.d.sync += write.payload.data.eq(~write.payload.data)
        tail = self._length % bus or bus
        last_left = Signal(range(total + 1))
        m.d.comb += last_left.eq(to_write - (write.valid & write.ready))
        with m.If(write.valid & write.ready):
            m.d.sync += [
                write.valid.eq(0),
                to_write.eq(to_write - 1),
                counters["output_bytes"].eq(counters["output_bytes"] + bus),
            ]
        with m.If(taken):
            m.d.sync += [
                write.valid.eq(~beat.payload.error),
                write.payload.data.eq(beat.payload.data),
                write.payload.address.eq(target + shows["unaligned_write"]),
                write.payload.strobe.eq(Mux(last_left == 1, (1 << tail) - 1, (1 << bus) - 1)),
                target.eq(target + bus),
                counters["input_bytes"].eq(counters["input_bytes"] + bus),
            ]

        with m.If(busy):
            m.d.sync += [
                counters["cycles"].eq(counters["cycles"] + 1),
                counters["load_stall_cycles"].eq(
                    counters["load_stall_cycles"] + (free & ~beat.valid)
                ),
                counters["drain_stall_cycles"].eq(
                    counters["drain_stall_cycles"] + (write.valid & ~write.ready)
                ),
            ]
            with m.If((to_write == 1) & write.valid & write.ready):
                m.d.sync += Cat(status).eq(0b010)
            with m.If(taken & beat.payload.error):
                m.d.sync += [status.eq(0b100), error.eq(ErrorCode.READ)]
            with m.If(self.memory.write_error):
                m.d.sync += [status.eq(0b100), error.eq(ErrorCode.WRITE)]
            with m.If(abort):
                m.d.sync += [status.eq(0b100), error.eq(ErrorCode.ABORTED)]
        return m


class _Slice(wiring.Component):
    """A register between two streams, with ``ready`` passing through combinationally."""

    def __init__(self, shape: object) -> None:
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.i.ready.eq(~self.o.valid | self.o.ready)
        with m.If(self.i.ready):
            m.d.sync += [self.o.valid.eq(self.i.valid), self.o.payload.eq(self.i.payload)]
        return m


class _Scrambler(wiring.Component):
    """Wide registers cut and pasted at odd places, fed by the data that passes."""

    def __init__(self, width: int) -> None:
        self._width = width
        super().__init__({"data": In(width), "step": In(1), "select": In(3), "word": Out(32)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rng = random.Random(7)
        wide = Signal(517, init=(1 << 516) | 1)
        other = Signal(300)
        pieces = []
        left = len(wide) - self._width
        while left:
            size = min(left, rng.choice([1, 3, 31, 32, 33, 40, 64, 95]))
            start = rng.randrange(len(wide) - size)
            pieces.append(wide[start : start + size])
            left -= size
        with m.If(self.step):
            m.d.sync += wide.eq(Cat(self.data, *pieces) ^ Cat(other, other))
            for start, size, source in [(0, 1, 299), (31, 2, 100), (32, 32, 64), (61, 100, 333)]:
                m.d.sync += other[start : start + size].eq(wide[source : source + size])
            m.d.sync += other[200:].eq(other[100:200] + wide[5:70])
        with m.Switch(self.select):
            for index in range(8):
                with m.Case(index):
                    m.d.comb += self.word.eq(wide[61 * index : 61 * index + 32] ^ other[-33:])
        return m


class NestedCopier(wiring.Component):
    """A copier with modules around it, combinational paths in and out of them, and wide registers.

    Registers 2 to 7 show parts of the wide registers.
    """

    registers: wiring.PureInterface
    memory: wiring.PureInterface

    def __init__(self, *, length: int, destination: int) -> None:
        self._copier = Copier(length=length, destination=destination)
        super().__init__(
            {"memory": Out(MemorySignature(32, 8)), "registers": In(RegisterSignature())}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.copier = copier = self._copier
        m.submodules.slice_0 = first = _Slice(WriteBeat(32, 8))
        m.submodules.slice_1 = second = _Slice(WriteBeat(32, 8))
        m.submodules.scrambler = scrambler = _Scrambler(64)
        outer, inner = wiring.flipped(self.memory), copier.memory
        wiring.connect(m, inner.write, first.i)
        wiring.connect(m, first.o, second.i)
        wiring.connect(m, second.o, outer.write)
        wiring.connect(m, inner.read_request, outer.read_request)
        wiring.connect(m, outer.read_data, inner.read_data)
        m.d.comb += [
            inner.write_error.eq(outer.write_error),
            scrambler.data.eq(self.memory.read_data.payload.data),
            scrambler.step.eq(self.memory.read_data.valid & self.memory.read_data.ready),
            scrambler.select.eq(self.registers.address),
            copier.registers.address.eq(self.registers.address),
            copier.registers.write.eq(self.registers.write),
            copier.registers.write_data.eq(self.registers.write_data),
        ]
        word = Signal(32)
        selected = Signal()
        m.d.sync += [
            word.eq(scrambler.word),
            selected.eq((self.registers.address >= 2) & (self.registers.address < 8)),
        ]
        m.d.comb += self.registers.read_data.eq(Mux(selected, word, copier.registers.read_data))
        return m
