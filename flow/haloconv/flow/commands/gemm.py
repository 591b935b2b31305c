"""``haloconv gemm``: least and modelled traffic of a matrix product, side by side."""

from pathlib import Path

import click

from haloconv.flow import report
from haloconv.flow.files import write_text
from haloconv.flow.options import figure_option, json_option

__all__ = ["gemm"]

SIZE = click.IntRange(min=1)


@click.command()
@click.argument("m", type=SIZE)
@click.argument("k", type=SIZE)
@click.argument("n", type=SIZE)
@click.option(
    "--bytes", "element_bytes", type=SIZE, default=1, show_default=True, help="Of one element."
)
@click.option(
    "--tile", type=SIZE, default=16, show_default=True, help="Rows and columns of an output block."
)
@figure_option
@json_option
def gemm(
    m: int, k: int, n: int, element_bytes: int, tile: int, figure: Path | None, as_json: bool
) -> None:
    """Count the traffic of an M x K by K x N matrix product.

    Ideal bytes touch every element once. Modelled bytes are those of square output tiles without
    reuse between them. Neither stands for the other.
    """
    from haloconv.planner.gemm import LEFT_OUT, gemm_traffic

    traffic = gemm_traffic(m, k, n, element_bytes=element_bytes, tile=tile)
    if figure is not None:
        from haloconv.flow.figure import curve_figure

        # Powers of two, the tile asked for, and one tile that holds the whole output.
        top = max(m, n, tile)
        tiles = sorted({1 << power for power in range(top.bit_length())} | {tile, top})
        curve = [gemm_traffic(m, k, n, element_bytes=element_bytes, tile=size) for size in tiles]
        write_text(
            figure,
            curve_figure(
                f"GEMM {m} x {k} by {k} x {n}, {element_bytes} bytes an element",
                "bytes between memory and engine, over the size of a square output tile",
                "tile size t",
                tiles,
                [
                    ("ideal, each element once", [entry.ideal_bytes for entry in curve]),
                    ("modelled, no reuse between tiles", [entry.modelled_bytes for entry in curve]),
                ],
                tile,
                note=f"left out of the model: {', '.join(LEFT_OUT)}",
            ),
        )
        if str(figure) == "-":
            return
    if as_json:
        report.print_json(
            {
                "element_bytes": element_bytes,
                "ideal_bytes": traffic.ideal_bytes,
                "k": k,
                "left_out": list(LEFT_OUT),
                "m": m,
                "modelled_bytes": traffic.modelled_bytes,
                "n": n,
                "tile": tile,
            }
        )
        return
    table = report.new_table(f"GEMM {m} x {k} by {k} x {n}", "worked", "bytes", left=2)
    table.add_row(
        "ideal: each element once",
        f"(m*k + k*n + m*n)*b = ({m * k} + {k * n} + {m * n})*{element_bytes}",
        report.count(traffic.ideal_bytes),
    )
    across, down = -(-n // tile), -(-m // tile)
    table.add_row(
        f"modelled: {tile} x {tile} tiles",
        "b*(m*k*ceil(n/t) + k*n*ceil(m/t) + m*n) = "
        f"{element_bytes}*({m * k}*{across} + {k * n}*{down} + {m * n})",
        report.count(traffic.modelled_bytes),
    )
    out = report.console()
    out.print(table)
    out.print(f"left out of the model: {', '.join(LEFT_OUT)}")
