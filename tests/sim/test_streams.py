# amaranth: UnusedElaboratable=no
"""The stream helpers keep full throughput, stall as asked and find broken streams."""

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from haloconv.sim.streams import (
    BenchTimeout,
    StreamError,
    get,
    get_many,
    plain,
    put,
    put_many,
    simulate,
)

PAIR = data.StructLayout({"values": data.ArrayLayout(signed(8), 2), "last": unsigned(1)})


class Register(wiring.Component):
    """One register between two streams; ``fault`` breaks the output, ``stuck`` the input."""

    def __init__(self, shape=PAIR, *, fault="none", always_ready=False):
        self._fault = fault
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape, always_ready=always_ready)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        if self._fault != "stuck":
            m.d.comb += self.i.ready.eq(~self.o.valid | self.o.ready)
        with m.If(self.o.valid & ~self.o.ready):
            if self._fault == "falls":
                m.d.sync += self.o.valid.eq(0)
            if self._fault == "changes":
                bits = self.o.payload.as_value()
                m.d.sync += bits.eq(bits + 1)
        with m.If(self.i.ready):
            m.d.sync += [self.o.valid.eq(self.i.valid), self.o.payload.eq(self.i.payload)]
        return m


def pairs(count, seed):
    rng = np.random.default_rng(seed)
    values = rng.integers(-128, 128, (count, 2), dtype=np.int8)
    return [{"values": row, "last": np.uint8(i % 2)} for i, row in enumerate(values)]


def as_plain(payloads):
    return [{"values": [int(v) for v in p["values"]], "last": int(p["last"])} for p in payloads]


def transfer(count, seed, *, put_stalls=0.0, get_stalls=0.0, dut=None):
    dut = dut or Register()
    sent = pairs(count, seed)
    received = []

    async def producer(ctx):
        await put_many(ctx, dut.i, sent, stalls=put_stalls, seed=seed, limit=50)

    async def consumer(ctx):
        received.extend(
            await get_many(ctx, dut.o, count, stalls=get_stalls, seed=seed + 1, limit=50)
        )

    cycles = simulate(dut, producer, consumer, max_cycles=40 * count + 100)
    return sent, received, cycles


def test_full_throughput():
    sent, received, cycles = transfer(64, 3)
    assert received == as_plain(sent)
    assert cycles == 64 + 1  # one register deep


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("stalls", [(0.5, 0.0), (0.0, 0.5), (0.4, 0.4)])
def test_stalls_keep_order_and_take_time(stalls, seed):
    sent, received, cycles = transfer(200, seed, put_stalls=stalls[0], get_stalls=stalls[1])
    assert received == as_plain(sent)
    # A share s of stalled cycles stretches n transfers to about n / (1 - s).
    assert 200 / (1 - max(stalls)) * 0.8 < cycles < 200 / (1 - stalls[0]) / (1 - stalls[1]) * 1.3


def test_same_seed_same_cycles():
    assert transfer(100, 5, put_stalls=0.3)[2] == transfer(100, 5, put_stalls=0.3)[2]
    assert transfer(100, 5, put_stalls=0.3)[2] != transfer(100, 6, put_stalls=0.3)[2]


def test_single_put_and_get():
    dut = Register(signed(8))
    values = []

    async def producer(ctx):
        await put(ctx, dut.i, np.int8(-128))
        await put(ctx, dut.i, 127)

    async def consumer(ctx):
        values.append(await get(ctx, dut.o))
        values.append(await get(ctx, dut.o))

    simulate(dut, producer, consumer)
    assert values == [-128, 127]


def test_put_times_out():
    dut = Register(unsigned(8), fault="stuck")

    async def producer(ctx):
        await put_many(ctx, dut.i, [1, 2], limit=7)

    with pytest.raises(BenchTimeout, match="Payload 0 was not taken within 7 cycles"):
        simulate(dut, producer)


def test_get_times_out():
    dut = Register(unsigned(8))

    async def producer(ctx):
        await put(ctx, dut.i, 1)

    async def consumer(ctx):
        await get_many(ctx, dut.o, 2, limit=9)

    with pytest.raises(BenchTimeout, match="Payload 1 did not come within 9 cycles"):
        simulate(dut, producer, consumer)


