// A synthesised netlist behind the simulators' harness: tables of cells, walked each cycle.
//
// netlist.inc, written by netlist_simulation.py, has the tables. Net 0 is low and net 1 high. All
// cells have the one clock and its rising edge, which the writer checks.
#include <cstdint>
#include <cstring>
#include <iterator>
#include <vector>

#ifdef NETLIST_OF_ENGINE
#include "haloconv_harness.h"
#endif

namespace {

using Net = uint32_t;

struct Lut {
    Net out, in[4];
    uint32_t init;
};

// q takes d when enabled; a reset goes before the enable or behind it.
struct Register {
    Net q, d, enable, reset;
    uint8_t set, reset_needs_enable;
};

struct DistributedRam {
    Net write, data[4], write_address[4], read_address[4], out[4];
    uint64_t init;
};

// MULT18X18D. Registers, each with its enable and reset: operands a and b, product, output.
struct Multiplier {
    Net a[18], b[18], signed_a, signed_b, out[36];
    uint8_t registered[4];
    Net enable[4], reset[4];
};

// SB_MAC16.
struct Mac {
    Net a[16], b[16], c[16], d[16], ce, hold_a, hold_b, hold_c, hold_d;
    Net load_top, load_bottom, subtract_top, subtract_bottom, hold_top, hold_bottom;
    Net carry_in, accumulate_carry_in, sign_in, reset_top, reset_bottom;
    Net out[32], carry_out, accumulate_carry_out, sign_out;
    uint8_t reg_a, reg_b, reg_c, reg_d, reg_top, reg_bottom, reg_middle, reg_product, eight;
    uint8_t signed_a, signed_b, top_out, top_lower, top_upper, top_carry;
    uint8_t bottom_out, bottom_lower, bottom_upper, bottom_carry;
};

struct RamPort {
    Net address[14], data[18], out[18], enable, output_enable, write, reset, select[3];
    uint32_t width;
    uint8_t through, read_first, output_register;
};

// DP16KD.
struct BlockRam {
    RamPort port[2];
    uint32_t init;  // of its 2048 rows of nine bits in `ram_rows`
};

// SB_RAM40_4K.
struct SmallRam {
    Net read_address[11], write_address[11], read, read_clock, write, write_clock;
    Net data[16], mask[16], out[16];
    uint32_t read_mode, write_mode, init;  // of its 256 rows of 16 bits in `ram_rows`
};

enum Kind : uint32_t { lut_step, ram_step, multiplier_step, mac_step };

struct Step {
    uint32_t kind, index;
};

#include "netlist.inc"

class Netlist {
  public:
    Netlist() {
        net_.assign(net_count, 0);
        net_[1] = 1;
        for (const Register &cell : registers)
            net_[cell.q] = cell.set;
        for (const DistributedRam &cell : distributed_rams)
            distributed_.push_back(cell.init);
        for (const BlockRam &cell : block_rams)
            blocks_.push_back({{ram_rows + cell.init, ram_rows + cell.init + 2048}, {}, {}});
        for (const SmallRam &cell : small_rams)
            small_.push_back({{ram_rows + cell.init, ram_rows + cell.init + 256}, 0});
        multiplier_.resize(std::size(multipliers));
        mac_.resize(std::size(macs));
        next_.resize(std::size(registers));
    }

    void settle() {
        // One pass in order is enough, unless a multiplier's bypassed paths look like a loop.
        for (unsigned pass = 0; pass < (ordered ? 1 : 8); ++pass)
            for (const Step &step : steps) {
                switch (step.kind) {
                case lut_step: {
                    const Lut &cell = luts[step.index];
                    const unsigned index = net_[cell.in[0]] | net_[cell.in[1]] << 1 |
                                           net_[cell.in[2]] << 2 | net_[cell.in[3]] << 3;
                    net_[cell.out] = cell.init >> index & 1;
                    break;
                }
                case ram_step: {
                    const DistributedRam &cell = distributed_rams[step.index];
                    put(cell.out, 4, distributed_[step.index] >> 4 * get(cell.read_address, 4));
                    break;
                }
                case multiplier_step:
                    evaluate(multipliers[step.index], multiplier_[step.index]);
                    break;
                case mac_step:
                    evaluate(macs[step.index], mac_[step.index]);
                    break;
                }
            }
    }

