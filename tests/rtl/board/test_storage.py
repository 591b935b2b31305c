# amaranth: UnusedElaboratable=no
"""On-chip RAM against a list of bytes, one random access a cycle."""

import random

import pytest
from amaranth.back import rtlil

from haloconv.rtl.board.storage import BlockStorage, SpramStorage
from haloconv.sim.streams import simulate


def check(dut, word_bytes, accesses, seed):
    """Do random accesses and compare each read with a mirror, ``latency`` cycles later."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    mirror: dict[int, int] = {}
    # Few addresses, spread over the banks, so that reads find what was written.
    places = [rng.randrange(dut.words) for _ in range(12)] + [0, dut.words - 1]
    expected: list[int | None] = []
    compared = 0

    async def bench(ctx):
        nonlocal compared
        port = dut.port
        for place in places:
            expected.append(None)
            ctx.set(port.enable, 1)
            ctx.set(port.write, 1)
            ctx.set(port.strobe, (1 << word_bytes) - 1)
            ctx.set(port.address, place)
            mirror[place] = rng.getrandbits(8 * word_bytes)
            ctx.set(port.data, mirror[place])
            await ctx.tick()
        for cycle in range(accesses + dut.latency):
            enable, write = rng.random() < 0.8, rng.random() < 0.4
            place, data = rng.choice(places), rng.getrandbits(8 * word_bytes)
            strobe = rng.getrandbits(word_bytes)
            for name, value in (
                ("enable", int(enable)),
                ("write", int(write)),
                ("address", place),
                ("data", data),
                ("strobe", strobe),
            ):
                ctx.set(getattr(port, name), value)
            expected.append(mirror[place] if enable and not write else None)
            if enable and write:
                for byte in range(word_bytes):
                    if strobe >> byte & 1:
                        mask = 0xFF << 8 * byte
                        mirror[place] = mirror[place] & ~mask | data & mask
            await ctx.tick()
            # After the edge of access n the data of access n + 1 - latency is there.
            wanted = expected[-dut.latency]
            if wanted is not None:
                assert ctx.get(port.read_data) == wanted, f"cycle {cycle}"
                compared += 1

    simulate(dut, bench)
    assert compared > accesses // 4


@pytest.mark.parametrize("banks, word_bytes", [(1, 1), (3, 4), (6, 2)])
def test_block_ram(banks, word_bytes):
    check(BlockStorage(2048 * banks, word_bytes), word_bytes, 500, seed=banks)


@pytest.mark.parametrize("banks, word_bytes", [(1, 2), (4, 2), (2, 4), (1, 8)])
def test_spram(banks, word_bytes):
    check(SpramStorage(16384 * banks, word_bytes), word_bytes, 400, seed=banks)


class UltraPlus:
    """All that the storage asks of a platform."""

    device = "iCE40UP5K"


@pytest.mark.parametrize("banks, word_bytes", [(4, 2), (2, 4), (1, 8), (1, 2)])
def test_spram_is_instances_on_its_device(banks, word_bytes):
    text = rtlil.convert(SpramStorage(16384 * banks, word_bytes), platform=UltraPlus())
    assert text.count("cell \\SB_SPRAM256KA") == banks * word_bytes // 2
    assert "memory" not in text.replace("SB_SPRAM", "")


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: BlockStorage(2000, 8), "Words must be"),
        (lambda: BlockStorage(5000, 8), "Words must be a multiple of 2048, not 5000"),
        (lambda: BlockStorage(2048, 0), "Bytes of a word must be"),
        (lambda: SpramStorage(20000, 2), "Words must be a multiple of 16384, not 20000"),
        (lambda: SpramStorage(16384, 1), "Bytes of a word must be 2, 4 or 8, not 1"),
        (lambda: SpramStorage(32768, 8), "Memory must be at most 131072 bytes, not 262144"),
    ],
)
def test_parameters_are_checked(make, message):
    with pytest.raises(ValueError, match=message):
        make()
