"""Digests of sources: what they follow and what they leave out."""

from pathlib import Path

import pytest

from haloconv.flow.sweep import digest as module
from haloconv.flow.sweep.digest import digest, source_digest

FILES = {
    "rtl/engine.py": "from haloconv.planner.config import EngineConfig\n",
    "rtl/other.py": "x = 1\n",
    "planner/config.py": "def f():\n    import haloconv.planner.lazy\n",
    "planner/lazy.py": "from haloconv.planner import deep\n",
    "planner/__init__.py": "",
    "planner/deep.py": "import numpy\n",
}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(module.haloconv, "__path__", [str(tmp_path / "none"), str(tmp_path)])
    return tmp_path


def fresh() -> str:
    source_digest.cache_clear()
    try:
        return source_digest("haloconv.rtl.engine")
    finally:
        source_digest.cache_clear()


@pytest.mark.parametrize(
    ("name", "follows"),
    [
        ("rtl/engine.py", True),
        ("planner/config.py", True),
        ("planner/lazy.py", True),
        ("planner/__init__.py", True),
        ("planner/deep.py", True),
        ("rtl/other.py", False),
    ],
)
def test_changes_that_a_module_reaches(tree: Path, name: str, follows: bool) -> None:
    before = fresh()
    assert fresh() == before
    path = tree / name
    path.write_text(path.read_text() + "# changed\n")
    assert (fresh() != before) is follows


def test_missing_module() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"haloconv\.rtl\.nothing"):
        source_digest("haloconv.rtl.nothing")


def test_the_generator_reaches_what_sizes_it() -> None:
    real = {name for name in module._imports(module._path("haloconv.rtl.engine").read_text(), "")}  # type: ignore[union-attr]
    assert "haloconv.planner.config" in real


def test_values() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert digest([1, 2]) != digest([2, 1])
    assert len(digest(None)) == 24
