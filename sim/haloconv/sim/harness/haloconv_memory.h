// Memory behind the engine's ports: latency, random stalls, bus errors and protocol checks.
//
// The twin of MemoryModel in memory.py, which documents the behaviour. The two agree cycle for
// cycle, random numbers included; a change of behaviour in one has to be made in the other.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

namespace haloconv {

constexpr uint32_t kBurstBeats = 256;
constexpr uint64_t kBurstBytes = 4096;

// Numbers of `Violation` in memory.py.
enum class Violation : uint32_t {
    none = 0,
    request_fell = 1,
    request_changed = 2,
    request_beats = 3,
    request_unaligned = 4,
    request_crosses = 5,
    write_fell = 6,
    write_changed = 7,
    write_unaligned = 8,
};

class StallGenerator {
  public:
    StallGenerator(uint32_t seed, uint32_t port, uint64_t threshold) : threshold_(threshold) {
        uint32_t x = seed + 0x9E3779B9u * (port + 1);
        x ^= x >> 16;
        x *= 0x85EBCA6Bu;
        x ^= x >> 13;
        x *= 0xC2B2AE35u;
        x ^= x >> 16;
        state_ = x ? x : 1;
    }

    bool draw() {
        uint32_t x = state_;
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        state_ = x;
        return x < threshold_;
    }

  private:
    uint32_t state_;
    uint64_t threshold_;
};

struct Fault {
    uint64_t start;
    uint64_t end;
};

// What the device under test drives in one cycle.
template <unsigned BusBytes>
struct Outputs {
    bool request_valid;
    uint64_t request_address;
    uint32_t request_beats;
    bool data_ready;
    bool write_valid;
    uint64_t write_address;
    uint8_t write_data[BusBytes];
    uint8_t write_strobe[BusBytes];  // one byte for each lane, 0 or 1
};

template <unsigned BusBytes>
class MemoryModel {
  public:
    MemoryModel(uint8_t *image, uint64_t size, uint64_t base, uint64_t latency,
                const uint64_t thresholds[3], uint32_t seed, uint64_t outstanding,
                const Fault *faults, uint64_t fault_count)
        : image_(image), size_(size), base_(base), latency_(latency), outstanding_(outstanding),
          faults_(faults, faults + fault_count), request_stall_(seed, 0, thresholds[0]),
          data_stall_(seed, 1, thresholds[1]), write_stall_(seed, 2, thresholds[2]) {
        drive();
    }

    // Levels that the model drives in the present cycle.
    bool request_ready = false;
    bool data_valid = false;
    bool data_error = false;
    bool write_ready = false;
    bool write_error = false;
    uint8_t data[BusBytes] = {};

    uint64_t cycle = 0;

    uint64_t requests = 0;
    uint64_t read_beats = 0;
    uint64_t write_beats = 0;
    uint64_t written_bytes = 0;
    uint64_t beats_owed = 0;

    // Set by a violation.
    uint64_t bad_address = 0;
    uint32_t bad_beats = 0;

    // End the present cycle and begin the next.
    Violation step(const Outputs<BusBytes> &out) {
        if (request_held_) {
            if (!out.request_valid)
                return violate(Violation::request_fell, held_.request_address,
                               held_.request_beats);
            if (out.request_address != held_.request_address ||
                out.request_beats != held_.request_beats)
                return violate(Violation::request_changed, out.request_address,
                               out.request_beats);
        } else if (out.request_valid) {
            const Violation violation = check_request(out.request_address, out.request_beats);
            if (violation != Violation::none)
                return violate(violation, out.request_address, out.request_beats);
        }
        if (write_held_) {
            if (!out.write_valid)
                return violate(Violation::write_fell, held_.write_address, 0);
            if (out.write_address != held_.write_address ||
                std::memcmp(out.write_data, held_.write_data, BusBytes) != 0 ||
                std::memcmp(out.write_strobe, held_.write_strobe, BusBytes) != 0)
                return violate(Violation::write_changed, out.write_address, 0);
        } else if (out.write_valid && out.write_address % BusBytes) {
            return violate(Violation::write_unaligned, out.write_address, 0);
        }

        request_held_ = false;
        if (out.request_valid) {
            if (request_ready) {
                accept_request(out.request_address, out.request_beats);
            } else {
                request_held_ = true;
                held_.request_address = out.request_address;
                held_.request_beats = out.request_beats;
            }
        }
        if (data_valid && out.data_ready) {
            data_valid = false;
            ++read_beats;
            --beats_owed;
            in_flight_ -= last_;
        }
        write_error = false;
        write_held_ = false;
        if (out.write_valid) {
            if (write_ready) {
                accept_write(out);
            } else {
                write_held_ = true;
                held_.write_address = out.write_address;
                std::memcpy(held_.write_data, out.write_data, BusBytes);
                std::memcpy(held_.write_strobe, out.write_strobe, BusBytes);
            }
        }

        ++cycle;
        drive();
        return Violation::none;
    }

