# amaranth: UnusedElaboratable=no
"""The tap walker against addresses, edges and tokens computed from coordinates."""

import random
import re

import pytest
from amaranth.hdl import Signal

from haloconv.planner.config import EngineConfig
from haloconv.planner.descriptor import decode
from haloconv.planner.latency import results_room
from haloconv.planner.layer import ConvLayer
from haloconv.planner.program import LayerAddresses, describe_layer
from haloconv.planner.tile import Tile
from haloconv.rtl.tap_walker import TapWalker
from haloconv.sim.streams import plain, simulate

from ..support.kept_fields import kept_fields
from ..support.random_layers import random_layer, random_mode, random_tile

LANES = ((1, 1, None), (3, 5, 2), (8, 2, 3), (4, 4, 1), (4, 4, None), (2, 8, 1))


def make_config(lanes, split, q, **more):
    return EngineConfig(
        out_lanes=lanes, split_lanes=split, requant_lanes=q, input_bytes=2048, weight_bytes=2048,
        psum_bytes=2048, bias_bytes=16 * lanes, roundings=(), **more,
    )  # fmt: skip


def descriptor_of(layer, config, tile, mode):
    return describe_layer(
        layer, config, tile, mode, "hwmc", LayerAddresses(0, 0, 0, 0, 0), None,
        load_scale=False, last=True,
    )  # fmt: skip


