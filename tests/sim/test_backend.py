import pytest

from haloconv.sim.backend import BACKENDS, _descriptor_cycles, choose_backend


def test_auto_says_why() -> None:
    choice = choose_backend("auto")
    assert choice.name in BACKENDS and choice.name != "auto"
    assert choice.reason.startswith(choice.name + ":")


def test_waveforms_need_amaranth() -> None:
    assert choose_backend("auto", vcd=True).name == "amaranth"
    with pytest.raises(ValueError, match="amaranth backend"):
        choose_backend("cxxrtl", vcd=True)


def test_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="icarus"):
        choose_backend("icarus")


def test_cycles_of_descriptors_add_up() -> None:
    # Seen finished in cycles 110, 150 and 400 of a program of 395 cycles.
    assert _descriptor_cycles((110, 150, 400), 395) == (105, 40, 250)
    assert _descriptor_cycles((77,), 70) == (70,)
    assert _descriptor_cycles((), 0) == ()
