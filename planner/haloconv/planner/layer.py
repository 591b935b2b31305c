"""One convolution layer: its geometry and the zero point of its input."""

from dataclasses import dataclass

from haloconv.planner.validate import check_bool, check_int, check_ints

__all__ = ["MAX_CHANNELS", "MAX_EXTENT", "MAX_KERNEL", "ConvLayer"]

# Field widths of the descriptor (descriptor.py); larger layers are refused, never truncated.
MAX_EXTENT = 0x7FFF
"""Largest tensor height or width, and largest padded height or width."""
MAX_CHANNELS = 0xFFFF
"""Largest number of input or output channels."""
MAX_KERNEL = 0xFF
"""Largest number of kernel rows or columns, largest stride and largest dilation."""


@dataclass(frozen=True)
class ConvLayer:
    """An int8 convolution on NHWC tensors, batch 1.

    Parameters
    ----------
    in_height, in_width, in_channels : int
        Input tensor H, W, C.
    out_channels : int
        M. For a depthwise layer a multiple of C.
    kernel : (int, int)
        Rows and columns of the kernel, Rh and Rw.
    stride, dilation : (int, int)
        Vertical and horizontal step of the window and of its taps.
    pads : (int, int, int, int)
        Top, bottom, left, right; each may exceed the kernel.
    groups : int
        1 is dense, ``in_channels`` is depthwise, anything between is grouped.
    in_zero_point : int
        Code of the real value zero in the input, -128..127. Padded positions carry it.
    has_bias : bool
        Without a bias nothing is fetched for it and the sums start at zero.
    name : str
        Shown in reports.

    Raises
    ------
    TypeError, ValueError
        For impossible geometry, with the value at fault.
    """

    in_height: int
    in_width: int
    in_channels: int
    out_channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    groups: int = 1
    in_zero_point: int = 0
    has_bias: bool = True
    name: str = ""

    def __post_init__(self) -> None:
        def put(field: str, value: object) -> None:
            object.__setattr__(self, field, value)

        put("in_height", check_int("in_height", self.in_height, 1, MAX_EXTENT))
        put("in_width", check_int("in_width", self.in_width, 1, MAX_EXTENT))
        put("in_channels", check_int("in_channels", self.in_channels, 1, MAX_CHANNELS))
        put("out_channels", check_int("out_channels", self.out_channels, 1, MAX_CHANNELS))
        put("kernel", check_ints("kernel", self.kernel, 2, 1, MAX_KERNEL))
        put("stride", check_ints("stride", self.stride, 2, 1, MAX_KERNEL))
        put("dilation", check_ints("dilation", self.dilation, 2, 1, MAX_KERNEL))
        put("pads", check_ints("pads", self.pads, 4, 0, MAX_EXTENT))
        put("groups", check_int("groups", self.groups, 1))
        put("in_zero_point", check_int("in_zero_point", self.in_zero_point, -128, 127))
        put("has_bias", check_bool("has_bias", self.has_bias))
        if self.in_channels % self.groups:
            raise ValueError(
                f"groups must divide in_channels {self.in_channels}, not {self.groups}"
            )
        if self.out_channels % self.groups:
            raise ValueError(
                f"groups must divide out_channels {self.out_channels}, not {self.groups}"
            )
        for axis, padded, window in (
            ("height", self.padded_height, self.window[0]),
            ("width", self.padded_width, self.window[1]),
        ):
            if padded > MAX_EXTENT:
                raise ValueError(
                    f"input {axis} with its pads must be at most {MAX_EXTENT}, not {padded}"
                )
            if window > padded:
                raise ValueError(
                    f"the dilated kernel must fit the padded input, but its {axis} is {window} "
                    f"and the padded input's is {padded}; pad more or use a smaller kernel"
                )

    @property
    def padded_height(self) -> int:
        """H with the top and bottom pads."""
        return self.in_height + self.pads[0] + self.pads[1]

    @property
    def padded_width(self) -> int:
        """W with the left and right pads."""
        return self.in_width + self.pads[2] + self.pads[3]

    @property
    def window(self) -> tuple[int, int]:
        """Rows and columns that one output position spans: (R-1)D + 1."""
        return (
            (self.kernel[0] - 1) * self.dilation[0] + 1,
            (self.kernel[1] - 1) * self.dilation[1] + 1,
        )

    @property
    def out_height(self) -> int:
        """OH."""
        return (self.padded_height - self.window[0]) // self.stride[0] + 1

    @property
    def out_width(self) -> int:
        """OW."""
        return (self.padded_width - self.window[1]) // self.stride[1] + 1

    @property
    def group_in_channels(self) -> int:
        """Input channels that one output channel sees, C / groups."""
        return self.in_channels // self.groups

    @property
    def group_out_channels(self) -> int:
        """Output channels of one group, M / groups."""
        return self.out_channels // self.groups

    @property
    def is_depthwise(self) -> bool:
        """True when every input channel is a group of its own and there are several."""
        return self.groups > 1 and self.groups == self.in_channels

    @property
    def taps(self) -> int:
        """Rh * Rw."""
        return self.kernel[0] * self.kernel[1]

    @property
    def macs(self) -> int:
        """Multiply-accumulates, padded positions included, as the field counts them."""
        return (
            self.out_height
            * self.out_width
            * self.out_channels
            * self.taps
            * self.group_in_channels
        )

    @property
    def input_shape(self) -> tuple[int, int, int, int]:
        """(1, H, W, C)."""
        return (1, self.in_height, self.in_width, self.in_channels)

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """(M, Rh, Rw, C / groups)."""
        return (self.out_channels, self.kernel[0], self.kernel[1], self.group_in_channels)

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        """(1, OH, OW, M)."""
        return (1, self.out_height, self.out_width, self.out_channels)

    def span(self, height: int, width: int) -> tuple[int, int]:
        """Input rows and columns, pads included, under ``height`` x ``width`` outputs.

        (T-1)S + (R-1)D + 1 on each axis (docs/formulas.md, input span).
        """
        return (
            (height - 1) * self.stride[0] + self.window[0],
            (width - 1) * self.stride[1] + self.window[1],
        )
