// The run loop of a compiled simulator: reset, host, memory model, and the C interface to Python.
//
// The including file defines HALOCONV_ADDRESS_BITS, HALOCONV_BUS_BYTES and HALOCONV_RESET_CYCLES
// and a class `Device` with
//     void settle();       clock low, combinational logic settled
//     void edge();         rising clock edge
//     void reset(bool);
//     get_*/set_* for the ports; payloads travel as 32-bit words, least significant first
// and then invokes HALOCONV_EXPORT(Device).
#pragma once

#include <vector>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "haloconv_memory.h"

namespace haloconv {

constexpr unsigned kAddressBits = HALOCONV_ADDRESS_BITS;
constexpr unsigned kBusBytes = HALOCONV_BUS_BYTES;
constexpr unsigned kBeatsBits = 9;

constexpr unsigned words(unsigned bits) { return (bits + 31) / 32; }
constexpr unsigned kRequestBits = kAddressBits + kBeatsBits;
constexpr unsigned kDataBits = 8 * kBusBytes + 1;
constexpr unsigned kWriteBits = kAddressBits + 8 * kBusBytes + kBusBytes;

// Bits [offset, offset + width) of a packed payload; width at most 64.
inline uint64_t extract(const uint32_t *payload, unsigned offset, unsigned width) {
    uint64_t value = 0;
    for (unsigned done = 0; done < width;) {
        const unsigned bit = (offset + done) % 32;
        const unsigned take = 32 - bit < width - done ? 32 - bit : width - done;
        const uint64_t mask = (uint64_t(1) << take) - 1;
        value |= (uint64_t(payload[(offset + done) / 32] >> bit) & mask) << done;
        done += take;
    }
    return value;
}

// Word indices of the register map that the host needs, and its bits.
enum : uint32_t {
    reg_control = 8,
    reg_status = 9,
    reg_program_low = 12,
    reg_program_high = 13,
    start_bit = 1,
    abort_bit = 2,
    busy_bit = 1,
    finished_bits = 6,
};
constexpr uint32_t kRegisterWords = HALOCONV_REGISTER_WORDS;

// Mirrored by ctypes structures in compiled.py: only 64-bit members, so that no padding arises.
struct Config {
    uint8_t *image;
    uint64_t size;
    uint64_t base;
    uint64_t program_address;
    uint64_t latency;
    uint64_t thresholds[3];
    uint64_t seed;
    uint64_t outstanding;  // 0 for no limit
    const Fault *faults;
    uint64_t fault_count;
    uint64_t max_cycles;
    uint64_t abort_at;  // 0 for never
};

struct Result {
    uint64_t cycle;   // the present cycle of the memory model
    uint64_t cycles;  // until the host saw that the engine had stopped
    uint64_t words[kRegisterWords];
    uint64_t requests;
    uint64_t read_beats;
    uint64_t write_beats;
    uint64_t written_bytes;
    uint64_t violation;
    uint64_t bad_address;
    uint64_t bad_beats;
    // Levels of the ports when a run was given up.
    uint64_t status;
    uint64_t request_valid;
    uint64_t request_ready;
    uint64_t request_address;
    uint64_t request_beats;
    uint64_t data_valid;
    uint64_t data_ready;
    uint64_t beats_owed;
    uint64_t write_valid;
    uint64_t write_ready;
    uint64_t write_address;
    // Cycles in which the host saw one more descriptor finished; they live as long as the run.
    const uint64_t *finished_at;
    uint64_t finished_count;
};

enum class State : int { running = 0, finished = 1, violation = 2, timeout = 3 };

// The host's register accesses, one a cycle; the twin of _Host in amaranth_backend.py.
class Host {
  public:
    explicit Host(const Config &config) : config_(config) {
        access(reg_program_low, true, uint32_t(config.program_address));
    }

    uint32_t address = 0;
    bool write = false;
    uint32_t write_data = 0;

    uint32_t status = 0;
    uint64_t cycles = 0;
    uint32_t words[kRegisterWords] = {};
    std::vector<uint64_t> finished_at;

    // End a cycle with its read data; returns true after the last access.
    bool step(uint32_t read_data) {
        ++cycle_;
        if (cycle_ == 1) {
            access(reg_program_high, true, uint32_t(config_.program_address >> 32));
        } else if (cycle_ == 2) {
            access(reg_control, true, start_bit);
        } else if (cycle_ == 3) {
            poll();
        } else if (cycles == 0) {
            if (polled_) {
                if ((read_data ^ status) >> 16)
                    finished_at.push_back(cycle_);
                status = read_data;
                if (!(read_data & busy_bit) && (read_data & finished_bits)) {
                    cycles = cycle_;
                    access(0, false, 0);
                    return false;
                }
            }
            // Read data belongs to the address of the cycle before, so this cycle's kind counts
            // in the next.
            polled_ = polling_;
            poll();
        } else {
            if (word_ > 0)
                words[word_ - 1] = read_data;
            if (word_ == kRegisterWords)
                return true;
            ++word_;
            access(word_ < kRegisterWords ? word_ : uint32_t(reg_status), false, 0);
        }
        return false;
    }

