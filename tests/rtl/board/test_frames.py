"""Frames are what the document of the link says, byte for byte."""

import pytest

from haloconv.rtl.board.frames import Command, Status, check_bytes, request


def crc_by_bits(data):
    """CRC-16 with the polynomial 0x1021, bits reflected, all ones first, bit by bit."""
    crc = 0xFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x8408 if crc & 1 else 0)
    return crc


def test_check_is_the_published_one():
    assert check_bytes(b"123456789") == bytes.fromhex("916f")  # 0x6F91 in the CRC catalogue
    for data in (b"", b"\0", bytes(range(200))):
        assert check_bytes(data) == crc_by_bits(data).to_bytes(2, "little")


def test_a_read():
    frame = request(0, 0x123F0, 16)
    assert frame[:7] == bytes([0xA5, 0, 0xF0, 0x23, 0x01, 0x00, 0xFF])
    assert frame[7:] == crc_by_bits(frame[1:7]).to_bytes(2, "little")


def test_a_write():
    frame = request(Command.WRITE | Command.REGISTERS, 32, 4, b"\1\2\3\4")
    assert frame[:7] == bytes([0xA5, 3, 32, 0, 0, 0, 35])
    assert frame[9:13] == b"\1\2\3\4"
    assert frame[13:] == crc_by_bits(b"\1\2\3\4").to_bytes(2, "little")
    assert len(frame) == 15


@pytest.mark.parametrize("count", [0, 257])
def test_counts_beyond_a_page(count):
    with pytest.raises(ValueError, match=rf"Count must be 1\.\.256, not {count}"):
        request(0, 0, count)


def test_addresses_beyond_the_field():
    with pytest.raises(ValueError, match=r"Address must be 0\.\.0xffffffff, not 0x100000000"):
        request(0, 1 << 32, 1)


def test_status_codes():
    assert [int(status) for status in Status] == [0, 1, 2, 3]