class Work:
    """One tile, from its place in the tensors: what the walker is told and what it has to do."""

    def __init__(self, rng, layer, config, tile, mode, first):
        self.layer, self.config, self.tile, self.mode = layer, config, tile, mode
        self.h0 = rng.randrange(0, layer.out_height, tile.height)
        self.w0 = rng.randrange(0, layer.out_width, tile.width)
        total_m = layer.out_channels if mode == "depthwise" else layer.group_out_channels
        total_c = 1 if mode == "depthwise" else layer.group_in_channels
        m0 = rng.randrange(0, total_m, tile.out_channels)
        c0 = rng.randrange(0, total_c, tile.in_channels)
        self.rows = min(tile.height, layer.out_height - self.h0)
        self.columns = min(tile.width, layer.out_width - self.w0)
        self.channels_m = min(tile.out_channels, total_m - m0)
        self.channels_c = min(tile.in_channels, total_c - c0)
        self.first_c = int(c0 == 0)
        self.last_c = int(c0 + self.channels_c == total_c)
        self.new = {
            name: int(first or rng.random() < 0.5)
            for name in ("new_parameters", "new_weights", "new_input")
        }
        self.width = 1 if mode == "channel" else config.split_lanes

    @property
    def c_steps(self):
        if self.mode == "channel":
            return -(-self.channels_c // self.config.split_lanes)
        return self.channels_c

    def payload(self):
        layer, lanes = self.layer, self.config.out_lanes
        stride, left = layer.stride[1], layer.pads[2]
        groups = -(-self.columns // self.width)
        m_groups = -(-self.channels_m // lanes)
        top = self.h0 * layer.stride[0] - layer.pads[0]
        span, _ = layer.span(self.rows, self.columns)
        return {
            **self.new,
            "first_c": self.first_c,
            "last_c": self.last_c,
            "rows": self.rows,
            "column_groups": groups,
            "column_tail": self.columns - (groups - 1) * self.width,
            "m_groups": m_groups,
            "m_tail": self.channels_m - (m_groups - 1) * lanes,
            "c_steps": self.c_steps,
            "skip_rows": max(0, -top),
            "inside_rows": max(0, min(top + span, layer.in_height) - max(0, top)),
            "low_q": left // stride - self.w0,
            "high_q": (left + layer.in_width) // stride - self.w0,
        }

    def word_at(self, row, column, word):
        """Place of a word of input (row, column) of the tile, pads included: the layout formula.

        Channel mode: words in order. Row modes: the columns of one stride phase together, in runs
        of a multiple of Pr words, so that column // stride and bank agree modulo Pr.
        """
        config, layer = self.config, self.layer
        _, span = layer.span(self.tile.height, self.tile.width)
        if self.mode == "channel":
            words = -(-self.tile.in_channels // config.word_bytes)
            return (row * span + column) * words + word
        if self.mode == "depthwise":
            words = -(-self.tile.out_channels // config.out_lanes)
        else:
            words = -(-self.tile.in_channels // config.word_bytes)
        stride, lanes = layer.stride[1], config.split_lanes
        phases = min(stride, span)
        in_phase = -(-span // stride)
        run = -(-in_phase // lanes) * lanes
        return ((row * phases + column % stride) * words + word) * run + column // stride

    def steps(self, weight_half, input_half, parameter_half):
        """Every step of the tile: (fields of the step, mask, token or None, drain cycles)."""
        layer, config = self.layer, self.config
        lanes, pr, q = config.out_lanes, config.split_lanes, config.results_per_cycle
        rows, columns = layer.kernel
        top = self.h0 * layer.stride[0] - layer.pads[0]
        left = self.w0 * layer.stride[1] - layer.pads[2]
        m_starts = range(0, self.channels_m, lanes)
        for row in range(self.rows):
            for column in range(0, self.columns, self.width):
                for group, m_start in enumerate(m_starts):
                    for u in range(rows):
                        for v in range(columns):
                            for k in range(self.c_steps):
                                y = row * layer.stride[0] + u * layer.dilation[0]
                                x = column * layer.stride[1] + v * layer.dilation[1]
                                word, select = divmod(
                                    k,
                                    config.word_steps if self.mode == "channel"
                                    else config.word_bytes,
                                )  # fmt: skip
                                if self.mode == "depthwise":
                                    word, select = group, 0
                                place = self.word_at(y, x, word)
                                tap = u * columns + v
                                first = u == v == k == 0
                                last = u == rows - 1 and v == columns - 1 and k == self.c_steps - 1
                                step = {
                                    "valid": 1,
                                    "first": int(first),
                                    "last": int(last),
                                    "position": {
                                        "bank": place % pr,
                                        "word": place // pr + input_half * config.input_words,
                                    },
                                    "weight": (group * layer.taps + tap) * self.c_steps + k
                                    + weight_half * config.weight_words,
                                    "select": select,
                                }  # fmt: skip
                                mask = [
                                    0 <= top + y < layer.in_height
                                    and 0 <= left + x + lane * layer.stride[1] < layer.in_width
                                    for lane in range(pr)
                                ]
                                token, drain = None, 0
                                if last:
                                    count = min(self.width, self.columns - column)
                                    channels = min(lanes, self.channels_m - m_start)
                                    drain = count * -(-channels // q)
                                    level = 2
                                    if group == len(m_starts) - 1:
                                        level = 3
                                        if column + self.width >= self.columns:
                                            level = 4 if row < self.rows - 1 else 5
                                    begins = row == column == group == 0
                                    token = {
                                        "columns": count,
                                        "channels": channels,
                                        "parameter_row": config.group_steps
                                        * (parameter_half * config.channel_groups + group),
                                        "first_c": self.first_c,
                                        "last_c": self.last_c,
                                        "tile_first": int(begins),
                                        "new_parameters": int(
                                            begins and self.new["new_parameters"]
                                        ),
                                        "level": level,
                                    }
                                yield step, mask, token, drain


class Bench:
    """Drives the walker and holds every cycle of it against the model."""

    def __init__(self, config, layer, tile, mode, works, *, room, seed, stalls, return_share):
        self.dut = TapWalker(config, room=room)
        self.config, self.mode, self.works, self.room = config, mode, works, room
        self.descriptor = int.from_bytes(descriptor_of(layer, config, tile, mode), "little")
        self.rng = random.Random(seed)
        self.stalls, self.return_share = stalls, return_share
        self.drain_stalls = self.room_stalls = self.steps_done = 0
        self.most_reserved = 0

    def start(self, ctx):
        ctx.set(self.dut.descriptor, kept_fields(self.descriptor))

    async def run(self, ctx, *, most_steps=None):
        dut, rng, room = self.dut, self.rng, self.room
        self.start(ctx)
        halves = {"new_weights": 1, "new_input": 1, "new_parameters": 1}
        held = {"new_weights": False, "new_input": False}
        waiting = list(self.works)
        loaded = ahead = 0
        reserved = 0
        drain_free = now = 0
        state, steps, upcoming = "WAIT", None, None
        offered_before = False
        masks = {}
        cycles = 0
        while waiting or state != "WAIT" or masks:
            offered = bool(waiting) and rng.random() >= self.stalls
            pulse = ahead < min(4, len(waiting)) and rng.random() >= self.stalls
            back = reserved > 0 and rng.random() < self.return_share
            ctx.set(dut.i.valid, int(offered))
            if offered:
                ctx.set(dut.i.payload, waiting[0].payload())
            ctx.set(dut.loaded, int(pulse))
            ctx.set(dut.returned, int(back))
            (
                _, _, ready, step, mask, token, free_w, free_i, computing, wait_load, wait_drain,
                idle, room_free,
            ) = await ctx.tick().sample(
                dut.i.ready, dut.step, dut.mask, dut.token, dut.release_weights,
                dut.release_input, dut.computing, dut.waiting_load, dut.waiting_drain, dut.idle,
                dut.room_free,
            )  # fmt: skip
            step, token = plain(step), plain(token)
            cycles += 1
            assert cycles < 200_000
            if state == "WAIT":
                assert room_free == (reserved == 0)

            # The mask stands two cycles behind its step.
            if now in masks:
                lanes = 1 if self.mode == "channel" else self.config.split_lanes
                expected = masks.pop(now)
                got = [bool(mask >> lane & 1) for lane in range(lanes)]
                assert got == expected[:lanes], f"mask of the step in cycle {now - 2}"

            accepted = False
            go = False
            take = 0
            if state == "WAIT":
                accepted = offered and offered_before and loaded > 0
                assert (wait_load, computing, wait_drain) == (1, 0, 0)
                assert idle == (not offered)
                assert ready == accepted
            else:
                assert idle == ready == 0
            work = waiting[0] if accepted else None
            for port, name in ((free_w, "new_weights"), (free_i, "new_input")):
                assert port == bool(work and work.new[name] and held[name]), name
            if state == "START":
                assert (wait_load, computing, wait_drain) == (1, 0, 0)
            if state == "RUN":
                assert upcoming is not None
                expected, mask_of, expected_token, drain = upcoming
                go = True
                if expected_token is not None:
                    if now < drain_free:
                        go = False
                        self.drain_stalls += 1
                    elif expected_token["last_c"] and reserved + drain > room:
                        go = False
                        self.room_stalls += 1
                assert (wait_load, computing, wait_drain) == (0, go, not go)
                if go:
                    assert step == expected, f"step {self.steps_done}"
                    masks[now + 2] = mask_of
                    self.steps_done += 1
                    if expected_token is not None:
                        assert token == expected_token
                        drain_free = now + drain
                        take = drain if expected_token["last_c"] else 0
            if not go:
                assert step["valid"] == step["last"] == 0
            if most_steps is not None and self.steps_done >= most_steps:
                return

            reserved += take - back
            self.most_reserved = max(self.most_reserved, reserved)
            assert 0 <= reserved <= room
            loaded += pulse - accepted
            ahead += pulse - accepted
            if accepted:
                work = waiting.pop(0)
                for name, new in work.new.items():
                    halves[name] ^= new
                held = {"new_weights": True, "new_input": True}
                steps = work.steps(
                    halves["new_weights"], halves["new_input"], halves["new_parameters"]
                )
                state = "START"
            elif state == "START":
                state = "RUN"
                upcoming = next(steps)
            elif go:
                upcoming = next(steps, None)
                if upcoming is None:
                    state = "WAIT"
            # A tile is looked at, once none is at hand, before it is taken.
            offered_before = offered and state == "WAIT"
            now += 1
        assert loaded == 0


def bench_of(seed, lanes, *, stalls=0.3, return_share=0.7, room=None, most_steps=1500):
    rng = random.Random(seed)
    config = make_config(*lanes)
    while True:
        layer = random_layer(rng)
        mode = random_mode(rng, layer)
        tile = random_tile(rng, layer, config, mode)
        works = [Work(rng, layer, config, tile, mode, index == 0) for index in range(6)]
        count = sum(
            work.rows * -(-work.columns // work.width) * -(-work.channels_m // config.out_lanes)
            * layer.taps * work.c_steps
            for work in works
        )  # fmt: skip
        if count <= most_steps:
            break
    room = results_room(config) if room is None else room
    return Bench(
        config, layer, tile, mode, works, room=room, seed=seed, stalls=stalls,
        return_share=return_share,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_random_tiles(seed):
    bench = bench_of(seed, LANES[seed % len(LANES)], stalls=(0.0, 0.3, 0.7)[seed % 3])
    simulate(bench.dut, bench.run)
    assert bench.steps_done


@pytest.mark.parametrize("seed", range(101, 105))
def test_never_reserves_more_than_the_room(seed):
    lanes = LANES[1:][seed % 5]
    config = make_config(*lanes)
    room = config.split_lanes * config.group_steps + seed % 3
    bench = bench_of(seed, lanes, stalls=0.0, return_share=0.15, room=room, most_steps=600)
    simulate(bench.dut, bench.run)
    assert 0 < bench.most_reserved <= room


def directed(layer, tile, mode, lanes, *, count=2, return_share=1.0, room=None):
    config = make_config(*lanes)
    rng = random.Random(0)
    works = [Work(rng, layer, config, tile, mode, index == 0) for index in range(count)]
    return Bench(
        config, layer, tile, mode, works, room=results_room(config) if room is None else room,
        seed=0, stalls=0.0, return_share=return_share,
    )  # fmt: skip


def test_a_step_a_cycle_where_nothing_binds():
    layer = ConvLayer(6, 8, 4, 4, (3, 3), pads=(1, 1, 1, 1))
    bench = directed(layer, Tile(6, 8, 4, 4), "row", (4, 4, None), count=3)
    cycles = simulate(bench.dut, bench.run)
    # 6 rows of 2 column steps, 36 steps each; two cycles between tiles, their first included.
    steps = 3 * 6 * 2 * 36
    assert bench.steps_done == steps
    assert bench.drain_stalls == bench.room_stalls == 0
    assert cycles == 1 + steps + 3 * 2 + 2  # a cycle until loaded counts, two for the last mask


def test_short_groups_wait_for_the_drain():
    # One step a group, but 4 channels leave one by one: 4 cycles a group, 3 of them waiting.
    layer = ConvLayer(1, 10, 1, 4, (1, 1))
    bench = directed(layer, Tile(1, 10, 1, 4), "channel", (4, 1, 1), count=1)
    simulate(bench.dut, bench.run)
    assert bench.steps_done == 10
    assert bench.drain_stalls == 9 * 3


def test_the_room_fills_and_holds_the_lanes():
    layer = ConvLayer(1, 12, 1, 1, (1, 1))
    bench = directed(layer, Tile(1, 12, 1, 1), "channel", (1, 1, None), room=5, return_share=0.1)
    simulate(bench.dut, bench.run)
    assert bench.most_reserved == 5
    assert bench.room_stalls > 20


def test_partial_sums_need_no_room():
    # Two input channel tiles; nothing ever returns. The finished pixel fills the room, and the
    # unfinished ones behind it pass all the same.
    layer = ConvLayer(1, 1, 2, 1, (1, 1))
    config = make_config(1, 1, None)
    tile = Tile(1, 1, 1, 1)
    choices = [Work(random.Random(s), layer, config, tile, "channel", True) for s in range(30)]
    finished = next(work for work in choices if work.last_c)
    partial = next(work for work in choices if not work.last_c)
    bench = Bench(
        config, layer, tile, "channel", [partial, finished, partial, partial], room=1, seed=0,
        stalls=0.0, return_share=0.0,
    )  # fmt: skip
    simulate(bench.dut, bench.run)
    assert bench.steps_done == 4
    assert bench.most_reserved == 1
    assert bench.room_stalls == 0


def test_large_pads_and_wide_strides_mask_whole_tiles():
    layer = ConvLayer(2, 2, 1, 1, (2, 3), (4, 3), (3, 2), (9, 8, 11, 7), in_zero_point=5)
    tile = Tile(2, 3, 1, 1)
    for mode in ("channel", "row"):
        bench = directed(layer, tile, mode, (2, 3, None), count=6)
        bench.rng.seed(4)
        simulate(bench.dut, bench.run)
        assert bench.steps_done


@pytest.mark.parametrize("seed", range(3))
def test_reset_in_mid_tile(seed):
    bench = bench_of(seed + 40, LANES[seed], most_steps=500)
    reset = Signal()

    async def run(ctx):
        await bench.run(ctx, most_steps=7 + 5 * seed)
        for port in (bench.dut.i.valid, bench.dut.loaded, bench.dut.returned):
            ctx.set(port, 0)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        bench.steps_done = 0
        # From the first tile and the first buffer halves again, with an empty room.
        await bench.run(ctx)

    simulate(bench.dut, run, reset=reset)


def test_descriptor_and_model_agree_on_the_layout():
    # The words that the planner reserves hold every word that the formula places.
    for seed in range(60):
        rng = random.Random(seed)
        config = make_config(*LANES[seed % len(LANES)])
        layer = random_layer(rng)
        mode = random_mode(rng, layer)
        tile = random_tile(rng, layer, config, mode)
        work = Work(rng, layer, config, tile, mode, True)
        fields = decode(descriptor_of(layer, config, tile, mode))
        span_h, span_w = layer.span(tile.height, tile.width)
        count = fields["pixel_words"]
        places = [
            work.word_at(y, x, word)
            for y in range(span_h) for x in range(span_w) for word in range(count)
        ]  # fmt: skip
        assert len(set(places)) == len(places)
        assert max(places) // config.split_lanes < fields["input_words"]


@pytest.mark.parametrize(
    ("room", "error", "message"),
    [
        (2.5, TypeError, "room must be an integer, not 2.5"),
        (7, ValueError, "room must be at least 8, not 7"),
    ],
)
def test_constructor_errors(room, error, message):
    # Two steps for each of four columns have to fit, or the group would wait forever.
    with pytest.raises(error, match=re.escape(message)):
        TapWalker(make_config(4, 4, 2), room=room)
