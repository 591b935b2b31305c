# amaranth: UnusedElaboratable=no
"""Names, widths and directions of the ports, which adapters and exported Verilog rely on."""

import re

import pytest
from amaranth import Shape
from amaranth.lib.wiring import Flow

from haloconv.rtl.ports import (
    BURST_BEATS,
    BURST_BYTES,
    MemorySignature,
    ReadData,
    ReadRequest,
    RegisterSignature,
    WriteBeat,
)


def fields(layout):
    return [(name, Shape.cast(field.shape), field.offset) for name, field in layout]


def test_bursts_are_those_of_axi4():
    assert (BURST_BEATS, BURST_BYTES) == (256, 4096)


def test_layouts():
    # beats counts up to 256, which eight bits would not hold.
    assert fields(ReadRequest(20)) == [("address", Shape(20), 0), ("beats", Shape(9), 20)]
    assert fields(ReadData(4)) == [("data", Shape(32), 0), ("error", Shape(1), 32)]
    assert fields(WriteBeat(16, 2)) == [
        ("address", Shape(16), 0),
        ("data", Shape(16), 16),
        ("strobe", Shape(2), 32),
    ]


def leaves(signature):
    """{path: (driven by the side that holds the signature, width)}, flattened."""
    instance = signature.create()
    return {
        "__".join(map(str, path)): (member.flow == Flow.Out, Shape.cast(member.shape).width)
        for path, member, _ in signature.flatten(instance)
    }


def test_memory_ports():
    assert leaves(MemorySignature(32, 8)) == {
        "read_request__payload": (True, 41),
        "read_request__valid": (True, 1),
        "read_request__ready": (False, 1),
        "read_data__payload": (False, 65),
        "read_data__valid": (False, 1),
        "read_data__ready": (True, 1),
        "write__payload": (True, 32 + 64 + 8),
        "write__valid": (True, 1),
        "write__ready": (False, 1),
        "write_error": (False, 1),
    }


def test_register_ports():
    assert leaves(RegisterSignature()) == {
        "address": (True, 8),
        "write": (True, 1),
        "write_data": (True, 32),
        "read_data": (False, 32),
    }


def test_equal_parameters_make_equal_signatures():
    assert MemorySignature(32, 8) == MemorySignature(32, 8)
    assert MemorySignature(32, 8) != MemorySignature(32, 4)
    assert RegisterSignature() == RegisterSignature() != MemorySignature(32, 8)
    assert repr(MemorySignature(32, 8)) == "MemorySignature(32, 8)"
    assert repr(RegisterSignature()) == "RegisterSignature()"


@pytest.mark.parametrize(
    ("make", "message", "error"),
    [
        (lambda: ReadRequest(0), "Address bits must be at least 1, not 0", ValueError),
        (lambda: ReadRequest("8"), "Address bits must be an integer, not '8'", TypeError),
        (lambda: ReadData(0), "Bus bytes must be at least 1, not 0", ValueError),
        (lambda: WriteBeat(16, 3), "Bus bytes must be a power of two, not 3", ValueError),
        (lambda: WriteBeat(16, 2.0), "Bus bytes must be an integer, not 2.0", TypeError),
        (lambda: MemorySignature(32, 12), "Bus bytes must be a power of two, not 12", ValueError),
        (lambda: MemorySignature(-1, 8), "Address bits must be at least 1, not -1", ValueError),
    ],
)
def test_refusals(make, message, error):
    with pytest.raises(error, match=re.escape(message)):
        make()