@pytest.mark.parametrize(
    ("fault", "message"), [("falls", "Valid fell before"), ("changes", r"Payload \d+ changed from")]
)
def test_unstable_output_is_found(fault, message):
    with pytest.raises(StreamError, match=message):
        transfer(50, 1, get_stalls=0.5, dut=Register(fault=fault))


def test_stalled_payload_is_random():
    seen = []
    dut = Register(unsigned(16))

    async def producer(ctx):
        await put_many(ctx, dut.i, [0] * 20, stalls=0.7, seed=4)

    async def monitor(ctx):
        async for _, _, valid, payload in ctx.tick().sample(dut.i.valid, dut.i.payload):
            if not valid:
                seen.append(payload)

    async def consumer(ctx):
        await get_many(ctx, dut.o, 20)

    simulate(dut, producer, consumer, background=[monitor])
    assert len(set(seen)) > 10


def test_always_ready_output():
    dut = Register(always_ready=True)
    sent, received, _ = transfer(10, 7, dut=dut)
    assert received == as_plain(sent)

    async def consumer(ctx):
        await get_many(ctx, dut.o, 1, stalls=0.5)

    with pytest.raises(ValueError, match=r"Stalls must be 0 on an always-ready stream, not 0\.5"):
        simulate(dut, consumer)


def test_bench_that_never_ends():
    async def forever(ctx):
        while True:
            await ctx.tick()

    with pytest.raises(BenchTimeout, match="did not end within 20 cycles"):
        simulate(Register(), forever, max_cycles=20)


def test_bench_of_a_combinational_block_ends():
    class Inverter(wiring.Component):
        i: In(8)
        o: Out(8)

        def elaborate(self, platform):
            m = Module()
            m.d.comb += self.o.eq(~self.i)
            return m

    dut = Inverter()
    seen = []

    async def bench(ctx):
        ctx.set(dut.i, 0x0F)
        await ctx.tick()
        seen.append(ctx.get(dut.o))

    assert simulate(dut, bench) == 1
    assert seen == [0xF0]


def test_combinational_loop_is_refused():
    class Loop(wiring.Component):
        o: Out(1)

        def elaborate(self, platform):
            m = Module()
            m.d.comb += self.o.eq(~self.o)
            return m

    async def bench(ctx):
        await ctx.tick()

    with pytest.raises(Exception, match=r"[Cc]ombinational cycle"):
        simulate(Loop(), bench)


def test_reset_mid_stream():
    dut = Register(unsigned(8))
    reset = Signal()
    levels = []

    async def bench(ctx):
        await put(ctx, dut.i, 5)
        levels.append(ctx.get(dut.o.valid))
        ctx.set(reset, 1)
        await ctx.tick()
        levels.append(ctx.get(dut.o.valid))

    simulate(dut, bench, reset=reset)
    assert levels == [1, 0]


def test_vcd(tmp_path):
    path = tmp_path / "wave.vcd"

    async def bench(ctx):
        await ctx.tick().repeat(3)

    simulate(Register(), bench, vcd=path)
    assert path.read_text().count("$var") > 5


@pytest.mark.parametrize(
    ("stalls", "error"),
    [(1.0, ValueError), (-0.1, ValueError), ("x", TypeError), (True, TypeError)],
)
def test_bad_stalls(stalls, error):
    dut = Register(unsigned(8))

    async def bench(ctx):
        await put_many(ctx, dut.i, [1], stalls=stalls)

    with pytest.raises(error, match="Stalls must be"):
        simulate(dut, bench)


def test_plain():
    constant = PAIR.const({"values": [-1, 2], "last": 1})
    assert plain(constant) == {"values": [-1, 2], "last": 1}
    assert plain([np.int8(-3), np.arange(2)]) == [-3, [0, 1]]
    union = data.UnionLayout({"a": unsigned(8), "b": signed(8)})
    assert plain(union.const({"a": 255})) == 255


def test_helpers_work_in_a_plain_simulator():
    dut = Register(unsigned(8))
    values = []

    async def producer(ctx):
        await put_many(ctx, dut.i, range(5))

    async def consumer(ctx):
        values.extend(await get_many(ctx, dut.o, 5))

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(producer)
    simulator.add_testbench(consumer)
    simulator.run()
    assert values == list(range(5))
