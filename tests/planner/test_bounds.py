import pytest

from haloconv.planner.bounds import lower_bounds
from haloconv.planner.layer import ConvLayer
from haloconv.planner.tile import Tile
from haloconv.planner.traffic import moved_bytes


def test_worked_by_hand() -> None:
    # 3x3, stride 1: R = 9; 9*1024 = 96**2, so 4*G/96 - 2*1024 - 3*N.
    layer = ConvLayer(34, 34, 64, 64, (3, 3))
    macs, outputs = 32 * 32 * 64 * 9 * 64, 32 * 32 * 64
    found = lower_bounds(layer, 1024)
    assert found.storage_bytes_bound == 4 * macs // 96 - 2048 - 3 * outputs
    assert found.unique_bytes == 34 * 34 * 64 + 64 * 9 * 64 + 4 * 64 + outputs


def test_stride_lessens_reuse() -> None:
    # ceil(3/2)**2 = 4 uses; 4*1024 = 64**2.
    layer = ConvLayer(65, 65, 32, 32, (3, 3), (2, 2))
    macs, outputs = 32 * 32 * 32 * 9 * 32, 32 * 32 * 32
    assert lower_bounds(layer, 1024).storage_bytes_bound == 4 * macs // 64 - 2048 - 3 * outputs


def test_says_nothing_rather_than_less_than_nothing() -> None:
    layer = ConvLayer(4, 4, 2, 2, (3, 3))
    assert lower_bounds(layer, 1 << 20).storage_bytes_bound == 0


def test_raw_sums_are_written_in_full() -> None:
    layer = ConvLayer(4, 4, 2, 2, (3, 3))
    assert lower_bounds(layer, 64, raw=True).unique_bytes == (
        lower_bounds(layer, 64).unique_bytes + 3 * 2 * 2 * 2
    )


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_no_plan_goes_below(size: int) -> None:
    layer = ConvLayer(16, 16, 16, 16, (3, 3), pads=(1, 1, 1, 1))
    tile = Tile(size, size, 16, size)
    span = (size + 2) ** 2
    storage = 16 * span + 16 * 9 * size + 4 * size * size * size
    moved = moved_bytes(layer, tile, "hwmc").total
    bounds = lower_bounds(layer, storage)
    assert moved >= bounds.unique_bytes
    assert moved >= bounds.storage_bytes_bound


def test_refuses_no_storage() -> None:
    layer = ConvLayer(4, 4, 2, 2, (3, 3))
    with pytest.raises(ValueError, match="storage_bytes must be at least 1, not 0"):
        lower_bounds(layer, 0)
