"""What a sweep knows already: an SQLite file with a row for each finished piece of work."""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from haloconv.flow.sweep.digest import canonical
from haloconv.flow.sweep.jobs import KINDS

__all__ = ["Row", "Store", "StoreError"]

FORMAT = 1


class StoreError(ValueError):
    """A sweep.sqlite that cannot be used, and why."""


@dataclass(frozen=True)
class Row:
    """A finished piece of work; ``retry`` where its failure says nothing about the point."""

    output: Mapping[str, Any] | None
    error: str | None
    seconds: float
    retry: bool = False


class Store:
    """The file ``sweep.sqlite`` of a folder, owned by one process at a time.

    Every row is committed by itself and reaches the disk before :meth:`put` returns; a process
    killed at any moment leaves the rows that it had written.

    Raises
    ------
    StoreError
        If another sweep runs in the folder, or the file is of another format.
    OSError
        If the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "sweep.sqlite"
        # The system ends this lock with its process, however that ends.
        self._lock = sqlite3.connect(folder / "sweep.lock", timeout=0, isolation_level=None)
        try:
            self._lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            self._lock.close()
            if "locked" in str(error):
                raise StoreError(f"another sweep runs in {folder}; wait for it") from None
            raise OSError(f"{folder} cannot be written: {error}") from None
        try:
            self._data = self._open()
        except BaseException:
            self._lock.close()
            raise

    def _open(self) -> sqlite3.Connection:
        data = sqlite3.connect(self.path, isolation_level=None)
        try:
            data.execute("PRAGMA journal_mode = WAL")
            data.execute("PRAGMA synchronous = FULL")
            (found,) = data.execute("PRAGMA user_version").fetchone()
            if found not in (0, FORMAT):
                raise StoreError(
                    f"{self.path} has format {found}, but this haloconv writes {FORMAT}; "
                    "use another folder"
                )
            for kind in KINDS:
                data.execute(
                    f"CREATE TABLE IF NOT EXISTS {kind} (key TEXT PRIMARY KEY, "
                    "input TEXT NOT NULL, status TEXT NOT NULL, error TEXT, output TEXT, "
                    "seconds REAL NOT NULL, retry INTEGER NOT NULL) WITHOUT ROWID"
                )
            data.execute(f"PRAGMA user_version = {FORMAT}")
        except sqlite3.DatabaseError as error:
            data.close()
            raise StoreError(f"{self.path} is no file of a sweep: {error}") from None
        except StoreError:
            data.close()
            raise
        return data

    def __enter__(self) -> "Store":
        """Return the store."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file and let other sweeps in."""
        self._data.close()
        self._lock.close()

    def put(self, kind: str, key: str, asked: Mapping[str, Any], row: Row) -> None:
        """Write a row, in place of one of the same key."""
        self._data.execute(
            f"INSERT OR REPLACE INTO {kind} VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                key,
                canonical(asked),
                "ok" if row.error is None else "failed",
                row.error,
                None if row.output is None else canonical(row.output),
                row.seconds,
                int(row.retry),
            ),
        )

    def get(self, kind: str, keys: Iterable[str]) -> dict[str, Row]:
        """Return the rows that are known, by key."""
        found: dict[str, Row] = {}
        for key in keys:
            query = f"SELECT output, error, seconds, retry FROM {kind} WHERE key = ?"
            with closing(self._data.execute(query, (key,))) as cursor:
                row = cursor.fetchone()
            if row is not None:
                output = None if row[0] is None else json.loads(row[0])
                found[key] = Row(output, row[1], row[2], bool(row[3]))
        return found
