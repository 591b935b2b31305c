"""The reader of named cases: what it returns and how it refuses."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from haloconv.planner.requantization import ROUNDINGS
from haloconv.sim.cases import load_cases

FOLDER = Path(__file__).parents[1] / "data" / "cases"
ENTRY = {
    "name": "one",
    "in_shape": [1, 1, 1, 1],
    "out_shape": [1, 1, 1, 1],
    "kernel": [1, 1],
    "stride": [1, 1],
    "dilation": [1, 1],
    "pads_tblr": [0, 0, 0, 0],
    "groups": 1,
    "zp_in": 0,
    "zp_out": 1,
    "clamp": [-5, 5],
}
ARRAYS = {
    "x": np.full((1, 1, 1, 1), 3, np.int8),
    "w": np.full((1, 1, 1, 1), 2, np.int8),
    "acc": np.full((1, 1, 1, 1), 6, np.int32),
    "multiplier": np.array([2**30], np.int32),
    "shift": np.array([0], np.int32),
    "scale": np.array([0.5], np.float32),
    "y_double": np.full((1, 1, 1, 1), 4, np.int8),
}


def write(folder, entry=ENTRY, arrays=ARRAYS):
    (folder / "index.json").write_text(json.dumps([entry]))
    np.savez(folder / "one.npz", **arrays)
    return folder


def test_given_folder():
    cases = load_cases(FOLDER)
    assert len(cases) == 31
    first = cases[0]
    assert first.name == "unit_3x3" and first.why == "the seed's worked shape"
    assert first.layer.input_shape == (1, 4, 4, 2) == first.x.shape
    assert first.layer.weight_shape == first.w.shape
    assert (first.zero_point, first.clamp, first.layer.in_zero_point) == (29, (-128, 127), -92)
    assert set(first.expected) == set(ROUNDINGS)
    assert all(case.requantization(mode).rounding == mode for case in cases for mode in ROUNDINGS)
    by_name = {case.name: case for case in cases}
    bare = by_name["no_bias_relu6"]
    assert bare.bias is None and not bare.layer.has_bias
    assert by_name["unit_3x3"].layer.has_bias


def test_own_case(tmp_path):
    (case,) = load_cases(write(tmp_path))
    assert case.why == "" and case.bias is None and case.zw.tolist() == [0]
    assert set(case.expected) == {"double"}
    how = case.requantization()
    assert (how.zero_point, how.clamp, how.rounding) == (1, (-5, 5), "double")
    with pytest.raises(ValueError, match="rounding must be one of"):
        case.requantization("odd")


@pytest.mark.parametrize(
    ("entry", "arrays", "message"),
    [
        ({"name": "../x"}, {}, "name of case 0 must be a file name, not '../x'"),
        ({"kernel": [2, 2]}, {}, "case one cannot be read: the dilated kernel must fit"),
        ({"in_shape": [1]}, {}, "case one cannot be read"),
        ({"out_shape": [1, 2, 1, 1]}, {}, "out_shape must be (1, 1, 1, 1) by the geometry"),
        ({}, {"acc": None}, "case one must have 'acc', which is missing"),
        ({"groups": None}, {}, "groups must be an integer, not None"),
        (
            {},
            {"y_double": np.zeros((1, 2), np.int8)},
            "double of case one must have shape (1, 1, 1, 1), not (1, 2)",
        ),
    ],
)
def test_refusals(tmp_path, entry, arrays, message):
    merged = {k: v for k, v in (ARRAYS | arrays).items() if v is not None}
    write(tmp_path, ENTRY | entry, merged)
    with pytest.raises(ValueError, match=re.escape(message)):
        load_cases(tmp_path)


def test_missing_entry_and_broken_files(tmp_path):
    write(tmp_path, {k: v for k, v in ENTRY.items() if k != "stride"})
    with pytest.raises(ValueError, match="case one must have 'stride', which is missing"):
        load_cases(tmp_path)
    write(tmp_path)
    (tmp_path / "one.npz").write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(ValueError, match=re.escape("one.npz must be an archive of arrays")):
        load_cases(tmp_path)
    (tmp_path / "one.npz").unlink()
    with pytest.raises(FileNotFoundError):
        load_cases(tmp_path)
    (tmp_path / "index.json").write_text("{")
    with pytest.raises(ValueError, match="must be JSON"):
        load_cases(tmp_path)
    (tmp_path / "index.json").write_text("{}")
    with pytest.raises(ValueError, match="must hold a list of objects"):
        load_cases(tmp_path)
