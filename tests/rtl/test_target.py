"""The family of a platform: by its own word, or by the device of an ECP5 board."""

from types import SimpleNamespace

import pytest

from haloconv.rtl.target import family_of


def test_no_platform_has_no_family():
    assert family_of(None) is None
    assert family_of(object()) is None


@pytest.mark.parametrize("family", ["ecp5", "ice40", "xilinx", "gowin"])
def test_a_platform_names_its_family(family):
    assert family_of(SimpleNamespace(haloconv_family=family)) == family
    # Its own word goes before what the device says.
    for device in ("LFE5U-25F", "iCE40UP5K"):
        assert family_of(SimpleNamespace(haloconv_family=family, device=device)) == family


@pytest.mark.parametrize(
    "device", ["LFE5U-12F", "LFE5U-85F", "LFE5UM-45F", "LFE5UM5G-85F", "LAE5UM-25F", "lfe5u-25f"]
)
def test_ecp5_boards_are_known_by_their_device(device):
    assert family_of(SimpleNamespace(device=device)) == "ecp5"
    assert family_of(SimpleNamespace(haloconv_family=None, device=device)) == "ecp5"


@pytest.mark.parametrize(
    "device",
    ["iCE40UP5K", "iCE40HX8K", "xc7a35ti", "GW1NR-LV9QN88PC6/I5", "LCMXO2-7000HC", "LIFCL-40", "",
     "X-LFE5U", None, 5],
)  # fmt: skip
def test_other_devices_are_of_no_family(device):
    assert family_of(SimpleNamespace(device=device)) is None


def test_a_device_of_the_class_counts():
    """Platforms of amaranth-boards state the device in their class; in others it is a property."""

    class Board:
        device = "LFE5U-85F"

    class Abstract:
        @property
        def device(self):
            raise AttributeError("abstract")

    assert family_of(Board()) == "ecp5"
    assert family_of(Abstract()) is None
