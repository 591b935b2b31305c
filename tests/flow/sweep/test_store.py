"""The file of finished work."""

import sqlite3
from pathlib import Path

import pytest

from haloconv.flow.sweep.store import FORMAT, Row, Store, StoreError


def test_rows_come_back(tmp_path: Path) -> None:
    rows = {
        "a": Row({"area": {"luts": 7}}, None, 1.5),
        "b": Row(None, "no", 0.5),
        "c": Row(None, "died", 0, retry=True),
    }
    with Store(tmp_path / "deep" / "er") as store:
        for key, row in rows.items():
            store.put("synthesis", key, {"config": key}, row)
        assert store.get("workload", rows) == {}
    with Store(tmp_path / "deep" / "er") as store:
        assert store.get("synthesis", [*rows, "d"]) == rows
        store.put("synthesis", "b", {}, Row({}, None, 0))
        assert store.get("synthesis", ["b"]) == {"b": Row({}, None, 0)}


def test_rows_are_on_disk_before_the_file_is_closed(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.put("workload", "a", {"x": 1}, Row({"cycles": 3}, None, 0))
        with sqlite3.connect(f"file:{store.path}?mode=ro", uri=True) as other:
            found = other.execute("SELECT key, input, status, output FROM workload").fetchall()
        assert found == [("a", '{"x":1}', "ok", '{"cycles":3}')]


def test_one_owner(tmp_path: Path) -> None:
    with Store(tmp_path), pytest.raises(StoreError, match="another sweep runs in"):
        Store(tmp_path)
    Store(tmp_path).close()


def test_foreign_files(tmp_path: Path) -> None:
    (tmp_path / "sweep.sqlite").write_text("not a database, but long enough to look at " * 30)
    with pytest.raises(StoreError, match="is no file of a sweep"):
        Store(tmp_path)
    (tmp_path / "sweep.sqlite").unlink()
    with sqlite3.connect(tmp_path / "sweep.sqlite") as data:
        data.execute(f"PRAGMA user_version = {FORMAT + 1}")
    with pytest.raises(StoreError, match=f"format {FORMAT + 1}, but this haloconv writes {FORMAT}"):
        Store(tmp_path)


def test_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(OSError):
        Store(tmp_path / "x")
