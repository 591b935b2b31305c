# amaranth: UnusedElaboratable=no
"""On-chip memory behind the engine's port: bursts, stalls, errors, and the host in between."""

import random

import pytest

from haloconv.rtl.board.on_chip_memory import OnChipMemory, read_latency
from haloconv.sim.streams import get_many, put, put_many, simulate

KINDS = [
    {"address_bits": 20, "bus_bytes": 8, "size": 3 * 16384, "technology": "block"},
    {"address_bits": 16, "bus_bytes": 4, "size": 1 << 16, "technology": "block"},
    {"address_bits": 16, "bus_bytes": 1, "size": 4096, "technology": "block"},
    {"address_bits": 17, "bus_bytes": 2, "size": 1 << 17, "technology": "spram"},
    {"address_bits": 18, "bus_bytes": 4, "size": 1 << 17, "technology": "spram"},
]
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda k: f"{k['technology']}-{k['bus_bytes']}")


async def host_write(ctx, dut, address, byte):
    ctx.set(dut.host.address, address)
    ctx.set(dut.host.write_data, byte)
    ctx.set(dut.host.write, 1)
    await ctx.tick()
    ctx.set(dut.host.write, 0)


async def host_read(ctx, dut, address):
    ctx.set(dut.host.address, address)
    ctx.set(dut.host.read, 1)
    await ctx.tick()
    ctx.set(dut.host.read, 0)
    for _ in range(10):
        if ctx.get(dut.host.read_valid):
            return ctx.get(dut.host.read_data)
        await ctx.tick()
    raise AssertionError("no answer")


def word(data, address, bus):
    return int.from_bytes(bytes(data[address : address + bus]), "little")


@kinds
@pytest.mark.parametrize("stalls", [0, 0.6])
def test_engine_and_host_at_once(kind, stalls):
    """The engine writes one part and reads another, while the host reads and writes a third."""
    seed = 21
    print(f"seed {seed}")
    dut, bus, rng = OnChipMemory(**kind), kind["bus_bytes"], random.Random(seed)
    third = 40 * bus
    mirror = bytearray(rng.randbytes(3 * third))
    filled = False
    bursts = []
    for _ in range(25):
        beats = rng.choice([1, 1, 2, 7, 12])
        bursts.append((rng.randrange(40 - beats + 1) * bus, beats))
    wanted = [word(mirror, at + k * bus, bus) for at, beats in bursts for k in range(beats)]
    writes = []
    for _ in range(60):
        at, strobe = third + rng.randrange(40) * bus, rng.getrandbits(bus)
        writes.append({"address": at, "data": rng.getrandbits(8 * bus), "strobe": strobe})

    async def host(ctx):
        nonlocal filled
        for address, byte in enumerate(mirror):
            await host_write(ctx, dut, address, byte)
        filled = True
        for _ in range(60):
            address = 2 * third + rng.randrange(third)
            if rng.random() < 0.5:
                mirror[address] = rng.randrange(256)
                await host_write(ctx, dut, address, mirror[address])
            else:
                assert await host_read(ctx, dut, address) == mirror[address]

    async def until_filled(ctx):
        while not filled:
            await ctx.tick()

    async def ask(ctx):
        await until_filled(ctx)
        for address, beats in bursts:
            await put(ctx, dut.memory.read_request, {"address": address, "beats": beats})

    async def take(ctx):
        await until_filled(ctx)
        found = await get_many(ctx, dut.memory.read_data, len(wanted), stalls=stalls, seed=seed)
        assert [beat["data"] for beat in found] == wanted
        assert not any(beat["error"] for beat in found)

    async def write(ctx):
        await until_filled(ctx)
        await put_many(ctx, dut.memory.write, writes, stalls=stalls, seed=seed)
        for beat in writes:
            for byte in range(bus):
                if beat["strobe"] >> byte & 1:
                    mirror[beat["address"] + byte] = beat["data"] >> 8 * byte & 0xFF

    async def errors(ctx):
        while True:
            _, _, error = await ctx.tick().sample(dut.memory.write_error)
            assert not error

    simulate(dut, host, ask, take, write, background=[errors])

    async def read_back(ctx):
        # The simulator starts anew with empty memory, so all is written once more, by both.
        for address, byte in enumerate(mirror):
            await host_write(ctx, dut, address, 0 if third <= address < 2 * third else byte)
        for start in range(third, 2 * third, bus):
            full = {"address": start, "data": word(mirror, start, bus), "strobe": (1 << bus) - 1}
            await put(ctx, dut.memory.write, full)
        for address, byte in enumerate(mirror):
            assert await host_read(ctx, dut, address) == byte

    simulate(dut, read_back)


