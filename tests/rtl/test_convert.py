# amaranth: UnusedElaboratable=no
"""Text of designs, and the garbage collector while it is made."""

import gc
import re

import pytest
from amaranth.back import rtlil  # pyright: ignore[reportAttributeAccessIssue]  # no stubs
from amaranth.hdl import Module, Signal, unsigned

from haloconv.rtl.convert import garbage_kept, to_rtlil, to_verilog
from haloconv.rtl.stream_register import StreamRegister


def test_rtlil_is_that_of_amaranth():
    wanted = rtlil.convert(StreamRegister(unsigned(8)), name="held", emit_src=False)
    assert to_rtlil(StreamRegister(unsigned(8)), name="held") == wanted
    assert "attribute \\src" not in wanted


def test_ports_of_a_bare_module():
    m = Module()
    a, b = Signal(3, name="a"), Signal(3, name="b")
    m.d.comb += b.eq(~a)
    text = to_rtlil(m, ports=[a, b])
    assert re.search(r"wire width 3 input 0 +\\a\n", text)
    assert re.search(r"wire width 3 output 1 +\\b\n", text)


def test_verilog_holds_the_module_and_no_attributes_of_amaranth():
    text = to_verilog(StreamRegister(unsigned(8)), name="held")
    assert "module held(" in text
    assert "generator" not in text and "src =" not in text


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("fault", [True, False])
def test_the_collector_rests_and_is_as_before_afterwards(enabled, fault):
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(ZeroDivisionError) if fault else garbage_kept():  # noqa: SIM117
            with garbage_kept():
                assert not gc.isenabled()
                if fault:
                    raise ZeroDivisionError
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
