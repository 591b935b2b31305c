"""A self-checking Verilog testbench of a compiled network, and the memory contents it loads."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import Template
from typing import Any

import numpy as np
import numpy.typing as npt

from haloconv.flow.c_header import built_words
from haloconv.flow.export import TOP
from haloconv.planner.network_program import EngineRun, NetworkProgram
from haloconv.planner.registers import IDENTITY, REVISION, Register
from haloconv.planner.version import __version__

__all__ = ["RunMemory", "bench_files", "hex_text", "run_memories"]

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
Part = tuple[int, Bytes]
"""An address and the bytes from there on."""

HEX_BYTES = 32
"""Bytes in a line of a memory file."""


@dataclass(frozen=True, eq=False)
class RunMemory:
    """What memory holds around one run of the engine.

    Parameters
    ----------
    run : EngineRun
    before : list of (address, bytes)
        What the host has written since the run before: inputs and the results of its operators.
    after : list of (address, bytes)
        Everything that the run has to have written; the rest of the memory stays as it was.
    """

    run: EngineRun
    before: list[Part]
    after: list[Part]


def run_memories(program: NetworkProgram, inputs: Sequence[Array]) -> list[RunMemory]:
    """Return what memory must hold around each run of the engine, by the numpy model.

    Parameters
    ----------
    program : NetworkProgram
    inputs : sequence of array
        In the model's types and shapes.

    Raises
    ------
    TypeError, ValueError
        If the inputs do not suit the model.
    """
    from haloconv.sim.network_golden import golden_network

    network = program.network
    values = golden_network(network, inputs)
    memory = program.image.copy()

    def write(indices: Sequence[int]) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        for index in indices:
            if index not in program.addresses:
                continue
            address = program.addresses[index]
            value = np.ascontiguousarray(values[index], network.tensors[index].dtype)
            data = value.reshape(-1).view(np.uint8)
            memory[address : address + data.size] = data
            spans.append((address, address + data.size))
        return spans

    found: list[RunMemory] = []
    changed = write(network.inputs)
    for step in program.steps:
        if not isinstance(step, EngineRun):
            changed += write(step.node.outputs)
            continue
        before = list(_parts(memory, changed))
        written = [span for planned in step.nodes for span in write(planned.node.outputs)]
        found.append(RunMemory(step, before, list(_parts(memory, written))))
        changed = []
    return found


def _parts(memory: Bytes, spans: list[tuple[int, int]]) -> Iterator[Part]:
    """Return the bytes of spans that may overlap, each byte once, by address."""
    end = 0
    for start, stop in sorted(spans):
        start = max(start, end)
        if start < stop:
            yield start, memory[start:stop].copy()
            end = stop


def hex_text(parts: Sequence[Part]) -> str:
    """Return bytes at their addresses as a file for ``$readmemh``."""
    lines: list[str] = []
    for address, data in parts:
        lines.append(f"@{address:x}")
        text = data.tobytes().hex()
        # Two digits a byte; the memory of the testbench has byte-wide words.
        for first in range(0, len(text), 2 * HEX_BYTES):
            line = text[first : first + 2 * HEX_BYTES]
            lines.append(" ".join(line[place : place + 2] for place in range(0, len(line), 2)))
    return "\n".join(lines) + "\n"


def bench_files(
    program: NetworkProgram, inputs: Sequence[Array], *, latency: int = 16
) -> dict[str, str]:
    """Return the testbench and the memory files that it loads, by name.

    ``testbench.v`` loads ``image.hex``, which is not among them. Before a run it loads
    ``runN_before.hex``, afterwards it compares the whole memory with what it held before,
    ``runN_expected.hex`` on top.

    Parameters
    ----------
    program : NetworkProgram
    inputs : sequence of array
    latency : int
        Of the testbench's memory, in cycles.

    Raises
    ------
    TypeError, ValueError
        If the inputs do not suit the model.
    """
    files: dict[str, str] = {}
    body: list[str] = []
    for number, entry in enumerate(run_memories(program, inputs)):
        first, last = entry.run.nodes[0].node, entry.run.nodes[-1].node
        body.append(f"    // Operators {first.index} to {last.index} of the model.")
        if entry.before:
            name = f"run{number}_before.hex"
            files[name] = hex_text(entry.before)
            body.append(f'    $readmemh("{name}", memory);')
            body.append(f'    $readmemh("{name}", expected);')
        name = f"run{number}_expected.hex"
        files[name] = hex_text(entry.after)
        body.append(f'    $readmemh("{name}", expected);')
        cycles = sum(planned.cycles for planned in entry.run.nodes)
        body.append(f"    run({number}, 64'h{entry.run.program_address:x}, {cycles});")
    config = program.config
    built = {"identity": IDENTITY, "revision": REVISION} | built_words(config)
    checks = [
        f"    expect_register(8'd{int(Register[name.upper()])}, 32'h{word:08x});"
        for name, word in built.items()
    ]
    files["testbench.v"] = _TEMPLATE.substitute(
        version=__version__,
        digest=config.digest,
        top=TOP,
        latency=latency,
        bus=config.bus_bytes,
        address_bits=config.address_bits,
        size=program.image.size,
        checks="\n".join(checks),
        body="\n".join(body),
        **{f"r_{register.name.lower()}": int(register) for register in Register},
    )
    return files


_TEMPLATE = Template(
    """\
