// A board's system as CXXRTL, with the far end of its serial line, behind a C interface.
// `device.h` and `device.cc` are written by Yosys.
#include <cstdint>
#include <deque>
#include <vector>

#include "device.h"

namespace {

bool level(const cxxrtl::value<1> &port) { return bool(port); }
// Outputs that a register drives come as a wire, present and next value.
bool level(const cxxrtl::wire<1> &port) { return bool(port.curr); }

class Board {
  public:
    Board(uint64_t bit_cycles, uint64_t gaps, uint64_t seed)
        : bit_(bit_cycles), gaps_(gaps), random_(seed * 2654435761u + 1) {
        top_.p_rst.set<bool>(true);
        step(true);
        step(true);
        top_.p_rst.set<bool>(false);
    }

    void send(const uint8_t *data, uint64_t count) { out_.insert(out_.end(), data, data + count); }

    // Run until `wanted` bytes are there, or nothing happened for `quiet` cycles.
    void run(uint64_t wanted, uint64_t quiet) {
        uint64_t still = 0;
        while (in_.size() < wanted && still < quiet) {
            const size_t before = in_.size();
            const bool busy = sending() || at_ >= 0;
            receive(step(next()));
            still = busy || in_.size() != before ? 0 : still + 1;
        }
    }

    uint64_t take(uint8_t *data, uint64_t most) {
        uint64_t count = 0;
        for (; count < most && !in_.empty(); ++count, in_.pop_front())
            data[count] = in_.front();
        return count;
    }

    uint64_t cycle() const { return cycle_; }
    uint64_t faults() const { return faults_; }

  private:
    bool step(bool rx) {
        top_.p_rx.set<bool>(rx);
        top_.p_clk.set<bool>(false);
        top_.step();
        const bool tx = level(top_.p_tx);
        top_.p_clk.set<bool>(true);
        top_.eval(nullptr);
        top_.commit();
        ++cycle_;
        return tx;
    }

    bool sending() const { return !out_.empty() || left_ != 0 || place_ < 10; }

    // Level of the line in the next cycle.
    bool next() {
        if (left_ == 0) {
            if (place_ < 10) {
                line_ = frame_ >> place_++ & 1;
                left_ = bit_;
            } else if (!out_.empty()) {
                frame_ = 1u << 9 | uint32_t(out_.front()) << 1;
                out_.pop_front();
                place_ = 0;
                line_ = true;
                random_ = random_ * 6364136223846793005u + 1442695040888963407u;
                left_ = gaps_ ? (random_ >> 33) % (gaps_ + 1) : 0;
                return left_ == 0 ? next() : (--left_, true);
            } else {
                return true;
            }
        }
        --left_;
        return line_;
    }

    void receive(bool tx) {
        if (at_ < 0) {
            if (tx)
                return;
            at_ = 0;
            byte_ = 0;
        }
        const uint64_t bit = uint64_t(at_) / bit_;
        if (uint64_t(at_) % bit_ == bit_ / 2) {
            if (bit >= 1 && bit <= 8)
                byte_ |= uint32_t(tx) << (bit - 1);
            else if (tx != (bit == 9))
                ++faults_;
        }
        if (uint64_t(++at_) == 10 * bit_) {
            in_.push_back(uint8_t(byte_));
            at_ = -1;
        }
    }

    cxxrtl_design::p_device top_;
    const uint64_t bit_, gaps_;
    uint64_t random_;
    uint64_t cycle_ = 0, faults_ = 0;
    std::deque<uint8_t> out_, in_;
    uint32_t frame_ = 0;
    unsigned place_ = 10;
    uint64_t left_ = 0;
    bool line_ = true;
    int64_t at_ = -1;
    uint32_t byte_ = 0;
};

}  // namespace

extern "C" {
void *haloconv_board_create(uint64_t bit_cycles, uint64_t gaps, uint64_t seed) {
    return new Board(bit_cycles, gaps, seed);
}
void haloconv_board_destroy(void *board) { delete static_cast<Board *>(board); }
void haloconv_board_send(void *board, const uint8_t *data, uint64_t count) {
    static_cast<Board *>(board)->send(data, count);
}
uint64_t haloconv_board_read(void *board, uint8_t *data, uint64_t wanted, uint64_t quiet) {
    static_cast<Board *>(board)->run(wanted, quiet);
    return static_cast<Board *>(board)->take(data, wanted);
}
uint64_t haloconv_board_cycle(void *board) { return static_cast<Board *>(board)->cycle(); }
uint64_t haloconv_board_faults(void *board) { return static_cast<Board *>(board)->faults(); }
}
