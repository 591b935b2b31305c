"""Writing to files and to stdout."""

from pathlib import Path

import pytest

from haloconv.flow.files import write_text


def test_folders_are_made_and_line_ends_kept(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c.txt"
    write_text(path, "one\ntwo µ\n")
    assert path.read_bytes() == "one\ntwo µ\n".encode()


def test_dash_is_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    write_text(Path("-"), "text")
    assert capsys.readouterr().out == "text"


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("", encoding="utf-8")
    with pytest.raises(OSError):
        write_text(tmp_path / "a" / "b.txt", "text")
