import pytest

from haloconv.planner.gemm import LEFT_OUT, gemm_traffic


def by_walk(m: int, k: int, n: int, element_bytes: int, tile: int) -> int:
    """Count the elements of each output tile's operands one by one."""
    elements = 0
    for top in range(0, m, tile):
        for left in range(0, n, tile):
            rows, columns = min(tile, m - top), min(tile, n - left)
            elements += rows * k + k * columns + rows * columns
    return elements * element_bytes


def test_worked_case() -> None:
    assert gemm_traffic(2, 2, 2, element_bytes=2, tile=1).ideal_bytes == 24
    assert gemm_traffic(2, 2, 2, element_bytes=2, tile=1).modelled_bytes == 40
    assert gemm_traffic(2, 2, 2, element_bytes=2, tile=2).modelled_bytes == 24


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (3, 7, 5), (16, 9, 31), (64, 33, 10)])
@pytest.mark.parametrize("tile", [1, 2, 5, 16, 100])
def test_model_is_the_walk_over_tiles(m: int, k: int, n: int, tile: int) -> None:
    traffic = gemm_traffic(m, k, n, element_bytes=3, tile=tile)
    assert traffic.modelled_bytes == by_walk(m, k, n, 3, tile)
    assert traffic.ideal_bytes == 3 * (m * k + k * n + m * n)
    assert traffic.modelled_bytes >= traffic.ideal_bytes


def test_says_what_it_leaves_out() -> None:
    assert any("beta" in item for item in LEFT_OUT)
    for word in ("addresses", "eviction", "synchronisation", "double buffering"):
        assert word in LEFT_OUT


@pytest.mark.parametrize("name", ["m", "k", "n", "element_bytes", "tile"])
def test_refuses_sizes_below_one(name: str) -> None:
    arguments = {"m": 4, "k": 4, "n": 4, "element_bytes": 1, "tile": 2, name: 0}
    with pytest.raises(ValueError, match=f"{name} must be at least 1, not 0"):
        gemm_traffic(
            arguments["m"],
            arguments["k"],
            arguments["n"],
            element_bytes=arguments["element_bytes"],
            tile=arguments["tile"],
        )
