"""Progress never mixes with results."""

import pytest

from haloconv.flow.progress import progress


def test_nothing_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as step:
        step("planning")
        step("planning [red]x[/red]", 1, 2)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == ""


def test_text_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with progress() as step:
        step("planning [red]x[/red]", 1, 2)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "planning [red]x[/red]" in captured.err


def test_errors_pass_through() -> None:
    with pytest.raises(ValueError, match="inside"), progress() as step:
        step("failing")
        raise ValueError("inside")
