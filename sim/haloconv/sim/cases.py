"""Named test cases: a folder with an index.json and one .npz of arrays for each case."""

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from haloconv.planner.layer import ConvLayer
from haloconv.planner.requantization import ROUNDINGS, Requantization

__all__ = ["Case", "load_cases"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Case:
    """One convolution with its arrays and its expected results.

    Parameters
    ----------
    name, why : str
        What the case is called and which fault it catches.
    layer : ConvLayer
    x : int8 array, shape (1, H, W, C)
    w : int8 array, shape (M, Rh, Rw, C / groups)
    bias : int32 array, shape (M,), or None
        None where the file has no ``bias`` or only zeros; ``layer.has_bias`` says the same.
    zw : int32 array, shape (M,)
        Weight zero points.
    acc : int32 array, shape (1, OH, OW, M)
        Expected sums.
    multiplier, shift : int32 arrays, shape (M,)
        Fixed-point scale multiplier * 2**(shift - 31).
    scale : float32 array, shape (M,)
        The same scale for the rounding mode "fp32".
    zero_point : int
        Output code of the real value zero.
    clamp : (int, int)
        Lowest and highest output code.
    expected : mapping of str to int8 array, shape (1, OH, OW, M)
        Expected output for each rounding mode that the file holds.
    """

    name: str
    why: str
    layer: ConvLayer
    x: Array
    w: Array
    bias: Array | None
    zw: Array
    acc: Array
    multiplier: Array
    shift: Array
    scale: Array
    zero_point: int
    clamp: tuple[int, int]
    expected: Mapping[str, Array]

    def requantization(self, rounding: str = "double") -> Requantization:
        """Return the parameters that turn ``acc`` into ``expected[rounding]``.

        Raises
        ------
        ValueError
            If ``rounding`` is no rounding mode.
        """
        if rounding == "fp32":
            return Requantization(
                scale=self.scale,
                zero_point=self.zero_point,
                clamp=self.clamp,
                rounding=rounding,
            )
        return Requantization(
            multiplier=self.multiplier,
            shift=self.shift,
            zero_point=self.zero_point,
            clamp=self.clamp,
            rounding=rounding,
        )


def load_cases(folder: str | Path) -> list[Case]:
    """Return the cases that ``folder`` holds, in the order of its index.json.

    Each entry of index.json gives name, why, in_shape, out_shape, kernel, stride, dilation,
    pads_tblr, groups, zp_in, zp_out and clamp; NAME.npz holds the arrays of :class:`Case`, with
    the expected outputs as ``y_<rounding>``. ``why``, ``bias``, ``zw`` and the ``y_`` arrays may be
    absent.

    Raises
    ------
    FileNotFoundError
        If index.json or an .npz is missing.
    ValueError
        If an entry or an array is missing or impossible, with the case named.
    """
    folder = Path(folder)
    path = folder / "index.json"
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} must be JSON, but: {error}") from None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{path} must hold a list of objects, one for each case")
    return [_load(folder, position, entry) for position, entry in enumerate(entries)]


def _load(folder: Path, position: int, entry: dict[str, Any]) -> Case:
    name = entry.get("name")
    if not isinstance(name, str) or not name or Path(name).name != name:
        raise ValueError(f"name of case {position} must be a file name, not {name!r}")
    try:
        # Opened here because numpy leaves the file open when the archive is broken.
        with (folder / f"{name}.npz").open("rb") as file:
            arrays = dict(np.load(file, allow_pickle=False))
    except (zipfile.BadZipFile, EOFError, ValueError) as error:
        raise ValueError(f"{name}.npz must be an archive of arrays, but: {error}") from None
    try:
        bias = arrays.get("bias")
        if bias is not None and not np.any(bias):
            bias = None
        layer = ConvLayer(
            in_height=entry["in_shape"][1],
            in_width=entry["in_shape"][2],
            in_channels=entry["in_shape"][3],
            out_channels=entry["out_shape"][3],
            kernel=entry["kernel"],
            stride=entry["stride"],
            dilation=entry["dilation"],
            pads=entry["pads_tblr"],
            groups=entry["groups"],
            in_zero_point=entry["zp_in"],
            has_bias=bias is not None,
            name=name,
        )
        if tuple(entry["out_shape"]) != layer.output_shape:
            raise ValueError(
                f"out_shape must be {layer.output_shape} by the geometry, not {entry['out_shape']}"
            )
        case = Case(
            name=name,
            why=str(entry.get("why", "")),
            layer=layer,
            x=arrays["x"],
            w=arrays["w"],
            bias=bias,
            zw=arrays.get("zw", np.zeros(layer.out_channels, np.int32)),
            acc=arrays["acc"],
            multiplier=arrays["multiplier"],
            shift=arrays["shift"],
            scale=arrays["scale"],
            zero_point=entry["zp_out"],
            clamp=(entry["clamp"][0], entry["clamp"][1]),
            expected={mode: arrays[f"y_{mode}"] for mode in ROUNDINGS if f"y_{mode}" in arrays},
        )
    except KeyError as error:
        raise ValueError(f"case {name} must have {error}, which is missing") from None
    except (IndexError, TypeError, ValueError) as error:
        raise ValueError(f"case {name} cannot be read: {error}") from None
    for label, found in (("acc", case.acc), *case.expected.items()):
        if found.shape != layer.output_shape:
            raise ValueError(
                f"{label} of case {name} must have shape {layer.output_shape}, not {found.shape}"
            )
    return case
