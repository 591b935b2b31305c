# amaranth: UnusedElaboratable=no
"""The drain against a list of rows worked out from its tokens, cycle by cycle."""

import random

import pytest
from amaranth.hdl import Signal

from haloconv.planner.config import EngineConfig
from haloconv.planner.requantization import ROUNDINGS
from haloconv.planner.tile import MODES
from haloconv.rtl.drain import Drain
from haloconv.rtl.mac_lanes import sum_shape
from haloconv.sim.streams import plain, simulate

LANES = ((1, 1, None), (3, 5, 2), (8, 2, 3), (4, 4, 1), (4, 4, None), (1, 8, None), (2, 7, None))
TILE_GAP = 3
"""Fewest cycles from the last group of a tile to the first of the next."""


def make_config(lanes, split, q, *, psum_bytes=4096, roundings=(), serial=False):
    return EngineConfig(
        out_lanes=lanes, split_lanes=split, requant_lanes=q, psum_bytes=psum_bytes,
        bias_bytes=12 * lanes, roundings=roundings, serial_requantizers=serial,
    )  # fmt: skip


def int32(value):
    return (value + 2**31) % 2**32 - 2**31


def requantize_double(total, multiplier, shift, zero_point, low, high):
    """Mode "double" in unbounded integers: round to 2**-31, then half away from zero."""
    left, right = max(shift, 0), max(-shift, 0)
    b = ((total << left) * multiplier + 2**30) >> 31
    y = b
    if right:
        y = (b >> right) + (b % 2**right > 2 ** (right - 1) - 1 + (b < 0))
    return min(max(y + zero_point, low), high)


class Lanes:
    """Lanes beside serial requantisers: they keep the sums of a group until told to let go."""

    def __init__(self, config, rng):
        self._config, self._rng = config, rng
        self._sums, self._clear = None, 0

    def sums(self):
        """Noise, while sums of the next group grow."""
        if self._sums is not None:
            return self._sums
        bits = sum_shape(self._config).width
        lanes, split = self._config.out_lanes, self._config.split_lanes
        return [
            [self._rng.getrandbits(bits) - (1 << (bits - 1)) for _ in range(lanes)]
            for _ in range(split)
        ]

    def tick(self, loaded, shift, clear):
        """Sums loaded show in the next cycle; a clear works a cycle after it was asked for."""
        q = self._config.results_per_cycle
        if self._sums is not None:
            for r, column in enumerate(self._sums):
                if self._clear >> r & 1:
                    column[:] = [0] * len(column)
                elif shift >> r & 1:
                    column[:] = [*column[q:], *[0] * min(q, len(column))]
            if self._clear == (1 << self._config.split_lanes) - 1:
                self._sums = None
        self._clear = clear
        if loaded is not None:
            assert self._sums is None, "the group before is not over"
            self._sums = [list(column) for column in loaded]