  private:
    void poll() {
        polling_ = cycle_ != config_.abort_at;
        if (polling_)
            access(reg_status, false, 0);
        else
            access(reg_control, true, abort_bit);
    }

    void access(uint32_t to, bool writes, uint32_t value) {
        address = to;
        write = writes;
        write_data = value;
    }

    const Config &config_;
    uint64_t cycle_ = 0;
    bool polled_ = false;
    bool polling_ = false;
    uint32_t word_ = 0;
};

template <class Device>
class Run {
  public:
    explicit Run(const Config &config)
        : config_(config), host_(config_),
          memory_(config.image, config.size, config.base, config.latency, config.thresholds,
                  uint32_t(config.seed), config.outstanding, config.faults, config.fault_count) {
        device_.reset(true);
        for (int i = 0; i < HALOCONV_RESET_CYCLES; ++i) {
            device_.settle();
            device_.edge();
        }
        device_.reset(false);
    }

    State run(uint64_t cycles) {
        while (cycles--) {
            drive();
            device_.settle();
            sample();
            const uint32_t read_data = device_.get_register_data();
            if (memory_.cycle >= config_.max_cycles && host_.cycles == 0)
                return State::timeout;
            violation_ = memory_.step(out_);
            if (violation_ != Violation::none)
                return State::violation;
            device_.edge();
            if (host_.step(read_data))
                return State::finished;
        }
        return State::running;
    }

    void result(Result &r) const {
        r.cycle = memory_.cycle;
        r.cycles = host_.cycles;
        for (uint32_t i = 0; i < kRegisterWords; ++i)
            r.words[i] = host_.words[i];
        r.requests = memory_.requests;
        r.read_beats = memory_.read_beats;
        r.write_beats = memory_.write_beats;
        r.written_bytes = memory_.written_bytes;
        r.violation = uint64_t(violation_);
        r.bad_address = memory_.bad_address;
        r.bad_beats = memory_.bad_beats;
        r.status = host_.status;
        r.request_valid = out_.request_valid;
        r.request_ready = memory_.request_ready;
        r.request_address = out_.request_address;
        r.request_beats = out_.request_beats;
        r.data_valid = memory_.data_valid;
        r.data_ready = out_.data_ready;
        r.beats_owed = memory_.beats_owed;
        r.write_valid = out_.write_valid;
        r.write_ready = memory_.write_ready;
        r.write_address = out_.write_address;
        r.finished_at = host_.finished_at.data();
        r.finished_count = host_.finished_at.size();
    }

  private:
    void drive() {
        device_.set_request_ready(memory_.request_ready);
        device_.set_data_valid(memory_.data_valid);
        uint32_t payload[words(kDataBits)] = {};
        for (unsigned i = 0; i < kBusBytes; ++i)
            payload[i / 4] |= uint32_t(memory_.data[i]) << 8 * (i % 4);
        payload[8 * kBusBytes / 32] |= uint32_t(memory_.data_error) << 8 * kBusBytes % 32;
        device_.set_data_payload(payload);
        device_.set_write_ready(memory_.write_ready);
        device_.set_write_error(memory_.write_error);
        device_.set_register_address(host_.address);
        device_.set_register_write(host_.write);
        device_.set_register_write_data(host_.write_data);
    }

    void sample() {
        out_.request_valid = device_.get_request_valid();
        if (out_.request_valid) {
            uint32_t payload[words(kRequestBits)];
            device_.get_request_payload(payload);
            out_.request_address = extract(payload, 0, kAddressBits);
            out_.request_beats = uint32_t(extract(payload, kAddressBits, kBeatsBits));
        }
        out_.data_ready = device_.get_data_ready();
        out_.write_valid = device_.get_write_valid();
        if (out_.write_valid) {
            uint32_t payload[words(kWriteBits)];
            device_.get_write_payload(payload);
            out_.write_address = extract(payload, 0, kAddressBits);
            for (unsigned i = 0; i < kBusBytes; ++i) {
                out_.write_data[i] = uint8_t(extract(payload, kAddressBits + 8 * i, 8));
                out_.write_strobe[i] =
                    uint8_t(extract(payload, kAddressBits + 8 * kBusBytes + i, 1));
            }
        }
    }

    const Config config_;
    Device device_;
    Host host_;
    MemoryModel<kBusBytes> memory_;
    Outputs<kBusBytes> out_ = {};
    Violation violation_ = Violation::none;
};

}  // namespace haloconv

#define HALOCONV_EXPORT(DEVICE)                                                                   \
    extern "C" {                                                                                  \
    void *haloconv_create(const haloconv::Config *config) {                                       \
        return new haloconv::Run<DEVICE>(*config);                                                \
    }                                                                                             \
    int haloconv_run(void *run, uint64_t cycles) {                                                \
        return int(static_cast<haloconv::Run<DEVICE> *>(run)->run(cycles));                       \
    }                                                                                             \
    void haloconv_result(const void *run, haloconv::Result *result) {                             \
        static_cast<const haloconv::Run<DEVICE> *>(run)->result(*result);                         \
    }                                                                                             \
    void haloconv_destroy(void *run) { delete static_cast<haloconv::Run<DEVICE> *>(run); }        \
    }
