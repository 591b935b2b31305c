"""What devices hold."""

import pytest

from haloconv.flow.explore.devices import CAPACITIES, Capacity, capacity_of
from haloconv.flow.place_route import DEVICES
from haloconv.flow.synthesis.area import Area


def test_names() -> None:
    assert capacity_of("lfe5u-85f") is CAPACITIES["LFE5U-85F"]
    with pytest.raises(ValueError, match=r"device must be one of LFE5U-12F, .*, not 'spartan'"):
        capacity_of("spartan")
    # Whatever is chosen can be placed and routed.
    assert {name: device.family for name, device in CAPACITIES.items()}.items() <= {
        name: device.family for name, device in DEVICES.items()
    }.items()


def test_shares() -> None:
    device = Capacity("tiny", "ecp5", 9000, 9000, 40, 24)
    shares = device.shares(
        Area(luts=1000, carries=400, lut_rams=50, ffs=9000, dsps=20, block_rams=6)
    )
    # 1000 LUTs, two for each carry, six for each small memory.
    assert shares == {"LUT": 2100 / 9000, "FF": 1.0, "DSP": 0.5, "block RAM": 0.25}
    none = Capacity("none", "ecp5", 10, 10, 0, 0)
    assert none.shares(Area(dsps=1))["DSP"] > 1
    assert none.shares(Area())["DSP"] == 0
