"""The pytest plugin passes its options on and leaves a waveform of a failed simulation."""

import os
import re
import sys

import pytest

from haloconv.sim import plugin
from haloconv.sim.backend import BACKENDS

pytest_plugins = ["pytester"]

# Stands in for the layer simulation: remembers how it was called, and "simulates" by writing.
FAKE_LAYER = """
import sys, types
layer = types.ModuleType("haloconv.sim.layer")
layer.calls = []
def simulate_layer(layer_, config, **options):
    layer.calls.append(options)
    if "vcd" in options:
        options["vcd"].write_text(f"{layer_} {config} {sorted(options)} {options['backend']}")
        if config == "breaks":
            raise RuntimeError("too many cycles")
    return options
layer.simulate_layer = simulate_layer
sys.modules["haloconv.sim.layer"] = layer
"""


@pytest.fixture
def project(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeconftest(FAKE_LAYER)

    def run(code, *options):
        pytester.makepyfile(code)
        return pytester.runpytest_subprocess("-p", "haloconv.sim.plugin", *options, timeout=60)

    return run


SHOW = """
def test_options(haloconv_backend, haloconv_seed, haloconv_simulate_layer):
    assert haloconv_simulate_layer("layer", "config", inputs=1) == {
        "inputs": 1, "backend": haloconv_backend, "seed": haloconv_seed
    }
    assert haloconv_simulate_layer("layer", "config", seed=3, backend="x")["seed"] == 3
    print("got", haloconv_backend, haloconv_seed)
"""


def test_defaults(project):
    result = project(SHOW, "-s")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["haloconv: backend amaranth, seed 0", "*got amaranth 0*"])


def test_options(project):
    result = project(SHOW, "-s", "--haloconv-backend=auto", "--haloconv-seed=0x10")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["haloconv: backend auto, seed 16"])
    result.stdout.re_match_lines([r".*got (amaranth|cxxrtl) 16"])


def test_random_seed_is_shown_and_used(project):
    seeds = set()
    for _ in range(2):
        result = project(SHOW, "-s", "--haloconv-seed=random")
        result.assert_outcomes(passed=1)
        text = result.stdout.str()
        shown = re.search(r"^haloconv: backend amaranth, seed (\d+)$", text, re.MULTILINE)
        used = re.search(r"got amaranth (\d+)", text)
        assert shown is not None
        assert used is not None
        assert shown[1] == used[1]
        seeds.add(shown[1])
    assert len(seeds) == 2


@pytest.mark.parametrize("seed", ["-1", "4294967296", "red"])
def test_bad_seed(project, seed):
    result = project(SHOW, f"--haloconv-seed={seed}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*must be 'random' or an integer from 0 to *, not '{seed}'*"])


def test_bad_backend(project):
    result = project(SHOW, "--haloconv-backend=vcs")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*invalid choice: 'vcs'*"])


FAILING = """
import pytest

@pytest.mark.parametrize("size", [1, 2])
def test_layer(haloconv_simulate_layer, size):
    haloconv_simulate_layer("first", "config", inputs=0)
    haloconv_simulate_layer("second", {config!r}, inputs=size, stalls=0.5, backend="verilator")
    assert size == 1

def test_without_simulation(haloconv_simulate_layer):
    assert False
"""


def test_waveform_of_the_last_call_of_a_failed_test(project, pytester):
    result = project(FAILING.format(config="config"), "--haloconv-vcd=waves/new")
    result.assert_outcomes(passed=1, failed=2)
    (wave,) = (pytester.path / "waves" / "new").iterdir()
    assert re.fullmatch(r"test_\w+\.py_test_layer_2_\.vcd", wave.name)
    names = ["backend", "inputs", "seed", "stalls", "vcd"]
    assert wave.read_text() == f"second config {names} amaranth"
    result.stdout.fnmatch_lines(
        ["*- haloconv -*", f"waveform of the last simulation: waves/new/{wave.name}"]
    )


def test_waveform_of_a_simulation_that_raises(project, pytester):
    result = project(FAILING.format(config="breaks"), "--haloconv-vcd=waves")
    assert len(list((pytester.path / "waves").iterdir())) == 1
    result.stdout.fnmatch_lines(
        [
            "waveform of the last simulation: waves/*.vcd",
            "the simulation ended with RuntimeError: too many cycles",
        ]
    )


def test_no_waveform_without_the_option(project, pytester):
    project(FAILING.format(config="config")).assert_outcomes(passed=1, failed=2)
    assert not list(pytester.path.glob("**/*.vcd"))


def test_plugin_knows_all_backends():
    assert plugin._BACKENDS == BACKENDS


REAL = """
import numpy as np
from haloconv.planner.config import EngineConfig
from haloconv.planner.layer import ConvLayer

def test_layer(haloconv_simulate_layer, haloconv_seed):
    rng = np.random.default_rng(haloconv_seed)
    haloconv_simulate_layer(
        ConvLayer(2, 2, 1, 1, (1, 1)),
        EngineConfig(out_lanes=2, split_lanes=2, bus_bytes=4),
        inputs=rng.integers(-128, 128, (1, 2, 2, 1), dtype=np.int8),
        weights=rng.integers(-127, 128, (1, 1, 1, 1), dtype=np.int8),
        bias=np.zeros(1, dtype=np.int32),
    )
    raise AssertionError("on purpose")
"""


def test_waveform_of_a_real_layer(project, pytester):
    pytester.makeconftest("")  # the layer simulation itself, not its stand-in
    result = project(REAL, "--haloconv-vcd=waves", "--haloconv-seed=3")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*AssertionError: on purpose*"])
    (wave,) = (pytester.path / "waves").iterdir()
    text = wave.read_text()
    assert "$scope module dut" in text
    assert "read_request__valid" in text
