"""A simulated layer against the golden model and its plan."""

import json
from dataclasses import replace

import pytest

from haloconv.flow.checks import check_layer, check_record
from haloconv.flow.source import Item
from haloconv.planner.config import EngineConfig
from haloconv.planner.layer import ConvLayer

CONFIG = EngineConfig(
    out_lanes=2,
    split_lanes=2,
    bus_bytes=4,
    input_bytes=128,
    weight_bytes=128,
    psum_bytes=128,
    bias_bytes=16,
)
ITEM = Item(0, "small", ConvLayer(4, 5, 3, 4, (3, 3), pads=(1, 1, 1, 1), in_zero_point=7))


@pytest.mark.parametrize("rounding", ["double", "fp32", "raw"])
def test_agreement(rounding: str) -> None:
    check = check_layer(ITEM, CONFIG, rounding=rounding, seed=11)
    assert check.differences == 0
    assert check.outputs == 4 * 5 * 4
    assert check.passed
    # 4*5*4 outputs of 9 taps and 3 channels on 4 lanes.
    assert check.utilisation == pytest.approx(2160 / (4 * check.result.cycles))
    record = check_record(check)
    assert json.loads(json.dumps(record)) == record


def test_what_fails() -> None:
    check = check_layer(ITEM, CONFIG)
    assert not replace(check, differences=1).passed
    result = replace(check.result, bytes_read=check.result.bytes_read + 1)
    assert not replace(check, result=result).bytes_agree
    assert not replace(check, result=result).passed
