# amaranth: UnusedElaboratable=no
"""Biases and scales by channel, read Q at a time."""

import random

import pytest
from amaranth.back import rtlil

from haloconv.planner.config import EngineConfig
from haloconv.rtl.parameter_table import ParameterTable
from haloconv.sim.streams import plain, simulate

# Output lanes, requantisers, groups of output lanes.
SIZES = [(1, 1, 1), (3, 2, 3), (8, 3, 2), (4, 4, 5), (16, 8, 1)]


def engine(out_lanes, requantisers, groups):
    return EngineConfig(
        out_lanes=out_lanes, requant_lanes=requantisers, bias_bytes=4 * out_lanes * groups
    )


def test_elaborates():
    for size in SIZES:
        rtlil.convert(ParameterTable(engine(*size)), emit_src=False)


@pytest.mark.parametrize("size", SIZES)
def test_random_writes_and_reads(size):
    """What is read of a word as it is written may be anything: None here."""
    out_lanes, requantisers, groups = size
    rng = random.Random(str(size))
    dut = ParameterTable(engine(*size))
    # Two halves of a row for each drain step of each group.
    rows = 2 * groups * -(-out_lanes // requantisers)
    model = [
        [{"bias": 0, "multiplier": 0, "shift": 0} for _ in range(requantisers)] for _ in range(rows)
    ]
    pending = []

    compared = 0

    async def bench(ctx):
        nonlocal compared
        for _ in range(400):
            row, lane, read = (
                rng.randrange(rows),
                rng.randrange(requantisers),
                rng.randrange(rows),
            )
            bias, scale = rng.random() < 0.5, rng.random() < 0.5
            value, shift = rng.choice((0x8000_0000, rng.getrandbits(32))), rng.randint(-32, 31)
            ctx.set(
                dut.write,
                {"row": row, "lane": lane, "bias": bias, "scale": scale, "value": value,
                 "shift": shift},
            )  # fmt: skip
            has_bias = rng.random() < 0.7
            ctx.set(dut.has_bias, has_bias)
            ctx.set(dut.read_row, read)
            wanted = [dict(entry) for entry in model[read]]
            if row == read and bias:
                wanted[lane]["bias"] = None
            if row == read and scale:
                wanted[lane] |= {"multiplier": None, "shift": None}
            pending.append([entry | ({} if has_bias else {"bias": 0}) for entry in wanted])
            if bias:
                model[row][lane]["bias"] = value - (value >> 31 << 32)
            if scale:
                model[row][lane] |= {"multiplier": value, "shift": shift}
            await ctx.tick()
            if len(pending) == dut.latency:
                found, wanted = plain(ctx.get(dut.data)), pending.pop(0)
                for entry, entry_wanted in zip(found, wanted, strict=True):
                    known = {name: bits for name, bits in entry_wanted.items() if bits is not None}
                    compared += len(known)
                    assert entry | known == entry

    assert dut.latency == 1
    simulate(dut, bench, check_loops=False)
    assert compared > 400 * requantisers