    void edge() {
        size_t index = 0;
        for (const Register &cell : registers) {
            const bool enable = net_[cell.enable];
            uint8_t &next = next_[index++];
            if (net_[cell.reset] && (enable || !cell.reset_needs_enable))
                next = cell.set;
            else
                next = net_[enable ? cell.d : cell.q];
        }
        for (index = 0; index < std::size(distributed_rams); ++index) {
            const DistributedRam &cell = distributed_rams[index];
            if (net_[cell.write]) {
                const unsigned shift = 4 * get(cell.write_address, 4);
                uint64_t &words = distributed_[index];
                words = (words & ~(uint64_t(15) << shift)) | get(cell.data, 4) << shift;
            }
        }
        for (index = 0; index < std::size(multipliers); ++index)
            clock(multipliers[index], multiplier_[index]);
        for (index = 0; index < std::size(macs); ++index)
            clock(macs[index], mac_[index]);
        for (index = 0; index < std::size(block_rams); ++index)
            clock(block_rams[index], blocks_[index]);
        for (index = 0; index < std::size(small_rams); ++index)
            clock(small_rams[index], small_[index]);
        // Only now may nets change: everything above saw those before the edge.
        index = 0;
        for (const Register &cell : registers)
            net_[cell.q] = next_[index++];
        for (index = 0; index < std::size(block_rams); ++index)
            show(block_rams[index], blocks_[index]);
        for (index = 0; index < std::size(small_rams); ++index)
            put(small_rams[index].out, 16, small_[index].out);
    }

  protected:
    uint64_t get(const Net *nets, size_t count) const {
        uint64_t value = 0;
        for (size_t i = 0; i < count; ++i)
            value |= uint64_t(net_[nets[i]]) << i;
        return value;
    }
    void put(const Net *nets, size_t count, uint64_t value) {
        for (size_t i = 0; i < count; ++i)
            if (nets[i] > 1)
                net_[nets[i]] = value >> i & 1;
    }
    std::vector<uint8_t> net_;

  private:
    struct MultiplierState {
        int64_t a = 0, b = 0, product = 0, out = 0;
        int64_t next_a = 0, next_b = 0, next_product = 0, next_out = 0;
    };
    struct MacState {
        uint16_t a = 0, b = 0, c = 0, d = 0, f = 0, j = 0, k = 0, g = 0, q = 0, s = 0;
        uint32_t h = 0;
        // Inputs of the registers, as the last evaluation left them.
        uint16_t next_f = 0, next_j = 0, next_k = 0, next_g = 0, next_q = 0, next_s = 0;
        uint32_t next_h = 0;
    };
    struct BlockState {
        std::vector<uint16_t> rows;
        uint64_t latch[2];
        uint64_t out[2];
    };
    struct SmallState {
        std::vector<uint16_t> rows;
        uint16_t out;
    };

    std::vector<uint8_t> next_;
    std::vector<uint64_t> distributed_;
    std::vector<BlockState> blocks_;
    std::vector<SmallState> small_;
    std::vector<MultiplierState> multiplier_;
    std::vector<MacState> mac_;

    static int64_t extend(uint64_t value, unsigned bits, bool is_signed) {
        return is_signed && value >> (bits - 1) & 1 ? int64_t(value) - (int64_t(1) << bits)
                                                    : int64_t(value);
    }

    void evaluate(const Multiplier &cell, MultiplierState &state) {
        state.next_a = extend(get(cell.a, 18), 18, net_[cell.signed_a]);
        state.next_b = extend(get(cell.b, 18), 18, net_[cell.signed_b]);
        state.next_product = (cell.registered[0] ? state.a : state.next_a) *
                             (cell.registered[1] ? state.b : state.next_b);
        state.next_out = cell.registered[2] ? state.product : state.next_product;
        put(cell.out, 36, uint64_t(cell.registered[3] ? state.out : state.next_out));
    }
    void clock(const Multiplier &cell, MultiplierState &state) {
        evaluate(cell, state);
        int64_t *now[] = {&state.a, &state.b, &state.product, &state.out};
        const int64_t next[] = {state.next_a, state.next_b, state.next_product, state.next_out};
        for (unsigned i = 0; i < 4; ++i) {
            if (net_[cell.reset[i]])
                *now[i] = 0;
            else if (net_[cell.enable[i]])
                *now[i] = next[i];
        }
    }