@kinds
def test_pace(kind):
    """The first beat comes after the stated latency, then one a cycle, across bursts too."""
    dut, bus = OnChipMemory(**kind), kind["bus_bytes"]
    asked_at, came_at, cycle = [], [], 0

    async def ask(ctx):
        for start in range(4):
            await put(ctx, dut.memory.read_request, {"address": 20 * start * bus, "beats": 20})

    async def watch(ctx):
        nonlocal cycle
        memory = dut.memory
        ctx.set(memory.read_data.ready, 1)
        while len(came_at) < 80:
            _, _, valid, ready, came = await ctx.tick().sample(
                memory.read_request.valid, memory.read_request.ready, memory.read_data.valid
            )
            if valid and ready:
                asked_at.append(cycle)
            if came:
                came_at.append(cycle)
            cycle += 1

    simulate(dut, ask, watch)
    assert came_at[0] - asked_at[0] == read_latency(kind["technology"])
    assert came_at == list(range(came_at[0], came_at[0] + 80))


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[4]], ids=["block", "spram"])
def test_beyond_the_end(kind):
    dut, bus, size = OnChipMemory(**kind), kind["bus_bytes"], kind["size"]
    failures = 0

    async def bench(ctx):
        memory = dut.memory
        await put(ctx, memory.write, {"address": size - bus, "data": 7, "strobe": 1})
        await put(ctx, memory.write, {"address": size, "data": 9, "strobe": 1})
        await put(ctx, memory.write, {"address": 0, "data": 5, "strobe": 1})
        for address, beats in ((size - bus, 1), (size, 2), (0, 1)):
            await put(ctx, memory.read_request, {"address": address, "beats": beats})

    async def take(ctx):
        memory = dut.memory
        last, beyond, more, first = await get_many(ctx, memory.read_data, 4)
        assert (last["data"] & 0xFF, last["error"]) == (7, 0)
        assert (beyond["error"], more["error"]) == (1, 1)
        assert (first["data"] & 0xFF, first["error"]) == (5, 0)

    async def watch(ctx):
        nonlocal failures
        while True:
            _, _, error = await ctx.tick().sample(dut.memory.write_error)
            failures += error

    simulate(dut, bench, take, background=[watch])
    assert failures == 1


@kinds
def test_reads_wait_for_no_place(kind):
    """Beats that nobody takes are kept, all of them, and none is asked for in vain."""
    dut, bus = OnChipMemory(**kind), kind["bus_bytes"]

    async def bench(ctx):
        for place in range(30):
            full = {"address": place * bus, "data": place + 1, "strobe": (1 << bus) - 1}
            await put(ctx, dut.memory.write, full)
        await put(ctx, dut.memory.read_request, {"address": 0, "beats": 30})
        await ctx.tick().repeat(50)
        # Writes go on meanwhile, over what the RAM itself may have at its output.
        await put(ctx, dut.memory.write, {"address": 64 * bus, "data": 99, "strobe": 1})
        await ctx.tick().repeat(5)
        found = await get_many(ctx, dut.memory.read_data, 30)
        assert [beat["data"] for beat in found] == list(range(1, 31))

    simulate(dut, bench)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"technology": "flash"}, "Technology must be one of block, spram, not 'flash'"),
        ({"size": 1 << 21}, "Size must be"),
        ({"size": 16380}, "Size must be a multiple of the bus width 8, not 16380"),
        ({"size": 8 * 2000}, "Words must be"),
        ({"bus_bytes": 3}, "Bus bytes must be a power of two, not 3"),
    ],
)
def test_parameters_are_checked(change, message):
    with pytest.raises(ValueError, match=message):
        OnChipMemory(**(KINDS[0] | change))
