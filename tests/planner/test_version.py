"""The version is one, everywhere."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from haloconv.planner.version import __version__

ROOT = Path(__file__).parents[2]


def test_is_a_semantic_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)


def test_packaging_reads_it_from_this_module() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    path = ROOT / project["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{__version__}"' in path.read_text(encoding="utf-8")


def test_installed_metadata_agrees() -> None:
    try:
        installed = metadata.version("haloconv")
    except metadata.PackageNotFoundError:
        pytest.skip("haloconv is run from the source tree, not installed")
    assert installed == __version__


def test_package_re_exports_it() -> None:
    import haloconv.planner

    assert haloconv.planner.__version__ == __version__
