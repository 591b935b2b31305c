"""Digests that name work: equal digests mean equal results."""

import ast
import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import haloconv

__all__ = ["canonical", "digest", "source_digest"]

LENGTH = 24
"""Hexadecimal digits of a digest."""


def canonical(value: Any) -> str:
    """Return JSON that is the same for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def digest(value: Any) -> str:
    """Return the digest of a value of plain JSON types."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:LENGTH]


@lru_cache
def source_digest(*modules: str) -> str:
    """Return the digest of the sources of modules and of all haloconv modules they import.

    A result that was computed by other sources has another digest, so that it is never taken for
    one of these; sources that the modules do not reach may change freely.

    Parameters
    ----------
    *modules : str
        Full names, such as "haloconv.rtl.engine".

    Raises
    ------
    ModuleNotFoundError
        For a module that haloconv does not have.
    """
    found: dict[str, str] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        path = _path(name)
        if path is None:
            raise ModuleNotFoundError(f"no module named {name!r}")
        text = path.read_text(encoding="utf-8")
        found[name] = text
        waiting += (module for module in _imports(text, str(path)) if _path(module) is not None)
    return digest(found)


def _path(name: str) -> Path | None:
    """Return the file of a haloconv module or package, without importing it."""
    _, *parts = name.split(".")
    if not parts:
        return None
    for root in haloconv.__path__:
        base = Path(root, *parts)
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file():
                return path
    return None


def _imports(text: str, path: str) -> set[str]:
    """Return the names under haloconv that a module imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text, path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.startswith("haloconv.")}
