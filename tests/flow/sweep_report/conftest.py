"""The synthetic sweep of tests/support/sweep_builder.py, made once for each process."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from haloconv.flow.sweep_report.points import Sweep, read_sweep

BUILDER = Path(__file__).parents[2] / "support" / "sweep_builder.py"


@pytest.fixture(scope="session")
def builder() -> Any:
    """The module that makes sweeps."""
    spec = importlib.util.spec_from_file_location("sweep_builder", BUILDER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def content(builder: Any) -> dict[str, Any]:
    """What ``sweep.json`` holds; tests that change it take a copy."""
    return builder.sweep()


@pytest.fixture(scope="session")
def folder(content: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as ``haloconv sweep -o`` leaves it."""
    path = tmp_path_factory.mktemp("sweep")
    (path / "sweep.json").write_text(json.dumps(content, sort_keys=True), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def sweep(folder: Path) -> Sweep:
    """The sweep as it is read."""
    return read_sweep(folder)