    // After the model in Yosys' ice40/cells_sim.v, with its names of signals.
    void evaluate(const Mac &m, MacState &s) {
        // Asynchronous.
        if (net_[m.reset_top])
            s.q = 0;
        if (net_[m.reset_bottom])
            s.s = 0;
        const uint16_t a = m.reg_a ? s.a : uint16_t(get(m.a, 16));
        const uint16_t b = m.reg_b ? s.b : uint16_t(get(m.b, 16));
        const uint16_t c = m.reg_c ? s.c : uint16_t(get(m.c, 16));
        const uint16_t d = m.reg_d ? s.d : uint16_t(get(m.d, 16));
        const uint16_t ah = uint16_t(extend(a >> 8, 8, m.signed_a));
        const uint16_t al = uint16_t(extend(a & 255, 8, m.signed_a && m.eight));
        const uint16_t bh = uint16_t(extend(b >> 8, 8, m.signed_b));
        const uint16_t bl = uint16_t(extend(b & 255, 8, m.signed_b && m.eight));
        s.next_f = uint16_t(uint32_t(ah) * bh);
        s.next_j = uint16_t(uint32_t(al & 255) * bh);
        s.next_k = uint16_t(uint32_t(ah) * (bl & 255));
        s.next_g = uint16_t(uint32_t(al) * bl);
        const uint16_t f = m.reg_top ? s.f : s.next_f, j = m.reg_middle ? s.j : s.next_j;
        const uint16_t k = m.reg_middle ? s.k : s.next_k, g = m.reg_bottom ? s.g : s.next_g;
        const uint32_t middle_k = uint32_t(extend(k, 16, m.signed_a)) & 0xFFFFFF;
        const uint32_t middle_j = uint32_t(extend(j, 16, m.signed_b)) & 0xFFFFFF;
        s.next_h = g + (middle_k << 8) + (middle_j << 8) + (uint32_t(f) << 16);
        const uint32_t h = m.reg_product ? s.h : s.next_h;

        const uint16_t minus_bottom = net_[m.subtract_bottom] ? 0xFFFF : 0;
        const uint16_t minus_top = net_[m.subtract_top] ? 0xFFFF : 0;
        const uint16_t lower_inputs[] = {b, g, uint16_t(h), uint16_t(net_[m.sign_in] ? -1 : 0)};
        const uint16_t z = lower_inputs[m.bottom_lower];
        const uint16_t y = m.bottom_upper ? d : s.s;
        const uint32_t carries[] = {0, 1, net_[m.accumulate_carry_in], net_[m.carry_in]};
        const uint32_t low = z + uint32_t(y ^ minus_bottom) + carries[m.bottom_carry];
        const uint32_t low_carry = low >> 16 & 1;
        s.next_s = net_[m.load_bottom] ? d : uint16_t(low ^ minus_bottom);

        const uint16_t upper_inputs[] = {a, f, uint16_t(h >> 16), uint16_t(z >> 15 ? -1 : 0)};
        const uint16_t x = upper_inputs[m.top_lower];
        const uint16_t w = m.top_upper ? c : s.q;
        const uint32_t top_carries[] = {0, 1, low_carry, low_carry ^ (minus_bottom & 1)};
        const uint32_t high = x + uint32_t(w ^ minus_top) + top_carries[m.top_carry];
        s.next_q = net_[m.load_top] ? c : uint16_t(high ^ minus_top);

        const uint16_t tops[] = {s.next_q, s.q, f, uint16_t(h >> 16)};
        const uint16_t bottoms[] = {s.next_s, s.s, g, uint16_t(h)};
        put(m.out, 32, uint32_t(tops[m.top_out]) << 16 | bottoms[m.bottom_out]);
        put(&m.accumulate_carry_out, 1, high >> 16);
        put(&m.carry_out, 1, (high >> 16 & 1) ^ (minus_top & 1));
        put(&m.sign_out, 1, x >> 15);
    }
    void clock(const Mac &m, MacState &s) {
        evaluate(m, s);
        if (!net_[m.ce])
            return;
        if (!net_[m.hold_a])
            s.a = uint16_t(get(m.a, 16));
        if (!net_[m.hold_b])
            s.b = uint16_t(get(m.b, 16));
        if (!net_[m.hold_c])
            s.c = uint16_t(get(m.c, 16));
        if (!net_[m.hold_d])
            s.d = uint16_t(get(m.d, 16));
        s.f = s.next_f;
        s.g = s.next_g;
        if (!m.eight) {
            s.j = s.next_j;
            s.k = s.next_k;
            s.h = s.next_h;
        }
        if (!net_[m.hold_top] && !net_[m.reset_top])
            s.q = s.next_q;
        if (!net_[m.hold_bottom] && !net_[m.reset_bottom])
            s.s = s.next_s;
    }

