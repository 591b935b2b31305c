# amaranth: UnusedElaboratable=no
"""The requantiser against the definition in unbounded integers and numpy float32."""

import json
import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from amaranth.back import rtlil
from amaranth.sim import Simulator

from haloconv.planner.requantization import ROUNDINGS
from haloconv.rtl.requantizer import Requantizer

INTEGER = ROUNDINGS[:4]
CASES = Path(__file__).parents[1] / "data" / "cases"
LOWEST, HIGHEST = -(2**31), 2**31 - 1
Q_LOWEST, Q_HIGHEST = 2**30, 2**31 - 1
WIDE = (0, -128, 127)
"""Zero point and clamp that show the most."""


def scaled(mode, total, q, shift):
    """The definition: value before zero point and clamp, in unbounded integers."""
    left, right = max(shift, 0), max(-shift, 0)
    if mode in ("double", "double_up"):
        b = ((total << left) * q + 2**30) >> 31
        if right == 0:
            return b
        if mode == "double_up":
            return (b + 2 ** (right - 1)) >> right
        return (b >> right) + (b % 2**right > 2 ** (right - 1) - 1 + (b < 0))
    magnitude = abs(total) if mode == "away" else total
    y = magnitude * q
    if shift < 31:
        y = (y + 2 ** (30 - shift)) >> (31 - shift)
    return -y if mode == "away" and total < 0 else y


def scaled_float(totals, bits):
    """The definition of "fp32" for arrays of sums and of the bit patterns of scales."""
    scales = np.asarray(bits, np.uint32).view(np.float32)
    with np.errstate(over="ignore", under="ignore"):
        product = np.asarray(totals, np.int64).astype(np.int32).astype(np.float32) * scales
    return [int(y) for y in np.clip(np.rint(product), -1000, 1000)]


def expected(mode, vectors, setting):
    """Results of ``vectors`` (sum, multiplier, shift)."""
    zero_point, low, high = setting
    if mode == "fp32":
        values = scaled_float([v[0] for v in vectors], [v[1] for v in vectors])
    else:
        values = [scaled(mode, *v) for v in vectors]
    return [min(max(y + zero_point, low), high) for y in values]


class Bench:
    """A built requantiser that takes batches of one mode and setting, one vector a cycle."""

    def __init__(self, roundings):
        self.dut = Requantizer(roundings)
        self.batches = []

    def add(self, vectors, expectation, *, mode="double", raw=0, setting=WIDE):
        self.batches.append((vectors, expectation, mode, raw, setting))

    def check(self):
        async def bench(ctx):
            dut = self.dut
            for vectors, expectation, mode, raw, setting in self.batches:
                ctx.set(dut.rounding, ROUNDINGS.index(mode))
                ctx.set(dut.raw, raw)
                for port, value in zip(
                    (dut.zero_point, dut.clamp_low, dut.clamp_high), setting, strict=True
                ):
                    ctx.set(port, value)
                for cycle in range(len(vectors) + dut.latency):
                    if cycle >= dut.latency:
                        seen = cycle - dut.latency
                        got, want = ctx.get(dut.o), expectation[seen]
                        if dut.roundings and not raw:
                            want %= 256  # the byte of an int8 result, and nothing above
                        if got != want:
                            wrong.append(
                                f"{mode} raw={raw} {setting} {vectors[seen]}: {got}, not {want}"
                            )
                    if cycle < len(vectors):
                        total, multiplier, shift = vectors[cycle]
                        ctx.set(dut.i_sum, total)
                        ctx.set(dut.i_multiplier, multiplier)
                        ctx.set(dut.i_shift, shift)
                    await ctx.tick()

        wrong = []
        assert self.batches
        simulator = Simulator(self.dut)
        simulator.add_clock(1e-6)
        simulator.add_testbench(bench)
        simulator.run()
        assert not wrong, f"{len(wrong)} results differ, first: " + "; ".join(wrong[:5])


