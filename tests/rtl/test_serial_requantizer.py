# amaranth: UnusedElaboratable=no
"""The serial requantiser against the definitions of its modes, and against its pace."""

import random
from types import SimpleNamespace

import pytest
from amaranth.back import rtlil
from amaranth.sim import Simulator

from haloconv.planner.requantization import ROUNDINGS
from haloconv.rtl.serial_requantizer import SerialRequantizer

from .test_requantizer import WIDE, anything, expected, extremes, settings, ties

MODES = ROUNDINGS[:4]


def run(roundings, batches, *, gap=0):
    """Play (mode, raw, setting, vectors); return the results of each and the cycles they took."""
    dut = SerialRequantizer(roundings)
    results = []

    async def bench(ctx):
        rng = random.Random(1)
        for mode, raw, setting, vectors in batches:
            ctx.set(dut.rounding, ROUNDINGS.index(mode))
            ctx.set(dut.raw, raw)
            for port, value in zip(
                (dut.zero_point, dut.clamp_low, dut.clamp_high), setting, strict=True
            ):
                ctx.set(port, value)
            await ctx.tick()
            seen = []
            for index in range(len(vectors) + 1):
                if index < len(vectors):
                    for port, value in zip(
                        (dut.i_sum, dut.i_multiplier, dut.i_shift), vectors[index], strict=True
                    ):
                        ctx.set(port, value)
                ctx.set(dut.start, int(index < len(vectors)))
                # The cycle of a start is that of the result before.
                assert ctx.get(dut.done) == int(index > 0 and gap == 0)
                if index and not gap:
                    seen.append(ctx.get(dut.o))
                await ctx.tick()
                ctx.set(dut.start, 0)
                for port in (dut.i_sum, dut.i_multiplier, dut.i_shift):
                    ctx.set(port, rng.getrandbits(6))  # taken with ``start``
                for cycle in range(1, dut.latency + gap):
                    if index < len(vectors) and cycle == dut.latency:
                        assert ctx.get(dut.done)
                        seen.append(ctx.get(dut.o))
                    else:
                        assert not ctx.get(dut.done)
                    await ctx.tick()
            results.append(seen)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return results


def check(roundings, batches, **options):
    for (mode, raw, setting, vectors), seen in zip(
        batches, run(roundings, batches, **options), strict=True
    ):
        if raw:
            assert seen == [vector[0] for vector in vectors]
            continue
        # The byte of the result; what is above it has no meaning.
        wanted = [value % 256 for value in expected(mode, vectors, setting)]
        wrong = [
            f"{mode} {setting} {vector}: {got % 256}, not {want}"
            for vector, got, want in zip(vectors, seen, wanted, strict=True)
            if got % 256 != want
        ]
        assert not wrong, f"{len(wrong)} differ, first: " + "; ".join(wrong[:5])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("alone", [True, False])
def test_ties_and_extremes(mode, alone):
    check(
        (mode,) if alone else MODES,
        [(mode, 0, WIDE, ties(mode, 60, 5)), (mode, 0, WIDE, extremes(mode)[alone::15])],
    )


@pytest.mark.parametrize("mode", MODES)
def test_anything_at_all_settings(mode):
    check(
        MODES,
        [
            (mode, 0, setting, anything(mode, 20, 31 + k) + ties(mode, 20, 60 + k))
            for k, setting in enumerate(settings(8, 9))
        ],
    )


def test_every_shift():
    vectors = [
        (total, q, shift)
        for shift in range(-31, 32)
        for total, q in ((-1, 2**30), (1, 2**31 - 1), (-(2**15), 2**30), (-77777, 3 << 29))
    ]
    check(("double",), [("double", 0, WIDE, vectors)])


def test_raw_sums():
    vectors = anything("double", 30, 2)
    check(MODES, [("double", 1, (4, -3, 9), vectors), ("double", 0, WIDE, vectors)])


@pytest.mark.parametrize("gap", [1, 33])
def test_pauses(gap):
    check(("double",), [("double", 0, WIDE, ties("double", 20, 8))], gap=gap)


@pytest.mark.parametrize("roundings", [(), ("fp32",), ("double", "fp32"), ("up",)])
def test_modes_that_cannot_be_built(roundings):
    message = "roundings of a serial requantiser must be of double, double_up, single, away, not "
    with pytest.raises(ValueError, match="^" + message):
        SerialRequantizer(roundings)


@pytest.mark.parametrize("family", [None, "ecp5", "ice40"])
def test_elaborates_for_families(family):
    text = rtlil.convert(
        SerialRequantizer(), platform=SimpleNamespace(haloconv_family=family), emit_src=False
    )
    assert ("CCU2C" in text) == (family == "ecp5")