    // 2048 rows of nine bits; ports of 36 bits write through the first port and read through the
    // second. Low address bits are the byte enables of wide writes; ports below nine bits leave
    // the ninth unused. What is read while the other port writes it comes complemented, as the
    // maker promises nothing there.
    static unsigned lanes(const RamPort &port) { return port.width <= 9 ? 1 : port.width / 9; }
    static unsigned row(const RamPort &port, unsigned address, unsigned lane) {
        return port.width == 36 ? (address >> 5 << 2) + lane
               : port.width == 18 ? (address >> 4 << 1) + lane
                                  : address >> 3;
    }
    void clock(const BlockRam &cell, BlockState &state) {
        bool selected[2];
        unsigned address[2], shift[2];
        uint16_t written[2048] = {};
        struct Write {
            unsigned row;
            uint16_t value;
        };
        std::vector<Write> writes[2];
        for (unsigned side = 0; side < 2; ++side) {
            const RamPort &port = cell.port[side];
            selected[side] = net_[port.enable] && !get(port.select, 3);
            address[side] = unsigned(get(port.address, 14));
            shift[side] = port.width < 9 ? address[side] & (8 - port.width) : 0;
            if (!selected[side] || !net_[port.write])
                continue;
            uint64_t data = get(port.data, 18);
            if (port.width == 36)
                data |= get(cell.port[1].data, 18) << 18;
            for (unsigned lane = 0; lane < lanes(port); ++lane) {
                const unsigned at = row(port, address[side], lane);
                if (port.width >= 18 && !(address[side] >> lane & 1))
                    continue;
                const uint16_t mask =
                    port.width >= 9 ? 511 : uint16_t(((1u << port.width) - 1) << shift[side]);
                const uint16_t value = uint16_t(data >> 9 * lane << shift[side]) & mask;
                writes[side].push_back({at, uint16_t((state.rows[at] & ~mask) | value)});
                written[at] |= uint16_t(mask << 0) | uint16_t(1u << (10 + side));
            }
        }
        for (unsigned side = 0; side < 2; ++side) {
            const RamPort &port = cell.port[side];
            uint64_t read = 0;
            for (unsigned lane = 0; lane < lanes(port); ++lane) {
                const unsigned at = row(port, address[side], lane);
                uint64_t value = state.rows[at];
                if (written[at] >> (10 + (1 - side)) & 1)
                    value ^= written[at] & 511;
                read |= (value >> shift[side]) << 9 * lane;
            }
            if (net_[port.output_enable])
                state.out[side] = state.latch[side];
            if (net_[port.reset]) {
                state.latch[side] = state.out[side] = 0;
            } else if (selected[side]) {
                if (!net_[port.write] || port.read_first)
                    state.latch[side] = read;
                else if (port.through)
                    state.latch[side] = get(port.data, 18);
            }
        }
        for (const std::vector<Write> &side : writes)
            for (const Write &write : side)
                state.rows[write.row] = write.value;
    }
    void show(const BlockRam &cell, const BlockState &state) {
        const bool wide = cell.port[1].width == 36;
        for (unsigned side = 0; side < 2; ++side) {
            const RamPort &port = cell.port[wide ? 1 : side];
            const unsigned from = wide ? 1 : side;
            const uint64_t value = port.output_register ? state.out[from] : state.latch[from];
            put(cell.port[side].out, 18, wide && side == 1 ? value >> 18 : value);
        }
    }