class Play:
    """Random tiles as a list of events by cycle, and the rows that have to come out."""

    def __init__(
        self, dut, config, seed, *, raw, bias, channel=False, spread=0, most_c=3, tiles=6,
        rng_limit=2**31,
    ):  # fmt: skip
        self.config, self.raw, self.bias, self.channel = config, raw, bias, channel
        # Cycles of a row: a serial requantiser takes one sum in 32.
        self.pace = 32 if config.serial_requantizers else 1
        rng = self.rng = random.Random(seed)
        width = sum_shape(config).width
        rng_limit = min(rng_limit, 2 ** (width - 1))
        self.zero_point = rng.randint(-128, 127)
        self.clamp = sorted(rng.randint(-128, 127) for _ in range(2))
        self.loads: dict[int, tuple[dict, list]] = {}
        self.writes: dict[int, dict] = {}
        self.rows: list[tuple[int, dict]] = []
        self.releases: list[int] = []
        lanes, split, q = config.out_lanes, config.split_lanes, config.results_per_cycle
        latency = dut.latency
        cycle = 0
        free = [0, 0]  # first cycle in which a half of the table may be written
        write_cycle = 0
        parameters: list[dict] = []
        half = 1
        for tile in range(tiles):
            groups = rng.randint(1, config.channel_groups)
            if tile == 0 or rng.random() < 0.6:
                half ^= 1
                new = True
                write_cycle = max(write_cycle, free[half])
                parameters = self._write_parameters(groups, half, write_cycle)
                write_cycle += 2 * len(parameters)
                cycle = max(cycle, write_cycle)
            else:
                new = False
                groups = min(groups, -(-len(parameters) // lanes))
            tail = min(rng.randint(1, lanes), len(parameters) - (groups - 1) * lanes)
            row_mode = not channel and rng.random() < 0.9
            shape = self._shape(groups, tail, row_mode)
            count_c = rng.randint(1, most_c) if config.psum_words else 1
            words = sum(columns * -(-channels // q) for columns, channels, _, _ in shape)
            if words > config.psum_words:
                count_c = 1
            stored: list[list[list[int]]] = []
            for c in range(count_c):
                begins = True
                for number, (columns, channels, group, level) in enumerate(shape):
                    sums = [
                        [rng.randrange(-rng_limit, rng_limit) for _ in range(lanes)]
                        for _ in range(split)
                    ]
                    token = {
                        "columns": columns,
                        "channels": channels,
                        "parameter_row": config.group_steps
                        * (half * config.channel_groups + group),
                        "first_c": int(c == 0),
                        "last_c": int(c == count_c - 1),
                        "tile_first": int(begins),
                        "new_parameters": int(begins and new and c == 0),
                        "level": level,
                    }
                    self.loads[cycle] = (token, sums)
                    if token["new_parameters"]:
                        if self.releases or tile:
                            self.releases.append(cycle + dut.release_latency)
                        free[half ^ 1] = cycle + dut.release_latency + 1
                    begins = False
                    totals = []
                    for r in range(columns):
                        line = []
                        for k in range(channels):
                            start = stored[number][r][k] if c else 0
                            if c == 0 and bias:
                                start = parameters[group * lanes + k]["bias"]
                            column = sum(s[k] for s in sums) if channel else sums[r][k]
                            line.append(int32(column + start))
                        totals.append(line)
                    if c:
                        stored[number] = totals
                    else:
                        stored.append(totals)
                    steps = -(-channels // q)
                    if c == count_c - 1:
                        self._expect(cycle + latency, totals, parameters[group * lanes :], level)
                    last_length = columns * steps * self.pace
                    cycle += last_length + (rng.randint(0, spread) if spread else 0)
                cycle += max(0, TILE_GAP - last_length)
        self.end = cycle + latency + 2 * split * config.group_steps * self.pace + 2

    def _write_parameters(self, groups, half, cycle):
        """Biases, then scales, one a cycle."""
        config, rng = self.config, self.rng
        q = config.results_per_cycle
        entries = [
            {
                "bias": rng.randint(-(2**31), 2**31 - 1),
                "multiplier": rng.choice((0, *(rng.randint(2**30, 2**31 - 1) for _ in range(7)))),
                "shift": rng.choice((-31, -12, -4, -1, 0, 1, rng.randint(-31, 31))),
            }
            for _ in range(groups * config.out_lanes)
        ]
        for kind in ("bias", "scale"):
            for channel, entry in enumerate(entries):
                group, k = divmod(channel, config.out_lanes)
                row = config.group_steps * (half * config.channel_groups + group) + k // q
                self.writes[cycle] = {
                    "row": row,
                    "lane": k % q,
                    "bias": int(kind == "bias"),
                    "scale": int(kind == "scale"),
                    "value": (entry["bias"] if kind == "bias" else entry["multiplier"]) % 2**32,
                    "shift": entry["shift"],
                }
                cycle += 1
        return entries

    def _shape(self, groups, tail, row_mode):
        """(columns, channels, channel group, level) of each group of sums of a tile."""
        lanes, rng = self.config.out_lanes, self.rng
        shape = []
        column_steps, rows = rng.randint(1, 2), rng.randint(1, 2)
        column_tail = rng.randint(1, self.config.split_lanes)
        for row in range(rows):
            for step in range(column_steps):
                for group in range(groups):
                    level = 2
                    if group == groups - 1:
                        level = 3 if step < column_steps - 1 else 4 if row < rows - 1 else 5
                    columns = self.config.split_lanes if step < column_steps - 1 else column_tail
                    channels = lanes if group < groups - 1 else tail
                    shape.append((columns if row_mode else 1, channels, group, level))
        return shape

    def _expect(self, cycle, totals, parameters, level):
        q = self.config.results_per_cycle
        for r, line in enumerate(totals):
            for first in range(0, len(line), q):
                part = line[first : first + q]
                if not self.raw:
                    part = [
                        requantize_double(
                            total, entry["multiplier"], entry["shift"], self.zero_point, *self.clamp
                        )
                        for total, entry in zip(part, parameters[first:], strict=False)
                    ]
                row_level = 0
                if first + q >= len(line):
                    row_level = level if r == len(totals) - 1 else 1
                size = 4 if self.raw else 1
                content = [b for v in part for b in (v % 2 ** (8 * size)).to_bytes(size, "little")]
                row = {"count": len(part), "level": row_level, "bytes": content}
                row["last_piece"] = (len(content) - 1) // self.config.bus_bytes
                self.rows.append((cycle, row))
                cycle += self.pace

    def set_descriptor(self, ctx, dut):
        mode = "channel" if self.channel else self.rng.choice(("row", "depthwise"))
        ctx.set(dut.descriptor.mode, MODES.index(mode))
        ctx.set(dut.descriptor.raw, int(self.raw))
        ctx.set(dut.descriptor.has_bias, int(self.bias))
        ctx.set(dut.descriptor.rounding, ROUNDINGS.index("double"))
        ctx.set(dut.descriptor.out_zero_point, self.zero_point)
        ctx.set(dut.descriptor.clamp_low, self.clamp[0])
        ctx.set(dut.descriptor.clamp_high, self.clamp[1])

    async def run(self, ctx, dut, *, until=None):
        """Play the events; return the rows as (cycle, row) and the cycles of releases."""
        self.set_descriptor(ctx, dut)
        rng = random.Random(1)
        rows, releases = [], []
        size = 4 if self.raw else 1
        lanes = Lanes(self.config, rng) if self.pace > 1 else None
        for cycle in range(self.end if until is None else until):
            token, sums = self.loads.get(cycle, (None, None))
            ctx.set(dut.load, int(token is not None))
            if token is not None:
                ctx.set(dut.token, token)
                ctx.set(dut.sums, sums)
            else:  # nothing but `load` says that these are valid
                ctx.set(dut.token.as_value(), rng.getrandbits(len(dut.token.as_value())))
                ctx.set(dut.sums.as_value(), rng.getrandbits(len(dut.sums.as_value())))
            if lanes is not None:
                ctx.set(dut.sums, lanes.sums())
                lanes.tick(sums, ctx.get(dut.shift), ctx.get(dut.clear))
            write = self.writes.get(cycle, {"bias": 0, "scale": 0})
            ctx.set(dut.parameter_write, write)
            _, _, valid, row, release = await ctx.tick().sample(
                dut.valid, dut.row, dut.release_parameters
            )
            if valid:
                row = plain(row)
                row["bytes"] = row["bytes"][: row["count"] * size]
                rows.append((cycle, row))
            if release:
                releases.append(cycle)
        ctx.set(dut.load, 0)
        return rows, releases


def check(config, seed, **options):
    dut = Drain(config)
    play = Play(dut, config, seed, **options)

    async def bench(ctx):
        rows, releases = await play.run(ctx, dut)
        assert rows == play.rows
        assert releases == play.releases

    simulate(dut, bench)
    assert play.rows


@pytest.mark.parametrize("spread", [0, 9])
@pytest.mark.parametrize("channel", [False, True])
@pytest.mark.parametrize("lanes", LANES)
def test_raw_sums(lanes, channel, spread):
    seed = sum(lanes[:2]) + spread
    check(make_config(*lanes), seed, channel=channel, raw=True, bias=spread == 0, spread=spread)


@pytest.mark.parametrize("channel", [False, True])
@pytest.mark.parametrize("lanes", LANES)
def test_int8_results(lanes, channel):
    config = make_config(*lanes, roundings=("double",))
    seed = 7 * lanes[0] + lanes[1]
    check(config, seed, channel=channel, raw=False, bias=True, rng_limit=2**18)


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("lanes", [(1, 1, None), (3, 5, 2), (4, 2, 1)])
def test_serial_requantisers(lanes, raw):
    config = make_config(*lanes, roundings=("double",), serial=True)
    options = {"raw": raw, "bias": True, "rng_limit": 2**18, "tiles": 3}
    check(config, 5, channel=raw, **options)
    check(config, 6, channel=not raw, spread=40, **options)


def test_raw_sums_of_an_engine_with_rounding():
    check(make_config(4, 4, 3, roundings=("double",)), 3, raw=True, bias=True)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("raw", [True, False])
def test_without_a_bank(raw, bias):
    config = make_config(3, 5, 2, psum_bytes=0, roundings=() if raw else ("double",))
    assert config.psum_words == 0
    check(config, 11, raw=raw, bias=bias)


def test_stored_sums_return_after_the_shortest_tile():
    # One row a tile: what a tile stores is read TILE_GAP cycles later, the earliest that can be.
    config = make_config(1, 1, None)
    dut = Drain(config)
    rows = []

    async def bench(ctx):
        ctx.set(dut.descriptor.raw, 1)
        for cycle in range(5 * TILE_GAP + dut.latency + 2):
            c, rest = divmod(cycle, TILE_GAP)
            ctx.set(dut.load, int(rest == 0 and c < 5))
            ctx.set(dut.token.columns, 1)
            ctx.set(dut.token.channels, 1)
            ctx.set(dut.token.first_c, int(c == 0))
            ctx.set(dut.token.last_c, int(c == 4))
            ctx.set(dut.token.tile_first, 1)
            ctx.set(dut.token.level, 5)
            ctx.set(dut.sums[0][0], 10**c)
            _, _, valid, row = await ctx.tick().sample(dut.valid, dut.row)
            if valid:
                rows.append((cycle, plain(row)["bytes"]))

    simulate(dut, bench)
    assert rows == [(4 * TILE_GAP + dut.latency, list((11111).to_bytes(4, "little")))]


def test_no_bias_ignores_the_table():
    config = make_config(2, 2, 1)
    dut = Drain(config)
    play = Play(dut, config, 2, raw=True, bias=False, most_c=1, tiles=2)
    assert any(write["bias"] and write["value"] for write in play.writes.values())

    async def bench(ctx):
        rows, _ = await play.run(ctx, dut)
        assert rows == play.rows

    simulate(dut, bench)


@pytest.mark.parametrize("seed", range(3))
def test_reset_in_mid_group(seed):
    config = make_config(4, 4, 3)
    dut = Drain(config)
    before, after = (
        Play(dut, config, 20 + seed + k, raw=True, bias=True, tiles=4) for k in (0, 50)
    )
    reset = Signal()

    async def bench(ctx):
        first = sorted(before.loads)[2 + seed]
        rows, _ = await before.run(ctx, dut, until=first + dut.latency - 1 - seed)
        assert rows == before.rows[: len(rows)]
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        # Rows on their way are gone; no release for the parameters of before.
        rows, releases = await after.run(ctx, dut)
        assert rows == after.rows
        assert releases == after.releases

    simulate(dut, bench, reset=reset)


def test_rows_of_another_unit():
    config = EngineConfig(
        out_lanes=3, split_lanes=2, requant_lanes=2, roundings=("double",), units=("elementwise",)
    )
    dut = Drain(config)
    rng = random.Random(3)
    zero_point, low, high = -4, -90, 100
    stimuli, expected = [], []
    for cycle in range(40):
        if rng.random() < 0.4:
            stimuli.append({"valid": 0, "sums": [5, 5], "count": 2})
            continue
        count, last = rng.randint(1, 2), rng.getrandbits(1)
        multiplier, shift = rng.randint(2**30, 2**31 - 1), rng.randint(-12, 1)
        sums = [rng.randrange(-(2**14), 2**14) for _ in range(2)]
        stimuli.append(
            {
                "valid": 1, "sums": sums, "count": count, "last": last,
                "multiplier": multiplier, "shift": shift,
            }
        )  # fmt: skip
        results = [
            requantize_double(total, multiplier, shift, zero_point, low, high) % 256
            for total in sums[:count]
        ]
        # The sums enter where those of the lanes leave the adder: three stages are skipped.
        row = {"count": count, "level": 5 if last else 0, "bytes": results}
        row["last_piece"] = (count - 1) // config.bus_bytes
        expected.append((cycle + dut.latency - 3, row))
    seen = []

    async def bench(ctx):
        ctx.set(dut.descriptor.out_zero_point, zero_point)
        ctx.set(dut.descriptor.clamp_low, low)
        ctx.set(dut.descriptor.clamp_high, high)
        for cycle in range(len(stimuli) + dut.latency):
            ctx.set(dut.other, stimuli[cycle] if cycle < len(stimuli) else {"valid": 0})
            _, _, valid, row = await ctx.tick().sample(dut.valid, dut.row)
            if valid:
                row = plain(row)
                seen.append((cycle, {**row, "bytes": row["bytes"][: row["count"]]}))

    simulate(dut, bench)
    assert seen == expected
