# amaranth: UnusedElaboratable=no
"""The planner's latencies against the hardware blocks that it may not import."""

import pytest
from amaranth.hdl import Fragment

from haloconv.planner import schedule, timeline
from haloconv.planner.config import EngineConfig
from haloconv.planner.latency import (
    chunk_bytes,
    lanes_latency,
    queue_latency,
    release_latency,
    requantizer_latency,
    result_latency,
    results_room,
    row_cycles,
    scale_entry_bytes,
)
from haloconv.planner.requantization import ROUNDINGS
from haloconv.rtl import engine, ports, tile_sequencer
from haloconv.rtl.drain import Drain
from haloconv.rtl.halo_buffer import HaloBuffer
from haloconv.rtl.mac_lanes import MacLanes
from haloconv.rtl.operand_select import OperandSelect
from haloconv.rtl.requantizer import Requantizer
from haloconv.rtl.serial_requantizer import SerialRequantizer
from haloconv.rtl.tap_walker import TapWalker

LANES = ((1, 1), (3, 5), (8, 2), (4, 4), (2, 8), (1, 9), (16, 16))
CHOICES = ((), ("double",), ("single", "away"), ("fp32",), ROUNDINGS)


def make_config(lanes=(2, 2), **options):
    return EngineConfig(
        out_lanes=lanes[0], split_lanes=lanes[1], input_bytes=1 << 14, bias_bytes=256, **options
    )


@pytest.mark.parametrize("lanes", LANES)
def test_from_a_step_to_its_sum(lanes):
    config = make_config(lanes)
    blocks = HaloBuffer(config), OperandSelect(config), MacLanes(config)
    assert lanes_latency(config) == sum(block.latency for block in blocks)


@pytest.mark.parametrize("lanes", LANES)
def test_from_a_step_to_the_release_of_parameters(lanes):
    config = make_config(lanes)
    drain = Drain(config)
    Fragment.get(drain, None)
    assert release_latency(config) == lanes_latency(config) + drain.release_latency


@pytest.mark.parametrize("roundings", CHOICES)
@pytest.mark.parametrize("lanes", [(1, 1), (3, 5)])
def test_from_a_sum_to_its_result(lanes, roundings):
    config = make_config(lanes, roundings=roundings)
    assert requantizer_latency(config) == Requantizer(roundings).latency
    drain = Drain(config)
    Fragment.get(drain, None)  # Amaranth warns of requantisers that were made for nothing
    assert result_latency(config) == lanes_latency(config) + drain.latency + queue_latency(config)


@pytest.mark.parametrize("roundings", [(), ("double",), ROUNDINGS[:4]])
def test_from_a_sum_to_its_result_in_a_serial_requantiser(roundings):
    config = make_config((3, 5), roundings=roundings, serial_requantizers=True)
    drain = Drain(config)
    Fragment.get(drain, None)
    assert result_latency(config) == lanes_latency(config) + drain.latency + queue_latency(config)
    assert row_cycles(config) == (SerialRequantizer(roundings).latency if roundings else 1)


def test_open_roundings_stand_for_double():
    assert requantizer_latency(make_config()) == Requantizer(("double",)).latency


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("q", [1, None])
def test_the_room_holds_more_than_two_groups_and_the_pipeline(lanes, q):
    config = make_config(lanes, requant_lanes=q, roundings=ROUNDINGS)
    group = config.split_lanes * config.group_steps
    assert results_room(config) >= 2 * group + result_latency(config)
    TapWalker(config, room=results_room(config))


@pytest.mark.parametrize(
    ("lanes", "weight_zero_points", "entry", "chunk"),
    [
        ((2, 2), True, 6, 6),  # a scale: multiplier 4, shift 1, zero point 1
        ((2, 2), False, 5, 5),
        ((8, 8), True, 6, 8),
        ((3, 16), False, 5, 16),
        ((7, 5), True, 6, 10),  # a halo word: two steps of five channels for seven lanes
        ((12, 5), True, 6, 15),
    ],
)
def test_bytes_of_a_cycle(lanes, weight_zero_points, entry, chunk):
    config = make_config(lanes, weight_zero_points=weight_zero_points)
    assert scale_entry_bytes(config) == entry
    assert chunk_bytes(config) == chunk


def test_queues_and_bursts_are_those_of_the_hardware():
    assert timeline.SEGMENTS_AHEAD == engine.SEGMENTS_AHEAD
    assert timeline.BURST_BEATS == ports.BURST_BEATS
    assert timeline.BURST_BYTES == ports.BURST_BYTES
    assert tile_sequencer.TileSequencer.interval == schedule.SEQUENCE
