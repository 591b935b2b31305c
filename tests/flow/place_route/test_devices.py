"""The table of devices."""

import re

import pytest

from haloconv.flow.place_route.devices import DEVICES, device_of
from haloconv.flow.synthesis.area import FAMILIES


def test_devices() -> None:
    assert device_of("lfe5u-85f") is DEVICES["LFE5U-85F"]
    assert DEVICES["LFE5U-85F"].option == "--85k"
    assert DEVICES["LFE5UM5G-45F"].option == "--um5g-45k"
    assert DEVICES["iCE40UP5K"].option == "--up5k"
    assert {device.family for device in DEVICES.values()} <= set(FAMILIES)
    with pytest.raises(ValueError, match=re.escape("Device must be one of LFE5U-12F")):
        device_of("XC7A35T")
