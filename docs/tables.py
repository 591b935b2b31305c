"""Write docs/registers.md from the tables of the planner: ``python docs/tables.py [--check]``."""

import sys
from pathlib import Path

from haloconv.flow.export import engine_description
from haloconv.planner import EngineConfig

TARGET = Path(__file__).with_name("registers.md")
INTRODUCTION = """\
# Registers and descriptors

Made by `docs/tables.py` from the tables that size the hardware, the simulators and the C header.

The host sees 32-bit words; a 64-bit counter takes two, low word first. To run a program it writes
the byte address of the first descriptor (a multiple of the bus width) to `program_low`, sets bit 0
of `control`, and waits until bit 0 of `status` is low: bit 1 then says done, bit 2 error.

An engine without counters (`counters` of its configuration off, bit 11 of `options` 0) counts
`cycles` and `layers` alone: its other counters were not built and read 0, whatever happens.

| Word | Register | Bits | Meaning |
|---:|---|---:|---|
"""


def text() -> str:
    """Return the page."""
    description = engine_description(EngineConfig())
    lines = [INTRODUCTION.rstrip("\n")]
    for register in description["registers"]:
        lines.append(
            f"| {register['index']} | `{register['name']}` | {register['bits']} "
            f"| {register['doc'] or '-'} |"
        )
    lines += ["", "## Error codes", "", "| Code | Name |", "|---:|---|"]
    lines += [f"| {code} | {name} |" for name, code in description["errors"].items()]
    descriptor = description["descriptor"]
    lines += [
        "",
        "## Descriptor",
        "",
        f"{descriptor['bytes']} bytes, little endian, one behind the other; the engine goes on",
        "until one is marked `last`.",
        "Fields of an elementwise descriptor that it does not name are 0.",
        "",
        "| Word | Bits | Field | Meaning |",
        "|---:|---|---|---|",
    ]
    for field in descriptor["fields"]:
        low = field["bit"] % 32
        bits = f"{low + field['width'] - 1}:{low}" if field["width"] > 1 else f"{low}"
        kind = " (signed)" if field["signed"] else ""
        lines.append(f"| {field['word']} | {bits} | `{field['name']}`{kind} | {field['doc']} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the page, or with ``--check`` say whether it is current."""
    if "--check" in sys.argv[1:]:
        return 0 if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text() else 1
    TARGET.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
