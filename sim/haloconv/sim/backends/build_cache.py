"""Compiled simulators kept between runs, keyed by everything that went into them.

Layout of the cache folder: ``<key>.key`` holds the SHA-256 of a file, and that file lies beside it
under its own digest, ``<digest>.so``. A file is written under another name, then renamed, and the
key last, so a reader sees either nothing or a whole entry, whoever else is building. A file that
does not match its name is built anew.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO

import platformdirs

from haloconv.sim.backends.job import BuildError

try:
    import fcntl
except ImportError:  # not on Windows; there two builders may do the same work twice
    fcntl = None

__all__ = ["cache_folder", "cached_file", "compiler", "compiler_version", "digest", "run_tool"]

ENTRIES = 256
"""Files that the cache keeps; the least recently used go first."""
TIMEOUT_SECONDS = 900
"""Longest run of a tool; a 64-lane engine takes well under a minute."""
LOG_LINES = 30
"""Lines of a failed tool's log that the error shows."""


def cache_folder() -> Path:
    """Return the cache folder: ``HALOCONV_CACHE_DIR``, else the user's cache of this system."""
    chosen = os.environ.get("HALOCONV_CACHE_DIR")
    root = Path(chosen) if chosen else platformdirs.user_cache_path("haloconv", appauthor=False)
    return root / "simulators"


@cache
def compiler() -> str | None:
    """Return the path of the C++ compiler: ``CXX`` where set, else c++, g++ or clang++."""
    chosen = os.environ.get("CXX")
    for name in [chosen] if chosen else ["c++", "g++", "clang++"]:
        path = shutil.which(name)
        if path is not None:
            return path
    return None


@cache
def compiler_version() -> str:
    """Return the first line of the compiler's version, or an empty string without one."""
    path = compiler()
    if path is None:
        return ""
    output = subprocess.run(
        [path, "--version"], capture_output=True, text=True, check=False, timeout=60
    ).stdout
    return output.partition("\n")[0]


def digest(*parts: str | bytes) -> str:
    """Return the SHA-256 of texts, with their lengths, so that no two lists collide."""
    sha = hashlib.sha256()
    for part in (*parts, platform.system(), platform.machine()):
        content = part.encode() if isinstance(part, str) else part
        sha.update(len(content).to_bytes(8, "little"))
        sha.update(content)
    return sha.hexdigest()


def run_tool(
    what: str, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> None:
    """Run a tool in a folder, with additions to the environment.

    Raises
    ------
    BuildError
        If it fails or takes too long; with the tail of its output, warnings included.
    """
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"{what} did not end within {TIMEOUT_SECONDS} seconds") from error
    except OSError as error:
        raise BuildError(f"{what} could not be started: {error}") from error
    if done.returncode:
        tail = "\n".join(done.stdout.rstrip().splitlines()[-LOG_LINES:])
        raise BuildError(f"{what} failed with code {done.returncode}; its log ends:\n{tail}")


def cached_file(key: str, suffix: str, build: Callable[[Path], Path]) -> Path:
    """Return the file of a key, building it where it is missing or damaged.

    Parameters
    ----------
    key : str
        From :func:`digest`.
    suffix : str
        Of the file's name, with its dot.
    build : callable
        Is given an empty folder and returns the path of the file it made there.

    Raises
    ------
    BuildError
        From ``build``.
    """
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    found = _lookup(folder, key, suffix)
    if found is not None:
        return found
    with _lock(folder, key, suffix):
        # Somebody else may have built it while this process waited for the lock.
        found = _lookup(folder, key, suffix)
        if found is not None:
            return found
        with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as work:
            made = build(Path(work))
            target = folder / f"{_file_digest(made)}{suffix}"
            os.replace(made, target)
            note = Path(work) / "key"
            note.write_text(target.stem, encoding="ascii")
            os.replace(note, folder / f"{key}.key")
        _prune(folder, target)
        return target


def _lookup(folder: Path, key: str, suffix: str) -> Path | None:
    note = folder / f"{key}.key"
    try:
        stem = note.read_text(encoding="ascii")
        path = folder / f"{stem}{suffix}"
        if _file_digest(path) != stem:
            return None
        os.utime(path)
        os.utime(note)
    except (OSError, ValueError):
        return None
    return path


def _file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextmanager
def _lock(folder: Path, key: str, suffix: str) -> Iterator[None]:
    if fcntl is None:
        yield
        return
    # One lock file for each of 64 groups of keys, never removed: removing would race. Libraries
    # and objects have their own, as building a library may build objects.
    name = f"{int(key[:2], 16) % 64:02d}{suffix}.lock"
    with open(folder / name, "w", encoding="ascii") as file:
        _acquire(file)
        yield  # closing the file gives the lock back, also when the process dies


def _acquire(file: IO[str]) -> None:
    assert fcntl is not None
    with suppress(OSError):  # file systems without locks: two builders do the work twice
        fcntl.flock(file, fcntl.LOCK_EX)


def _prune(folder: Path, keep: Path) -> None:
    """Remove the least recently used entries beyond the limit."""
    for pattern in ("*.key", "*.so", "*.o"):
        aged: list[tuple[float, Path]] = []
        for path in folder.glob(pattern):
            with suppress(OSError):
                aged.append((path.stat().st_mtime, path))
        for _, path in sorted(aged, reverse=True)[ENTRIES:]:
            if path != keep:
                with suppress(OSError):
                    path.unlink()