@cache
def ties(mode, count, seed):
    """Vectors whose results lie on ties, next to ties and next to the ends of int8."""
    random = np.random.default_rng(seed)
    vectors = []
    while len(vectors) < count:
        y = int(random.choice([random.integers(-4, 4), random.integers(-300, 300)]))
        nudge = int(random.integers(-2, 3))
        if mode == "fp32":
            total = int(random.integers(1, 2 ** int(random.integers(1, 32)))) * (-1 if y < 0 else 1)
            scale = np.float32(abs((y + 0.5) / total))
            bits = int(scale.view(np.uint32)) + int(random.choice([0, nudge]))
            total += int(random.choice([0, 0, nudge]))
            vectors.append((total, bits, 0))
            continue
        shift = int(random.integers(-31, 12))
        q = int(
            random.choice([Q_LOWEST, Q_HIGHEST, 3 << 29, 5 << 28, random.integers(Q_LOWEST, 2**31)])
        )
        # Half of the way to y + 1, in units of the first rounding, then a step beside it.
        b = (2 * y + 1) * 2**40 >> (41 + shift) if shift > -1 else (2 * y + 1) << (-1 - shift)
        total = (b + int(random.integers(-1, 2))) * 2**31 // q + nudge
        if LOWEST <= total <= HIGHEST:
            vectors.append((total, q, shift))
    return vectors


@cache
def anything(mode, count, seed):
    """Vectors over the whole domain, sizes of sums and scales spread evenly in their exponents."""
    random = np.random.default_rng(seed)
    vectors = []
    for _ in range(count):
        bits = int(random.integers(0, 32))
        total = int(random.integers(-(2**bits), 2**bits))
        if mode == "fp32":
            exponent = int(random.choice([random.integers(0, 255), random.integers(90, 140)]))
            pattern = exponent << 23 | int(random.integers(0, 2**23))
            vectors.append((total, max(pattern, 1), int(random.integers(-31, 32))))
        else:
            q = int(random.integers(Q_LOWEST, 2**31))
            vectors.append((total, q, int(random.integers(-31, 32))))
    return vectors


def extremes(mode):
    totals = [LOWEST, LOWEST + 1, HIGHEST, HIGHEST - 1, 0]
    for n in (0, 1, 7, 8, 9, 10, 14, 15, 16, 23, 24, 25, 30):
        totals += [sign * (2**n + step) for step in (-1, 0, 1) for sign in (1, -1)]
    if mode == "fp32":
        scales = [2.0**-149, 2.0**-126, 2.0**-33, 2.0**-32, 2.0**-31, 2.0**-24, 2.0**-8, 0.5, 1.0]
        scales += [1.5, 2.0, 3.3, 2.0**31, 2.0**127, float(np.finfo(np.float32).max)]
        scales = np.array(scales + [np.nextafter(np.float32(s), np.float32(0)) for s in scales[2:]])
        patterns = [int(bits) for bits in scales.astype(np.float32).view(np.uint32)]
        return [(total, bits, 0) for total in totals for bits in patterns]
    scales = [(q, e) for q in (0, Q_LOWEST, Q_HIGHEST) for e in (-31, -16, -1, 0, 1, 15, 16, 31)]
    return [(total, q, e) for total in totals for q, e in scales]


def settings(count, seed):
    random = np.random.default_rng(seed)
    fixed = [WIDE, (127, -128, 127), (-128, -128, 127), (5, 5, 5), (-128, -128, -128)]
    for _ in range(count):
        zero_point = int(random.integers(-128, 128))
        low, high = sorted(int(v) for v in random.integers(-128, 128, 2))
        fixed.append((zero_point, low, high))
    return fixed[:count]


