"""Sums of table look-ups, element by element: ADD, SUB, requantise and other unary operators."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.data import View
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from haloconv.planner.config import EngineConfig
from haloconv.planner.latency import chunk_bytes, scale_entry_bytes
from haloconv.rtl.widths import TABLE_BYTES, DescriptorLayout, Segment

__all__ = ["BLOCK_ROWS", "ElementwiseUnit"]

BLOCK_ROWS = 16
"""Rows of Q elements of the first operand that are kept until the second arrives."""


class ElementwiseUnit(wiring.Component):
    """y = requantise(A[a] + B[b]) over two tensors of equal size, or requantise(A[a]) over one.

    The tables hold an int32 for each int8 code. They are read once a layer, then the one scale of
    all elements, then the operands in turns of BLOCK_ROWS rows of Q bytes each.

    Timing: variable. Reading goes a row a cycle, so Q results take two cycles (one where there is
    one operand) while the memory keeps up. ``valid`` follows its row by :attr:`latency`.

    Resources: for each requantiser a table of 512 x 32 bits; a FIFO of BLOCK_ROWS * Q sums.

    Parameters
    ----------
    config : EngineConfig
    room : int
        Result rows that fit behind the requantisers.

    Members
    -------
    descriptor : In(DescriptorLayout)
    start : In(1)
        For one cycle.
    o : Out(stream of Segment)
    data, level, consume : the gearbox's string
    valid : Out(1), sums : Out(ArrayLayout(signed(32), Q)), count : Out, last : Out(1)
        A row of sums for the requantisers.
    multiplier : Out(32), shift : Out(signed(6))
    returned : In(1)
        One results row left the room behind the requantisers.
    taken_input, taken_table, taken_scale : Out(1)
        What ``consume`` counts.
    busy : Out(1)
        From ``start`` until every row has returned.
    """

    descriptor: View
    start: Signal
    o: stream.Interface
    # The port is called data, as the module is.
    data: View
    level: Signal
    consume: Signal
    valid: Signal
    sums: View
    count: Signal
    last: Signal
    multiplier: Signal
    shift: Signal
    returned: Signal
    taken_input: Signal
    taken_table: Signal
    taken_scale: Signal
    busy: Signal

    latency = 3
    """Cycles from the last operand of a row to its sums."""

    def __init__(self, config: EngineConfig, *, room: int) -> None:
        self._config = config
        self._room = room
        chunk, q = chunk_bytes(config), config.results_per_cycle
        super().__init__(
            {
                "descriptor": In(DescriptorLayout()),
                "start": In(1),
                "o": Out(stream.Signature(Segment(config))),
                "data": In(data.ArrayLayout(8, chunk)),
                "level": In(bits_for(chunk + config.bus_bytes)),
                "consume": Out(bits_for(chunk)),
                "valid": Out(1),
                "sums": Out(data.ArrayLayout(signed(32), q)),
                "count": Out(bits_for(q)),
                "last": Out(1),
                "multiplier": Out(32),
                "shift": Out(signed(6)),
                "returned": In(1),
                "taken_input": Out(1),
                "taken_table": Out(1),
                "taken_scale": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        config, d = self._config, self.descriptor
        q = config.results_per_cycle
        block = BLOCK_ROWS * q

        self._ask(m, block)

        # What comes: tables, the scale, then operands by blocks, the second after the first.
        want = Signal(bits_for(chunk_bytes(config)))
        active, take = Signal(), Signal()
        entry = Signal(9)
        left = Signal(32)
        row = Signal(range(BLOCK_ROWS))
        second = Signal()
        first_left = Signal(32)
        reserved = Signal(range(self._room + 1))
        reserve = Signal()
        m.d.comb += [
            take.eq(active & (self.level >= want)),
            self.consume.eq(Mux(take, want, 0)),
        ]
        m.d.sync += reserved.eq(reserved + reserve - self.returned)
        table_write = Signal()
        look_up = Signal()
        results = Signal()
        final = Signal()
        block_end = Signal()
        m.d.comb += [
            results.eq(second | ~d.binary),
            block_end.eq((row == BLOCK_ROWS - 1) | (left <= q)),
        ]
        with m.FSM() as fsm:
            with m.State("IDLE"), m.If(self.start):
                m.d.sync += [
                    entry.eq(0),
                    left.eq(d.elements),
                    first_left.eq(d.elements),
                    row.eq(0),
                    second.eq(0),
                ]
                m.next = "TABLES"
            with m.State("TABLES"):
                m.d.comb += [active.eq(1), want.eq(4), table_write.eq(take)]
                m.d.comb += self.taken_table.eq(take)
                with m.If(take):
                    m.d.sync += entry.eq(entry + 1)
                    with m.If(entry == Mux(d.binary, 511, 255)):
                        m.next = "SCALE"
            with m.State("SCALE"):
                m.d.comb += [active.eq(1), want.eq(scale_entry_bytes(config))]
                m.d.comb += self.taken_scale.eq(take)
                with m.If(take):
                    m.d.sync += [
                        self.multiplier.eq(Cat(self.data[index] for index in range(4))),
                        self.shift.eq(self.data[4]),
                    ]
                    m.next = "OPERANDS"
            with m.State("OPERANDS"):
                m.d.comb += [
                    active.eq(~results | (reserved != self._room)),
                    want.eq(Mux(left < q, left, q)),
                    look_up.eq(take),
                    self.taken_input.eq(take),
                    reserve.eq(take & results),
                    final.eq(results & (left <= q)),
                ]
                with m.If(take):
                    m.d.sync += [row.eq(row + 1), left.eq(left - want)]
                    with m.If(block_end):
                        m.d.sync += row.eq(0)
                        with m.If(d.binary):
                            # The second operand's block covers the same elements.
                            m.d.sync += second.eq(~second)
                            with m.If(~second):
                                m.d.sync += left.eq(first_left)
                            with m.Else():
                                m.d.sync += first_left.eq(left - want)
                    with m.If(final):
                        m.next = "FINISH"
            with m.State("FINISH"), m.If(reserved == 0):
                m.next = "IDLE"
        m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))

        self._look_up(m, look_up, results, second, final, want, table_write, entry)
        return m

    def _ask(self, m: Module, block: int) -> None:
        """Segments: tables, scale, and the operands in turns."""
        d, config = self.descriptor, self._config
        offset = Signal(config.address_bits)
        left = Signal(32)
        second = Signal()
        size = Signal(range(block + 1))
        m.d.comb += size.eq(Mux(left < block, left, block))
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [offset.eq(0), left.eq(d.elements), second.eq(0)]
                with m.If(self.start):
                    m.next = "TABLES"
            with m.State("TABLES"):
                m.d.comb += [
                    self.o.valid.eq(1),
                    self.o.payload.address.eq(d.bias_address),
                    self.o.payload.length.eq(Mux(d.binary, TABLE_BYTES, TABLE_BYTES // 2)),
                ]
                with m.If(self.o.ready):
                    m.next = "SCALE"
            with m.State("SCALE"):
                m.d.comb += [
                    self.o.valid.eq(1),
                    self.o.payload.address.eq(d.scale_address),
                    self.o.payload.length.eq(scale_entry_bytes(config)),
                ]
                with m.If(self.o.ready):
                    m.next = "OPERANDS"
            with m.State("OPERANDS"):
                m.d.comb += [
                    self.o.valid.eq(1),
                    self.o.payload.address.eq(
                        Mux(second, d.weight_address, d.input_address) + offset
                    ),
                    self.o.payload.length.eq(size),
                ]
                with m.If(self.o.ready):
                    m.d.sync += second.eq(d.binary & ~second)
                    with m.If(second | ~d.binary):
                        m.d.sync += [offset.eq(offset + size), left.eq(left - size)]
                        with m.If(left == size):
                            m.next = "IDLE"

    def _look_up(
        self,
        m: Module,
        look_up: Value,
        results: Value,
        second: Value,
        final: Value,
        count: Value,
        table_write: Value,
        entry: Value,
    ) -> None:
        """Three stages: codes to table addresses, tables, sums with what was kept."""
        q = self._config.results_per_cycle
        kept_width = 32 * q
        m.submodules.kept = kept = Memory(shape=unsigned(kept_width), depth=BLOCK_ROWS, init=[])
        # Asynchronous: sixteen rows, read in the cycle of the sum.
        keep, recall = kept.write_port(), kept.read_port(domain="comb")
        stages: list[dict[str, Signal]] = []
        now = {
            "valid": look_up,
            "results": results,
            "second": second,
            "final": final,
            "count": count,
        }
        for stage in (1, 2):
            held = {
                name: Signal(len(Value.cast(value)), name=f"{name}_{stage}")
                for name, value in now.items()
            }
            m.d.sync += [held[name].eq(value) for name, value in now.items()]
            stages.append(held)
            now = held
        at = stages[1]
        write_row, read_row = Signal(range(BLOCK_ROWS)), Signal(range(BLOCK_ROWS))
        m.d.comb += [keep.addr.eq(write_row), recall.addr.eq(read_row)]
        values = []
        for lane in range(q):
            m.submodules[f"table_{lane}"] = table = Memory(shape=unsigned(32), depth=512, init=[])
            write_port, read_port = table.write_port(), table.read_port()
            address = Signal(9, reset_less=True, name=f"address_{lane}")
            # Codes are signed; the tables start at code -128.
            m.d.sync += address.eq(Cat(self.data[lane] ^ 0x80, second))
            m.d.comb += [
                write_port.en.eq(table_write),
                write_port.addr.eq(entry),
                write_port.data.eq(Cat(self.data[index] for index in range(4))),
                read_port.addr.eq(address),
            ]
            values.append(read_port.data)
            stored = recall.data.word_select(lane, 32)
            m.d.sync += self.sums[lane].eq(read_port.data + Mux(at["second"], stored, 0))
        keeps, recalls = Signal(), Signal()
        m.d.comb += [
            keeps.eq(at["valid"] & ~at["results"]),
            recalls.eq(at["valid"] & at["second"]),
            keep.en.eq(keeps),
            keep.data.eq(Cat(*values)),
        ]
        with m.If(keeps):
            m.d.sync += write_row.eq(write_row + 1)
        with m.If(recalls):
            m.d.sync += read_row.eq(read_row + 1)
        # Blocks may end early: both sides start the next one at row 0.
        with m.If(self.start):
            m.d.sync += [write_row.eq(0), read_row.eq(0)]
        m.d.sync += [
            self.valid.eq(at["valid"] & at["results"]),
            self.count.eq(at["count"]),
            self.last.eq(at["final"]),
        ]
