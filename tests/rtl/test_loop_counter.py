"""Loop counters: trips by definition, and the ECP5's carry cells against the plain form."""

import random
import subprocess
import sys
from types import SimpleNamespace

import pytest
from amaranth import Module, Signal
from amaranth.back import rtlil
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from haloconv.rtl import loop_counter as module
from haloconv.rtl.loop_counter import counted, loop_counter
from haloconv.sim.streams import simulate

ECP5 = SimpleNamespace(haloconv_family="ecp5")


class Loop(wiring.Component):
    def __init__(self, width, *, done=False):
        self.width, self.done = width, done
        super().__init__(
            {"enable": In(1), "load": In(1), "trips": In(width), "last": Out(1)},
        )

    def elaborate(self, platform):
        m = Module()
        last = loop_counter(
            m, platform, "loop", self.width, enable=self.enable, load=self.load, trips=self.trips,
            done=self.done,
        )  # fmt: skip
        m.d.comb += self.last.eq(last)
        return m


@pytest.mark.parametrize("width", [1, 2, 3, 6])
def test_the_last_of_every_number_of_trips(width):
    dut = Loop(width)
    rng = random.Random(width)

    async def bench(ctx):
        for trips in range(1, 1 << width):
            ctx.set(dut.trips, trips)
            ctx.set(dut.load, 1)
            ctx.set(dut.enable, 1)
            await ctx.tick()
            ctx.set(dut.load, 0)
            for trip in range(1, trips + 1):
                # Nothing counts while nothing is enabled, whatever is asked to be loaded.
                ctx.set(dut.enable, 0)
                ctx.set(dut.trips, rng.getrandbits(width))
                for _ in range(rng.randrange(3)):
                    ctx.set(dut.load, rng.getrandbits(1))
                    await ctx.tick()
                ctx.set(dut.load, 0)
                assert ctx.get(dut.last) == (trip == trips)
                ctx.set(dut.enable, 1)
                if trip < trips:
                    await ctx.tick()

    simulate(dut, bench)


@pytest.mark.parametrize("width", [1, 4])
def test_done_after_a_reset(width):
    dut, reset = Loop(width, done=True), Signal()
    most = (1 << width) - 1

    async def bench(ctx):
        assert ctx.get(dut.last) == 1
        ctx.set(dut.trips, most)
        ctx.set(dut.load, 1)
        ctx.set(dut.enable, 1)
        await ctx.tick()
        assert ctx.get(dut.last) == (most == 1)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        assert ctx.get(dut.last) == 1

    simulate(dut, bench, reset=reset)


class Next(wiring.Component):
    """What a counter does next, without its register."""

    def __init__(self, width):
        self.width = width
        super().__init__(
            {"count": In(width), "load": In(1), "value": In(width), "next": Out(width)}
        )

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.next.eq(counted(m, platform, "x", self.count, self.load, self.value))
        return m


def proves_equal(folder, width):
    """Let Yosys' solver look for inputs at which CCU2C, by Yosys' model, and the plain form differ.

    It reports by the end of its process whether there are none.
    """
    for name, platform in (("plain", None), ("ecp5", ECP5)):
        text = rtlil.convert(Next(width), name=name, platform=platform, emit_src=False)
        assert ("CCU2C" in text) == (platform is ECP5)
        (folder / f"{name}.il").write_text(text)
    script = "; ".join(
        (
            f"read_rtlil {folder}/ecp5.il",
            "read_verilog -nooverwrite +/lattice/cells_sim_ecp5.v",
            "hierarchy -check -top ecp5",
            "proc",
            "flatten",
            f"read_rtlil {folder}/plain.il",
            "miter -equiv -flatten plain ecp5 miter",
            "sat -verify -prove trigger 0 miter",
        )
    )
    code = f"from pyosys import libyosys as y; d = y.Design(); y.run_pass({script!r}, d)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if "SAT proof finished" not in run.stdout:
        raise AssertionError(run.stdout[-2000:] + run.stderr[-2000:])
    return run.returncode == 0


@pytest.mark.parametrize("width", [1, 2, 3, 10])
def test_carry_cells_are_equal_for_all_inputs(tmp_path, width):
    assert proves_equal(tmp_path, width)


@pytest.mark.parametrize("table", ["FIRST_BIT", "OTHER_BITS"])
def test_a_wrong_table_is_found(tmp_path, monkeypatch, table):
    monkeypatch.setattr(module, table, getattr(module, table) ^ 0x0100)
    assert not proves_equal(tmp_path, 4)
