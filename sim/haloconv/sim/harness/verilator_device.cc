// The engine as Verilator's model, behind the harness. `Vdevice.h` is written by Verilator, which
// spells a double underscore in a port's name as ___05F.
#include <memory>

#include "Vdevice.h"
#include "haloconv_harness.h"
#include "verilated.h"

namespace {

// Ports of up to 64 bits are plain integers, wider ones arrays of 32-bit words.
inline void copy(uint64_t port, uint32_t *words, unsigned count) {
    for (unsigned i = 0; i < count; ++i)
        words[i] = uint32_t(port >> 32 * i);
}

template <std::size_t Words>
void copy(const VlWide<Words> &port, uint32_t *words, unsigned) {
    for (std::size_t i = 0; i < Words; ++i)
        words[i] = port[i];
}

template <class Integer>
void assign(Integer &port, const uint32_t *words, unsigned count) {
    uint64_t value = 0;
    for (unsigned i = 0; i < count; ++i)
        value |= uint64_t(words[i]) << 32 * i;
    port = Integer(value);
}

template <std::size_t Words>
void assign(VlWide<Words> &port, const uint32_t *words, unsigned) {
    for (std::size_t i = 0; i < Words; ++i)
        port[i] = words[i];
}

class Device {
  public:
    void reset(bool on) { top_->rst = on; }
    void settle() {
        top_->clk = 0;
        top_->eval();
    }
    void edge() {
        top_->clk = 1;
        top_->eval();
    }

    bool get_request_valid() const { return top_->memory___05Fread_request___05Fvalid; }
    void get_request_payload(uint32_t *words) const {
        copy(top_->memory___05Fread_request___05Fpayload, words, haloconv::words(haloconv::kRequestBits));
    }
    bool get_data_ready() const { return top_->memory___05Fread_data___05Fready; }
    bool get_write_valid() const { return top_->memory___05Fwrite___05Fvalid; }
    void get_write_payload(uint32_t *words) const {
        copy(top_->memory___05Fwrite___05Fpayload, words, haloconv::words(haloconv::kWriteBits));
    }
    uint32_t get_register_data() const { return top_->registers___05Fread_data; }

    void set_request_ready(bool on) { top_->memory___05Fread_request___05Fready = on; }
    void set_data_valid(bool on) { top_->memory___05Fread_data___05Fvalid = on; }
    void set_data_payload(const uint32_t *words) {
        assign(top_->memory___05Fread_data___05Fpayload, words, haloconv::words(haloconv::kDataBits));
    }
    void set_write_ready(bool on) { top_->memory___05Fwrite___05Fready = on; }
    void set_write_error(bool on) { top_->memory___05Fwrite_error = on; }
    void set_register_address(uint32_t value) { top_->registers___05Faddress = uint8_t(value); }
    void set_register_write(bool on) { top_->registers___05Fwrite = on; }
    void set_register_write_data(uint32_t value) { top_->registers___05Fwrite_data = value; }

  private:
    std::unique_ptr<VerilatedContext> context_ = std::make_unique<VerilatedContext>();
    std::unique_ptr<Vdevice> top_ = std::make_unique<Vdevice>(context_.get());
};

}  // namespace

HALOCONV_EXPORT(Device)
