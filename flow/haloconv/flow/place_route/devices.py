"""FPGAs that nextpnr places and routes for, with tools installed by pip."""

from dataclasses import dataclass

__all__ = ["DEVICES", "Device", "check_speed", "device_of"]


@dataclass(frozen=True)
class Device:
    """An FPGA, and how nextpnr is told of it.

    Attributes
    ----------
    name : str
        As its maker calls it.
    family : str
        Of :data:`haloconv.flow.synthesis.FAMILIES`.
    option : str
        Of nextpnr.
    package, speed : str
        Taken where none is given; an empty speed means that the device has one only.
    frequency : float
        Target clock in MHz where none is given. Placement works harder on paths that miss it.
    """

    name: str
    family: str
    option: str
    package: str
    speed: str
    frequency: float


def _ecp5(name: str) -> Device:
    part, _, size = name.partition("-")
    series = {"LFE5U": "", "LFE5UM": "um-", "LFE5UM5G": "um5g-"}[part]
    speed = "8" if part == "LFE5UM5G" else "6"
    return Device(name, "ecp5", f"--{series}{size[:-1]}k", "CABGA381", speed, 100.0)


def _ice40(name: str, package: str, frequency: float) -> Device:
    return Device(name, "ice40", f"--{name.removeprefix('iCE40').lower()}", package, "", frequency)


DEVICES = {
    device.name: device
    for device in (
        *(_ecp5(f"LFE5U-{size}F") for size in (12, 25, 45, 85)),
        *(_ecp5(f"LFE5UM-{size}F") for size in (25, 45, 85)),
        *(_ecp5(f"LFE5UM5G-{size}F") for size in (25, 45, 85)),
        _ice40("iCE40UP5K", "sg48", 24.0),
        _ice40("iCE40UP3K", "uwg30", 24.0),
        _ice40("iCE40HX8K", "ct256", 60.0),
        _ice40("iCE40HX4K", "tq144", 60.0),
        _ice40("iCE40HX1K", "tq144", 60.0),
        _ice40("iCE40LP8K", "cm225", 48.0),
        _ice40("iCE40LP4K", "cm225", 48.0),
        _ice40("iCE40LP1K", "cm121", 48.0),
    )
}
"""Devices by name."""


def device_of(name: str) -> Device:
    """Return a device by its name, in any case.

    Raises
    ------
    ValueError
        If it is not known.
    """
    for known, device in DEVICES.items():
        if known.lower() == str(name).lower():
            return device
    raise ValueError(f"Device must be one of {', '.join(DEVICES)}, not {name!r}")


SPEEDS = ("6", "7", "8")
"""Speed grades of the ECP5."""


def check_speed(device: Device, speed: str | None) -> None:
    """Refuse a speed grade that a device does not come in; None stands for the usual one.

    Raises
    ------
    ValueError
        If the device has one speed only, or no such grade.
    """
    if speed is None:
        return
    if not device.speed:
        raise ValueError(f"{device.name} has one speed only, so none can be chosen")
    if speed not in SPEEDS:
        raise ValueError(
            f"Speed of {device.name} must be one of {', '.join(SPEEDS)}, not {speed!r}"
        )