@pytest.mark.parametrize(
    "roundings, error, message",
    [
        ("double", TypeError, "roundings must be a tuple of names, not 'double'"),
        (3, TypeError, "roundings must be a tuple of names, not 3"),
        ((1,), TypeError, "roundings must hold names, not 1"),
        (
            ("up",),
            ValueError,
            "roundings must be of double, double_up, single, away, fp32, not 'up'",
        ),
        (
            ("away", "away"),
            ValueError,
            "roundings must name each mode once, not ('away', 'away')",
        ),
    ],
)
def test_constructor_errors(roundings, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        Requantizer(roundings)


def test_roundings_in_order_of_codes():
    assert Requantizer(["fp32", "double"]).roundings == ("double", "fp32")


@pytest.mark.parametrize("roundings", [(), ("double",), ("fp32",), ROUNDINGS])
def test_latency(roundings):
    """A sum shows at `o` after exactly `latency` cycles, requantised as well as raw."""
    dut = Requantizer(roundings)
    seen = {}

    async def bench(ctx):
        ctx.set(dut.clamp_low, -128)
        ctx.set(dut.clamp_high, 127)
        ctx.set(dut.i_multiplier, 0x3F800000 if roundings == ("fp32",) else Q_LOWEST)
        for raw in (0, 1) if roundings else (1,):
            ctx.set(dut.raw, raw)
            ctx.set(dut.i_shift, 1)
            await ctx.tick().repeat(20)
            assert ctx.get(dut.o) == 0
            ctx.set(dut.i_sum, 77)
            await ctx.tick()
            ctx.set(dut.i_sum, 0)
            outputs = []
            for _ in range(20):
                outputs.append(ctx.get(dut.o))
                await ctx.tick()
            seen[raw] = outputs

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert seen
    for outputs in seen.values():
        assert outputs == [0] * (dut.latency - 1) + [77] + [0] * (20 - dut.latency)


def test_worked_ties():
    """-3.5, -1.5, -0.5, 0.5, 2.5 and the sums that tell "double" from exact rounding."""
    halves = [-7, -3, -1, 1, 5]
    want = {
        "double": [-4, -2, -1, 1, 3],
        "double_up": [-3, -1, 0, 1, 3],
        "single": [-3, -1, 0, 1, 3],
        "away": [-4, -2, -1, 1, 3],
        "fp32": [-4, -2, 0, 0, 2],
    }
    bench = Bench(ROUNDINGS)
    for mode, results in want.items():
        if mode == "fp32":
            bench.add([(n, 0x3F000000, 0) for n in halves], results, mode=mode)
            continue
        # One half: 2**30 * 2**(0 - 31). The tie is seen by the second rounding for shift < 0.
        bench.add([(n, Q_LOWEST, 0) for n in halves], [-3, -1, 0, 1, 3] if mode != "away"
                  else results, mode=mode)  # fmt: skip
        for shift in (-1, -7, -20):
            vectors = [(n << -shift, Q_LOWEST, shift) for n in halves]
            bench.add(vectors, results, mode=mode)
    bench.add([(7984, 1583594044, -9)], [12], mode="double")
    bench.add([(7984, 1583594044, -9)], [11], mode="single")
    bench.check()


@pytest.mark.parametrize("mode", ROUNDINGS)
def test_extremes(mode):
    bench = Bench((mode,))
    vectors = extremes(mode)
    for setting in (WIDE, (-77, -100, 99)):
        bench.add(vectors, expected(mode, vectors, setting), mode=mode, setting=setting)
    bench.check()


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "roundings, count",
    [*(((mode,), 1200) for mode in ROUNDINGS), (INTEGER, 2400), (ROUNDINGS, 3600)],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else None,
)
def test_random(roundings, count, seed):
    """Ties and the whole domain in every built mode, under random zero points and clamps."""
    bench = Bench(roundings)
    share = count // len(roundings)
    for mode in roundings:
        for kind, vectors in (
            ("ties", ties(mode, share, seed)),
            ("anything", anything(mode, share // 4, seed)),
        ):
            several = settings(8, [seed, len(kind)])
            size = -(-len(vectors) // len(several))
            for k, setting in enumerate(several):
                part = vectors[k * size : (k + 1) * size]
                # Every other part keeps the ties in sight.
                setting = setting if k % 2 else WIDE
                bench.add(part, expected(mode, part, setting), mode=mode, setting=setting)
    bench.check()


@pytest.mark.parametrize("mode", INTEGER)
def test_multipliers_below_the_leading_one(mode):
    """With right shifts any multiplier is exact; the reference's MEAN has such."""
    random = np.random.default_rng(5)
    vectors = []
    while len(vectors) < 1200:
        shift = -int(random.integers(1, 32))
        q = int(random.choice([1, 2**29, 2 ** random.integers(0, 31), random.integers(1, 2**31)]))
        total = int(float(random.uniform(-140, 140)) * 2 ** (31 - shift) / q)
        if LOWEST <= total <= HIGHEST:
            vectors.append((total, q, shift))
    bench = Bench((mode,))
    bench.add(vectors, expected(mode, vectors, WIDE), mode=mode)
    bench.check()


def test_random_vectors_tell_modes_apart():
    """The tie vectors are worth their name: every pair of modes differs on many of them."""
    vectors = ties("double", 3200, 1)
    values = {mode: [scaled(mode, *v) for v in vectors] for mode in INTEGER}
    for one in INTEGER:
        for other in INTEGER[: INTEGER.index(one)]:
            differing = sum(a != b for a, b in zip(values[one], values[other], strict=True))
            assert differing > 20, (one, other)
    floats = ties("fp32", 3200, 1)
    totals, scales = np.array([v[:2] for v in floats]).T
    exact = np.rint(totals * scales.astype(np.uint32).view(np.float32).astype(np.float64))
    assert (exact.clip(-1000, 1000) != scaled_float(totals, scales)).sum() > 100


@pytest.mark.parametrize("roundings", [(), ("single",), INTEGER, ROUNDINGS], ids=len)
def test_raw(roundings):
    """Raw sums pass whatever the multiplier, the shift and the clamp are."""
    bench = Bench(roundings)
    vectors = extremes("double")[::3] + anything("double", 200, 7)
    modes = roundings or ("double",)
    for mode in modes:
        setting = (-3, -7, 9)
        bench.add(vectors, [v[0] for v in vectors], mode=mode, raw=1, setting=setting)
    bench.check()


@pytest.mark.parametrize("mode", ROUNDINGS)
def test_given_cases(mode):
    """The sums of the named cases become their int8 outputs."""
    bench = Bench(ROUNDINGS)
    for entry in json.loads((CASES / "index.json").read_text()):
        with np.load(CASES / f"{entry['name']}.npz") as case:
            totals = case["acc"].reshape(-1, case["acc"].shape[-1])
            results = case[f"y_{mode}"].reshape(totals.shape)
            rows = np.random.default_rng(3).permutation(len(totals))[: 64 // totals.shape[1] + 1]
            patterns = case["scale"].view(np.uint32)
            multipliers = patterns if mode == "fp32" else case["multiplier"]
            vectors, want = [], []
            for row in rows:
                for channel in range(totals.shape[1]):
                    vectors.append(
                        (
                            int(totals[row, channel]),
                            int(multipliers[channel]),
                            int(case["shift"][channel]),
                        )
                    )
                    want.append(int(results[row, channel]))
        bench.add(vectors, want, mode=mode, setting=(entry["zp_out"], *entry["clamp"]))
    bench.check()


SYNTHESIS = """
import sys
from pyosys import libyosys as ys
design = ys.Design()
for command in ("read_rtlil " + sys.argv[1], "synth_lattice -family ecp5 -top top"):
    ys.run_pass("tee -q -o " + sys.argv[2] + " " + command, design)
ys.run_pass("tee -q -o " + sys.argv[2] + " stat -json", design)
"""


@pytest.mark.skipif(find_spec("pyosys") is None, reason="pyosys is not installed")
@pytest.mark.parametrize(
    "roundings, luts, carries",
    [(("double",), 165, 66), (INTEGER, 205, 66), (ROUNDINGS, 360, 82)],
    ids=["double", "integer", "all"],
)
def test_ecp5_resources(tmp_path, roundings, luts, carries):
    """Multipliers and logic of an ECP5; Yosys in a process of its own, as counts drift in one."""
    design, report = tmp_path / "top.il", tmp_path / "report"
    design.write_text(rtlil.convert(Requantizer(roundings), emit_src=False))
    subprocess.run(
        [sys.executable, "-c", SYNTHESIS, design, report],
        check=True,
        timeout=120,
        stdout=subprocess.DEVNULL,
    )
    text = report.read_text()
    cells = json.loads(text[text.index("{") :])["design"]["num_cells_by_type"]
    assert cells["MULT18X18D"] == 4
    assert cells["LUT4"] <= luts
    assert cells["CCU2C"] <= carries