  private:
    struct Burst {
        uint64_t release;
        uint64_t address;
        uint32_t beats;
        uint32_t position;
        std::vector<uint8_t> data;
    };

    void drive() {
        request_ready =
            !request_stall_.draw() && (outstanding_ == 0 || in_flight_ < outstanding_);
        const bool stalled = data_stall_.draw();
        if (!data_valid && !bursts_.empty() && !stalled && bursts_.front().release <= cycle) {
            Burst &burst = bursts_.front();
            const uint64_t offset = uint64_t(burst.position) * BusBytes;
            data_valid = true;
            data_error = fails(burst.address + offset);
            if (data_error)
                std::memset(data, 0, BusBytes);
            else
                std::memcpy(data, burst.data.data() + offset, BusBytes);
            last_ = ++burst.position == burst.beats;
            if (last_)
                bursts_.pop_front();
        }
        write_ready = !write_stall_.draw();
    }

    static Violation check_request(uint64_t address, uint32_t beats) {
        if (beats < 1 || beats > kBurstBeats)
            return Violation::request_beats;
        if (address % BusBytes)
            return Violation::request_unaligned;
        if (address % kBurstBytes + uint64_t(beats) * BusBytes > kBurstBytes)
            return Violation::request_crosses;
        return Violation::none;
    }

    void accept_request(uint64_t address, uint32_t beats) {
        const uint64_t length = uint64_t(beats) * BusBytes;
        Burst burst{cycle + latency_, address, beats, 0, std::vector<uint8_t>(length)};
        for (uint64_t i = 0; i < length; i += BusBytes) {
            if (!inside(address + i))
                continue;
            const uint64_t start = address + i - base_;
            const uint64_t room = size_ - start;
            std::memcpy(burst.data.data() + i, image_ + start, room < BusBytes ? room : BusBytes);
        }
        bursts_.push_back(std::move(burst));
        ++in_flight_;
        beats_owed += beats;
        ++requests;
    }

    void accept_write(const Outputs<BusBytes> &out) {
        ++write_beats;
        write_error = fails(out.write_address);
        const uint64_t start = out.write_address - base_;
        for (uint64_t lane = 0; lane < BusBytes && !write_error; ++lane)
            write_error = out.write_strobe[lane] && start + lane >= size_;
        if (write_error)
            return;
        for (uint64_t lane = 0; lane < BusBytes; ++lane) {
            if (out.write_strobe[lane]) {
                image_[start + lane] = out.write_data[lane];
                ++written_bytes;
            }
        }
    }

    bool inside(uint64_t address) const { return address >= base_ && address - base_ < size_; }

    bool fails(uint64_t address) const {
        if (!inside(address))
            return true;
        for (const Fault &fault : faults_)
            if (fault.start <= address + (BusBytes - 1) && address < fault.end)
                return true;
        return false;
    }

    Violation violate(Violation violation, uint64_t address, uint32_t beats) {
        bad_address = address;
        bad_beats = beats;
        return violation;
    }

    uint8_t *image_;
    uint64_t size_;
    uint64_t base_;
    uint64_t latency_;
    uint64_t outstanding_;  // 0 for no limit
    std::vector<Fault> faults_;
    StallGenerator request_stall_;
    StallGenerator data_stall_;
    StallGenerator write_stall_;
    std::deque<Burst> bursts_;
    uint64_t in_flight_ = 0;
    bool last_ = false;
    bool request_held_ = false;
    bool write_held_ = false;
    Outputs<BusBytes> held_ = {};
};

}  // namespace haloconv
