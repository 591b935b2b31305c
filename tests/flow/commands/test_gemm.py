"""``haloconv gemm``."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from haloconv.flow.cli import main


@pytest.mark.parametrize(("tile", "modelled"), [(1, 40), (2, 24)])
def test_worked_case(capsys: pytest.CaptureFixture[str], tile: int, modelled: int) -> None:
    arguments = ["gemm", "2", "2", "2", "--bytes", "2", "--tile", str(tile)]
    assert main([*arguments, "--json"]) == 0
    out = capsys.readouterr().out
    values = json.loads(out)
    assert out == json.dumps(values, sort_keys=True, indent=2) + "\n"
    assert (values["ideal_bytes"], values["modelled_bytes"]) == (24, modelled)
    assert (values["m"], values["k"], values["n"], values["tile"]) == (2, 2, 2, tile)
    assert values["left_out"]


def test_both_figures_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gemm", "100", "64", "30", "--bytes", "1", "--tile", "16"]) == 0
    out = capsys.readouterr().out
    # 6400 + 1920 + 3000 once; 6400 twice, 1920 seven times, 3000 once.
    assert "11,320" in out
    assert "29,240" in out
    for word in ("addresses", "eviction", "synchronisation", "double buffering"):
        assert word in out


@pytest.mark.parametrize("sizes", [("2", "2", "2"), ("1", "1", "1"), ("1000", "64", "10")])
def test_figure(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, sizes: tuple[str, str, str]
) -> None:
    path = tmp_path / "gemm.svg"
    assert main(["gemm", *sizes, "--tile", "2", "--figure", str(path)]) == 0
    capsys.readouterr()
    texts = [element.text or "" for element in ElementTree.parse(path).getroot().iter()]
    assert any("bytes at t = 2" in text for text in texts)
    assert any("left out of the model" in text for text in texts)
    assert main(["gemm", *sizes, "--tile", "2", "--figure", "-"]) == 0
    assert capsys.readouterr().out == path.read_text(encoding="utf-8")
