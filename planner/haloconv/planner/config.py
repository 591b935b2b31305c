"""The one description that sizes planner, RTL, simulation and reports."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

from haloconv.planner.errors import PlanError
from haloconv.planner.requantization import ROUNDINGS
from haloconv.planner.validate import check_bool, check_int

if TYPE_CHECKING:
    from haloconv.planner.network import Network

__all__ = ["UNITS", "EngineConfig"]

UNITS = ("elementwise", "max_pool")
"""Optional units: sums of table look-ups (ADD, SUB, requantise), and maximum pooling."""


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Lanes, ports, buffers and options of an engine.

    Parameters
    ----------
    out_lanes : int
        Pm, output channels computed side by side, 1..64.
    split_lanes : int
        Pr, input channels (channel mode) or neighbouring output pixels (row mode) side by side,
        1..64.
    bus_bytes : int
        Width of the memory read port and of the write port in bytes, a power of two, 1..32.
    input_bytes : int
        Capacity of one half of the halo buffer in bytes; two halves are built.
    weight_bytes : int
        Capacity of one half of the weight buffer in bytes; two halves are built.
    psum_bytes : int
        Capacity of the int32 accumulator bank in bytes; 0 builds none, and layers whose input
        channels must be split are then refused.
    bias_bytes : int
        Capacity for int32 biases of one tile in bytes, 4 for each output channel of a tile. The
        scale table grows with it (outside the budget, see :attr:`allowance_bytes`).
    requant_lanes : int or None
        Q, results requantised a cycle, at most ``out_lanes``; None takes ``out_lanes``, at most 8.
    roundings : tuple of str or None
        Rounding modes that are built in beside raw int32, of
        :data:`~haloconv.planner.requantization.ROUNDINGS`. None leaves it open: hardware gets
        "double", a simulation the mode that its layer asks for.
    weight_zero_points : bool
        Build the subtraction of weight zero points (ONNX layers; int8 TFLite needs none).
    units : tuple of str or None
        Optional units that are built in, of :data:`UNITS`. None leaves it open: hardware gets none,
        a simulated network those that its model needs.
    address_bits : int
        Width of memory addresses, 16..32; bus adapters place the engine in wider maps.
    tiles_ahead : int
        Tiles that are worked out ahead of the blocks that take them, 0..16. 0 builds no queues: a
        tile is worked out once all have taken the one before. That costs some 50 cycles a tile, and
        saves much where memories cannot be small (iCE40).
    serial_requantizers : bool
        Build requantisers without multipliers, which take 32 cycles for a result. Not with the
        rounding "fp32" or the unit "elementwise".
    counters : bool
        Count for the host what cycles are spent on and what bytes move. Without, the registers of
        all counters but that of cycles read 0.

    Raises
    ------
    TypeError, ValueError
        With the parameter at fault.
    """

    out_lanes: int = 8
    split_lanes: int = 8
    bus_bytes: int = 8
    input_bytes: int = 4096
    weight_bytes: int = 8192
    psum_bytes: int = 7936
    bias_bytes: int = 256
    requant_lanes: int | None = None
    roundings: tuple[str, ...] | None = None
    weight_zero_points: bool = True
    units: tuple[str, ...] | None = None
    address_bits: int = 32
    tiles_ahead: int = 4
    serial_requantizers: bool = False
    counters: bool = True

    def __post_init__(self) -> None:
        def put(field: str, value: object) -> None:
            object.__setattr__(self, field, value)

        put("out_lanes", check_int("out_lanes", self.out_lanes, 1, 64))
        put("split_lanes", check_int("split_lanes", self.split_lanes, 1, 64))
        bus = check_int("bus_bytes", self.bus_bytes, 1, 32)
        if bus & (bus - 1):
            raise ValueError(f"bus_bytes must be a power of two, not {bus}")
        put("bus_bytes", bus)
        if self.requant_lanes is not None:
            put("requant_lanes", check_int("requant_lanes", self.requant_lanes, 1, self.out_lanes))
        row = self.split_lanes * self.word_bytes
        put("input_bytes", check_int("input_bytes", self.input_bytes, row, 1 << 24))
        lanes = self.out_lanes * self.split_lanes
        put("weight_bytes", check_int("weight_bytes", self.weight_bytes, lanes, 1 << 24))
        put("psum_bytes", check_int("psum_bytes", self.psum_bytes, 0, 1 << 24))
        put("bias_bytes", check_int("bias_bytes", self.bias_bytes, 4 * self.out_lanes, 1 << 18))
        for field, known in (("roundings", ROUNDINGS), ("units", UNITS)):
            names = getattr(self, field)
            if names is None:
                continue
            if isinstance(names, str) or not isinstance(names, tuple | list):
                raise TypeError(f"{field} must be a tuple of names, not {names!r}")
            given = cast("Sequence[object]", names)
            for name in given:
                if name not in known:
                    raise ValueError(f"{field} must be of {', '.join(known)}, not {name!r}")
            put(field, tuple(name for name in known if name in given))
        put("weight_zero_points", check_bool("weight_zero_points", self.weight_zero_points))
        put("address_bits", check_int("address_bits", self.address_bits, 16, 32))
        put("tiles_ahead", check_int("tiles_ahead", self.tiles_ahead, 0, 16))
        serial = check_bool("serial_requantizers", self.serial_requantizers)
        put("serial_requantizers", serial)
        for name in ("fp32", "elementwise"):
            if serial and name in (*self.built_roundings, *self.built_units):
                raise ValueError(
                    f"serial_requantizers must be False where {name!r} is built, not True"
                )
        put("counters", check_bool("counters", self.counters))

    @property
    def lanes(self) -> int:
        """P = Pm * Pr, multiply-accumulates a cycle."""
        return self.out_lanes * self.split_lanes

    @property
    def built_roundings(self) -> tuple[str, ...]:
        """The rounding modes in the hardware; "double" where ``roundings`` was left open."""
        return ("double",) if self.roundings is None else self.roundings

    @property
    def built_units(self) -> tuple[str, ...]:
        """The optional units in the hardware; none where ``units`` was left open."""
        return () if self.units is None else self.units

    @property
    def results_per_cycle(self) -> int:
        """Q, the number of requantisers."""
        return min(self.out_lanes, 8) if self.requant_lanes is None else self.requant_lanes

    @property
    def word_bytes(self) -> int:
        """Channels in one word of a halo buffer bank.

        A word feeds Pr split lanes in channel mode and Pm lanes in depthwise mode, and holds a
        whole number of Pr-channel steps.
        """
        return self.split_lanes * -(-self.out_lanes // self.split_lanes)

    @property
    def word_steps(self) -> int:
        """Channel-mode steps in one halo buffer word, word_bytes / Pr."""
        return self.word_bytes // self.split_lanes

    @property
    def input_words(self) -> int:
        """Words of one half of one halo buffer bank; there are Pr banks."""
        return self.input_bytes // (self.split_lanes * self.word_bytes)

    @property
    def weight_words(self) -> int:
        """Words of one half of the weight buffer, each Pm * Pr weights."""
        return self.weight_bytes // self.lanes

    @property
    def psum_words(self) -> int:
        """Words of the accumulator bank, each Q int32 sums."""
        return self.psum_bytes // (4 * self.results_per_cycle)

    @property
    def group_steps(self) -> int:
        """Drain steps of Pm output channels, ceil(Pm / Q)."""
        return -(-self.out_lanes // self.results_per_cycle)

    @property
    def channel_groups(self) -> int:
        """Most groups of Pm output channels in one tile, as the bias and scale tables allow."""
        return self.bias_bytes // (4 * self.out_lanes)

    @property
    def budget_bytes(self) -> int:
        """Bytes counted against a storage budget: both halves, the bank and the biases."""
        return 2 * (self.input_bytes + self.weight_bytes) + self.psum_bytes + self.bias_bytes

    @property
    def allowance_bytes(self) -> int:
        """Bytes outside the budget: second bias half, scale tables and weight zero points.

        Ten bytes a channel and half: int32 multiplier and shift byte twice; bias once more.
        """
        channels = self.channel_groups * self.out_lanes
        return channels * (4 + 2 * 5 + (1 if self.weight_zero_points else 0))

    def to_dict(self) -> dict[str, object]:
        """Return the parameters as plain JSON types."""
        values = asdict(self)
        for name in ("roundings", "units"):
            if values[name] is not None:
                values[name] = list(values[name])
        return values

    @classmethod
    def from_dict(cls, values: dict[str, object]) -> "EngineConfig":
        """Return the configuration that :meth:`to_dict` described.

        Raises
        ------
        ValueError
            For a name that is no parameter.
        """
        known = {field.name for field in fields(cls)}
        for name in values:
            if name not in known:
                raise ValueError(f"{name!r} is no engine parameter; known are {sorted(known)}")
        arguments = dict(values)
        for name in ("roundings", "units"):
            if isinstance(arguments.get(name), list):
                arguments[name] = tuple(arguments[name])  # type: ignore[arg-type]
        return cls(**arguments)  # type: ignore[arg-type]

    @classmethod
    def for_network(
        cls,
        model: "str | PathLike[str] | Network",
        budget_bytes: int = 65536,
        out_lanes: int = 8,
        split_lanes: int = 8,
        *,
        target: str | None = None,
        **options: Any,
    ) -> "EngineConfig":
        """Return an engine for a network: buffers that suit its layers, and what it needs built.

        Parameters
        ----------
        model : path or Network
            A .tflite or .onnx file.
        budget_bytes : int
            Most bytes of :attr:`budget_bytes`.
        out_lanes, split_lanes : int
        target : str or None
            Whose rounding a file is read for; see
            :func:`~haloconv.planner.network_file.read_network`.
        **options
            Other parameters of the configuration, buffers aside, and those of
            :func:`~haloconv.planner.sizing.size_engine`. Rounding modes, units and weight zero
            points that are not among them are built as the network needs them.

        Raises
        ------
        UnsupportedModel
            If the model holds something that haloconv does not run.
        PlanError
            If the budget is too small, with the smallest that works, or nothing needs buffers.
        TypeError, ValueError
            For parameters that the configuration refuses.
        """
        # All of these import this module.
        from haloconv.planner.network import ConvNode, Network
        from haloconv.planner.network_program import needed_options
        from haloconv.planner.sizing import size_engine

        if not isinstance(model, Network):
            from haloconv.planner.network_file import read_network

            model = read_network(model, target=target)
        convolutions = [node for node in model.nodes if isinstance(node, ConvNode)]
        roundings, units = needed_options(model)
        needed: dict[str, Any] = {
            "roundings": roundings,
            "units": units,
            "weight_zero_points": any(
                node.weight_zero_points is not None and bool(node.weight_zero_points.any())
                for node in convolutions
            ),
        }
        if not convolutions:
            raise PlanError(
                f"{model.name} has no layer that uses the buffers of an engine, so there is "
                "nothing to size; use EngineConfig()"
            )
        return size_engine(
            [node.layer for node in convolutions],
            budget_bytes,
            out_lanes=out_lanes,
            split_lanes=split_lanes,
            **(needed | options),
        )

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that name this configuration in generated files."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]