    // 256 rows of 16 bits; narrow modes spread a word over every second, fourth or eighth bit.
    static uint16_t lanes_of(uint32_t mode, unsigned address) {
        static const uint16_t first[] = {0xFFFF, 0x5555, 0x1111, 0x0101};
        return uint16_t(first[mode] << (address >> 8 & ((1u << mode) - 1)));
    }
    void clock(const SmallRam &cell, SmallState &state) {
        const unsigned read_at = unsigned(get(cell.read_address, 11));
        const unsigned write_at = unsigned(get(cell.write_address, 11));
        const bool writes = net_[cell.write] && net_[cell.write_clock];
        const uint32_t span = 1u << cell.write_mode;
        uint16_t mask = lanes_of(cell.write_mode, write_at);
        uint16_t data = uint16_t(get(cell.data, 16));
        if (cell.write_mode == 0) {
            mask = uint16_t(~get(cell.mask, 16));
        } else {
            // Data pins of a narrow word: one in the middle of each group of bits.
            static const unsigned pin[] = {0, 0, 1, 3};
            uint16_t spread = 0;
            for (unsigned group = 0; group < 16; group += span)
                if (data >> (group + pin[cell.write_mode]) & 1)
                    spread |= uint16_t(((1u << span) - 1) << group);
            data = spread;
        }
        if (net_[cell.read] && net_[cell.read_clock]) {
            uint16_t value = state.rows[read_at & 255];
            if (writes && (read_at & 255) == (write_at & 255))
                value ^= mask;  // nothing is promised for what is written in the same cycle
            value &= lanes_of(cell.read_mode, read_at);
            if (cell.read_mode) {
                const unsigned group = 1u << cell.read_mode;
                static const unsigned pin[] = {0, 0, 1, 3};
                uint16_t gathered = 0;
                for (unsigned low = 0; low < 16; low += group)
                    if (value >> low & ((1u << group) - 1))
                        gathered |= uint16_t(1u << (low + pin[cell.read_mode]));
                value = gathered;
            }
            state.out = value;
        }
        if (writes) {
            uint16_t &word = state.rows[write_at & 255];
            word = uint16_t((word & ~mask) | (data & mask));
        }
    }
};

#ifdef NETLIST_OF_ENGINE
class Device : public Netlist {
  public:
    void reset(bool on) { net_[port_rst[0]] = on; }

    bool get_request_valid() const { return net_[port_memory__read_request__valid[0]]; }
    void get_request_payload(uint32_t *words) const {
        pack(port_memory__read_request__payload, words);
    }
    bool get_data_ready() const { return net_[port_memory__read_data__ready[0]]; }
    bool get_write_valid() const { return net_[port_memory__write__valid[0]]; }
    void get_write_payload(uint32_t *words) const { pack(port_memory__write__payload, words); }
    uint32_t get_register_data() const { return uint32_t(get(port_registers__read_data, 32)); }

    void set_request_ready(bool on) { net_[port_memory__read_request__ready[0]] = on; }
    void set_data_valid(bool on) { net_[port_memory__read_data__valid[0]] = on; }
    void set_data_payload(const uint32_t *words) {
        for (size_t i = 0; i < std::size(port_memory__read_data__payload); ++i)
            net_[port_memory__read_data__payload[i]] = words[i / 32] >> i % 32 & 1;
    }
    void set_write_ready(bool on) { net_[port_memory__write__ready[0]] = on; }
    void set_write_error(bool on) { net_[port_memory__write_error[0]] = on; }
    void set_register_address(uint32_t value) {
        put(port_registers__address, std::size(port_registers__address), value);
    }
    void set_register_write(bool on) { net_[port_registers__write[0]] = on; }
    void set_register_write_data(uint32_t value) { put(port_registers__write_data, 32, value); }

  private:
    template <size_t Bits>
    void pack(const Net (&nets)[Bits], uint32_t *words) const {
        std::memset(words, 0, (Bits + 31) / 32 * 4);
        for (size_t i = 0; i < Bits; ++i)
            words[i / 32] |= uint32_t(net_[nets[i]]) << i % 32;
    }
};
#else
class Device : public Netlist {
  public:
    void set(const uint8_t *levels) {
        for (Net net : input_nets)
            net_[net] = *levels++;
    }
    void get(uint8_t *levels) const {
        for (Net net : output_nets)
            *levels++ = net_[net];
    }
};
#endif

}  // namespace

#ifdef NETLIST_OF_ENGINE
HALOCONV_EXPORT(Device)
#else
// Levels of all inputs in each cycle, and of all outputs before the edge that ends it.
extern "C" void netlist_run(const uint8_t *inputs, uint8_t *outputs, uint64_t cycles) {
    Device device;
    for (; cycles; --cycles) {
        device.set(inputs);
        device.settle();
        device.get(outputs);
        device.edge();
        inputs += std::size(input_nets);
        outputs += std::size(output_nets);
    }
}
#endif
