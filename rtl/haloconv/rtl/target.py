"""Which FPGA family an elaboration is for."""

__all__ = ["family_of"]


def family_of(platform: object) -> str | None:
    """Return the family that ``platform`` names, as "ecp5", or None: build what suits every family.

    A platform says so in the attribute ``haloconv_family``. Platforms of amaranth-boards do not
    have it; those for the ECP5 are known by their ``device``.
    """
    family = getattr(platform, "haloconv_family", None)
    if family is not None:
        return str(family)
    device = getattr(platform, "device", None)
    if isinstance(device, str) and device.upper().startswith(("LFE5U", "LAE5U")):
        return "ecp5"
    return None