// testbench: generated by haloconv $version, configuration $digest
//
// Runs the network's programs on the engine and compares the whole memory after each of them.
// The last line that it prints is PASS or FAIL. In this folder, with Icarus Verilog:
//
//   $$ iverilog -g2005 -o testbench.vvp testbench.v $top.v && vvp testbench.vvp
//
// or with Verilator 5:
//
//   $$ verilator --binary --timing -Wno-fatal --top-module testbench testbench.v $top.v
//   $$ obj_dir/Vtestbench

`timescale 1ns / 1ps

/* verilator lint_off WIDTH */
module testbench;
  parameter LATENCY = $latency;  // cycles from a read request to its first beat
  parameter STALLS = 0;  // 256ths of the cycles in which each memory port stalls, at most 255
  parameter SEED = 1;  // of the stalls, not 0

  localparam BUS = $bus;  // bytes of a beat
  localparam ADDRESS = $address_bits;
  localparam BYTES = $size;
  localparam QUEUE = 64;  // read requests that the memory holds

  reg clk = 0;
  reg rst = 1;
  always #5 clk = ~clk;

  wire [ADDRESS+8:0] request;
  wire request_valid;
  reg request_ready = 0;
  reg [8*BUS:0] beat = 0;
  reg beat_valid = 0;
  wire beat_ready;
  wire [ADDRESS+9*BUS-1:0] write;
  wire write_valid;
  reg write_ready = 0;
  reg write_error = 0;
  reg [7:0] register_address = 0;
  reg register_write = 0;
  reg [31:0] register_write_data = 0;
  wire [31:0] register_read_data;

  $top engine (
    .clk(clk),
    .rst(rst),
    .memory__read_request__payload(request),
    .memory__read_request__valid(request_valid),
    .memory__read_request__ready(request_ready),
    .memory__read_data__payload(beat),
    .memory__read_data__valid(beat_valid),
    .memory__read_data__ready(beat_ready),
    .memory__write__payload(write),
    .memory__write__valid(write_valid),
    .memory__write__ready(write_ready),
    .memory__write_error(write_error),
    .registers__address(register_address),
    .registers__write(register_write),
    .registers__write_data(register_write_data),
    .registers__read_data(register_read_data)
  );

  // Memory: requests are answered in order, LATENCY cycles later at the earliest.

  reg [7:0] memory [0:BYTES-1];
  reg [7:0] expected [0:BYTES-1];

  wire [ADDRESS-1:0] request_address = request[ADDRESS-1:0];
  wire [8:0] request_beats = request[ADDRESS+8:ADDRESS];
  wire [ADDRESS-1:0] write_address = write[ADDRESS-1:0];
  wire [8*BUS-1:0] write_data = write[ADDRESS+8*BUS-1:ADDRESS];
  wire [BUS-1:0] write_strobe = write[ADDRESS+9*BUS-1:ADDRESS+8*BUS];

  reg [ADDRESS-1:0] queue_address [0:QUEUE-1];
  reg [8:0] queue_beats [0:QUEUE-1];
  reg [63:0] queue_release [0:QUEUE-1];
  integer queue_first = 0;
  integer queue_count = 0;
  reg [63:0] cycle = 0;
  reg [31:0] random = SEED;
  reg [63:0] place = 0;
  reg [8*BUS:0] next_beat = 0;
  integer slot = 0;
  integer lane = 0;

  function stalls(input [7:0] draw);
    stalls = {24'd0, draw} < STALLS;
  endfunction

  always @(posedge clk) begin
    random = random ^ (random << 13);
    random = random ^ (random >> 17);
    random = random ^ (random << 5);
    if (request_valid && request_ready) begin
      slot = (queue_first + queue_count) % QUEUE;
      queue_address[slot] = request_address;
      queue_beats[slot] = request_beats;
      queue_release[slot] = cycle + LATENCY;
      queue_count = queue_count + 1;
    end
    write_error <= 0;
    if (write_valid && write_ready) begin
      for (lane = 0; lane < BUS; lane = lane + 1) begin
        place = {{64 - ADDRESS{1'b0}}, write_address} + lane;
        if (write_strobe[lane]) begin
          if (place < BYTES) memory[place] = write_data[8*lane +: 8];
          else write_error <= 1;
        end
      end
    end
    if (!beat_valid || beat_ready) begin
      beat_valid <= 0;
      if (queue_count > 0 && queue_release[queue_first] <= cycle + 1 && !stalls(random[7:0])) begin
        next_beat = 0;
        for (lane = 0; lane < BUS; lane = lane + 1) begin
          place = {{64 - ADDRESS{1'b0}}, queue_address[queue_first]} + lane;
          if (place < BYTES) next_beat[8*lane +: 8] = memory[place];
          else next_beat[8*BUS] = 1;
        end
        beat <= next_beat;
        beat_valid <= 1;
        queue_address[queue_first] = queue_address[queue_first] + BUS;
        queue_beats[queue_first] = queue_beats[queue_first] - 1;
        if (queue_beats[queue_first] == 0) begin
          queue_first = (queue_first + 1) % QUEUE;
          queue_count = queue_count - 1;
        end
      end
    end
    request_ready <= queue_count < QUEUE && !stalls(random[15:8]);
    write_ready <= !stalls(random[23:16]);
    cycle <= cycle + 1;
  end

  // Host: registers are driven between the edges that the engine sees.

  integer errors = 0;
  integer wrong = 0;
  integer index = 0;
  reg [31:0] word = 0;
  reg [63:0] count = 0;
  reg [63:0] limit = 0;

  task write_register(input [7:0] register, input [31:0] value);
    begin
      @(negedge clk);
      register_address = register;
      register_write_data = value;
      register_write = 1;
      @(negedge clk);
      register_write = 0;
    end
  endtask

  task read_register(input [7:0] register);
    begin
      @(negedge clk);
      register_address = register;
      @(negedge clk);
      word = register_read_data;
    end
  endtask

  task expect_register(input [7:0] register, input [31:0] value);
    begin
      read_register(register);
      if (word !== value) begin
        $$display("register %0d reads %h instead of %h", register, word, value);
        errors = errors + 1;
      end
    end
  endtask

  task run(input integer number, input [63:0] base, input integer predicted);
    begin
      write_register(8'd$r_program_low, base[31:0]);
      write_register(8'd$r_program_high, base[63:32]);
      write_register(8'd$r_control, 32'd1);
      limit = cycle + (4 * predicted + 100000) * 256 / (256 - STALLS);
      word = 1;
      while (word[0] && cycle < limit) read_register(8'd$r_status);
      if (word[2:0] !== 3'b010) begin
        $$display("run %0d: status %h after %0d cycles", number, word, cycle);
        read_register(8'd$r_error_code);
        $$display("run %0d: error code %0d", number, word);
        read_register(8'd$r_error_detail);
        $$display("run %0d: in descriptor %0d", number, word);
        errors = errors + 1;
      end
      read_register(8'd$r_cycles);
      count[31:0] = word;
      read_register(8'd$r_cycles + 8'd1);
      count[63:32] = word;
      wrong = 0;
      for (index = 0; index < BYTES; index = index + 1) begin
        if (memory[index] !== expected[index]) begin
          if (wrong < 5)
            $$display("run %0d: byte %0d is %h instead of %h", number, index, memory[index],
                     expected[index]);
          wrong = wrong + 1;
        end
      end
      errors = errors + wrong;
      $$display("run %0d: %0d cycles, %0d predicted; %0d of %0d bytes differ", number, count,
               predicted, wrong, BYTES);
    end
  endtask

  initial begin
    $$readmemh("image.hex", memory);
    $$readmemh("image.hex", expected);
    repeat (4) @(negedge clk);
    rst = 0;
$checks
$body
    if (errors == 0) $$display("PASS");
    else $$display("FAIL");
    $$finish;
  end
endmodule
"""
)
