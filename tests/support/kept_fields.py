"""Fields of descriptors that blocks have at hand, to set a port of them."""

from haloconv.planner.descriptor import DESCRIPTOR_BYTES, decode
from haloconv.rtl.widths import DescriptorLayout


def kept_fields(descriptor: bytes | int) -> dict[str, int]:
    """Return the fields by name; an integer is the descriptor's bits."""
    if isinstance(descriptor, int):
        descriptor = descriptor.to_bytes(DESCRIPTOR_BYTES, "little")
    values = decode(descriptor)
    return {name: values[name] for name, _ in DescriptorLayout()}
