"""Pytest plugin: simulator, seed and waveforms of a test run by option.

    pytest --haloconv-backend auto --haloconv-seed random --haloconv-vcd waves/

A test takes the fixture ``haloconv_simulate_layer`` and calls it like
:func:`haloconv.sim.layer.simulate_layer`; backend and seed come from the options unless the call
names them. When such a test fails and ``--haloconv-vcd`` names a folder, its last simulation is run
once more in Amaranth's simulator and the waveform is written there.
"""

import random
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["LayerSimulator", "haloconv_backend", "haloconv_seed", "haloconv_simulate_layer"]

# Nothing of haloconv is imported up here: pytest loads the plugin in every project of an
# environment, and importing Amaranth takes a noticeable part of a second.
_BACKENDS = ("amaranth", "cxxrtl", "verilator", "auto")


def _seed(text: str) -> int:
    if text == "random":
        return random.SystemRandom().getrandbits(32)
    try:
        seed = int(text, 0)
    except ValueError:
        seed = -1
    if not 0 <= seed < 2**32:
        raise pytest.UsageError(
            f"--haloconv-seed must be 'random' or an integer from 0 to 2**32 - 1, not {text!r}"
        )
    return seed


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("haloconv", "simulation of haloconv engines")
    group.addoption(
        "--haloconv-backend",
        choices=_BACKENDS,
        default="amaranth",
        help="simulator: amaranth (default), cxxrtl, verilator, or auto for the compiled one "
        "where it can be built",
    )
    group.addoption(
        "--haloconv-seed",
        default="0",
        metavar="SEED",
        help="seed of random stalls and of the fixture haloconv_seed: an integer (default 0) or "
        "'random'",
    )
    group.addoption(
        "--haloconv-vcd",
        default=None,
        metavar="FOLDER",
        help="when a test fails, write the waveform of its last simulation into this folder",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Draw a random seed once; workers of pytest-xdist are given the options as they are then."""
    config.option.haloconv_seed = str(_seed(config.option.haloconv_seed))


def pytest_report_header(config: pytest.Config) -> str:
    """Name backend and seed, so that any run can be repeated."""
    option = config.option
    return f"haloconv: backend {option.haloconv_backend}, seed {option.haloconv_seed}"


class LayerSimulator:
    """Calls ``simulate_layer`` with the options of the test run and remembers the last call."""

    def __init__(self, backend: str, seed: int) -> None:
        self._defaults = {"backend": backend, "seed": seed}
        self._last: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Simulate a layer; see :func:`haloconv.sim.layer.simulate_layer`."""
        from haloconv.sim.layer import simulate_layer

        self._last = (args, {**self._defaults, **kwargs})
        return simulate_layer(*args, **self._last[1])

    def replay(self, vcd: Path) -> str | None:
        """Run the last call again with a waveform; returns what to report, None without a call."""
        from haloconv.sim.layer import simulate_layer

        if self._last is None:
            return None
        args, kwargs = self._last
        vcd.parent.mkdir(parents=True, exist_ok=True)
        try:
            simulate_layer(*args, **{**kwargs, "backend": "amaranth", "vcd": vcd})
        except Exception as error:  # often the failure itself, such as a timeout
            ending = f"\nthe simulation ended with {type(error).__name__}: {error}"
        else:
            ending = ""
        if vcd.exists():
            return f"waveform of the last simulation: {vcd}{ending}"
        return f"no waveform was written{ending}"


_SIMULATOR = pytest.StashKey[LayerSimulator]()


@pytest.fixture(scope="session")
def haloconv_backend(request: pytest.FixtureRequest) -> str:
    """Name of the simulator that runs, with ``auto`` decided."""
    from haloconv.sim.backend import choose_backend

    return choose_backend(request.config.option.haloconv_backend).name


@pytest.fixture(scope="session")
def haloconv_seed(request: pytest.FixtureRequest) -> int:
    """Seed of the test run, for numpy's and the stalls' generators."""
    return int(request.config.option.haloconv_seed)


@pytest.fixture
def haloconv_simulate_layer(
    request: pytest.FixtureRequest, haloconv_backend: str, haloconv_seed: int
) -> LayerSimulator:
    """``simulate_layer`` with the backend and the seed of the test run."""
    simulator = LayerSimulator(haloconv_backend, haloconv_seed)
    request.node.stash[_SIMULATOR] = simulator
    return simulator


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write the waveform of a failed test's last simulation."""
    report = yield
    folder = item.config.option.haloconv_vcd
    simulator = item.stash.get(_SIMULATOR, None)
    if folder and simulator is not None and report.when == "call" and report.failed:
        name = re.sub(r"[^\w.-]+", "_", item.nodeid)
        text = simulator.replay(Path(folder) / f"{name}.vcd")
        if text is not None:
            report.sections.append(("haloconv", text))
    return report
