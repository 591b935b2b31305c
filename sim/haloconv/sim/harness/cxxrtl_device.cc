// The engine as CXXRTL, behind the harness. `device.h` is written by Yosys.
#include "device.h"
#include "haloconv_harness.h"

namespace {

template <size_t Bits>
const cxxrtl::value<Bits> &level(const cxxrtl::value<Bits> &port) {
    return port;
}

// Outputs that a register drives come as a wire, present and next value.
template <size_t Bits>
const cxxrtl::value<Bits> &level(const cxxrtl::wire<Bits> &port) {
    return port.curr;
}

template <size_t Bits>
void copy(const cxxrtl::value<Bits> &port, uint32_t *words) {
    for (size_t i = 0; i < cxxrtl::value<Bits>::chunks; ++i)
        words[i] = port.data[i];
}

class Device {
  public:
    void reset(bool on) { top_.p_rst.set<bool>(on); }
    void settle() {
        top_.p_clk.set<bool>(false);
        top_.step();
    }
    void edge() {
        // Registers take over values that `settle` has made final, so one pass is enough; what
        // follows from them waits for the next `settle`, together with the new inputs.
        top_.p_clk.set<bool>(true);
        top_.eval(nullptr);
        top_.commit();
    }

    bool get_request_valid() const { return bool(level(top_.p_memory____read__request____valid)); }
    void get_request_payload(uint32_t *words) const {
        copy(level(top_.p_memory____read__request____payload), words);
    }
    bool get_data_ready() const { return bool(level(top_.p_memory____read__data____ready)); }
    bool get_write_valid() const { return bool(level(top_.p_memory____write____valid)); }
    void get_write_payload(uint32_t *words) const {
        copy(level(top_.p_memory____write____payload), words);
    }
    uint32_t get_register_data() const {
        return level(top_.p_registers____read__data).data[0];
    }

    void set_request_ready(bool on) { top_.p_memory____read__request____ready.set<bool>(on); }
    void set_data_valid(bool on) { top_.p_memory____read__data____valid.set<bool>(on); }
    void set_data_payload(const uint32_t *words) {
        auto &port = top_.p_memory____read__data____payload;
        for (size_t i = 0; i < haloconv::words(haloconv::kDataBits); ++i)
            port.data[i] = words[i];
    }
    void set_write_ready(bool on) { top_.p_memory____write____ready.set<bool>(on); }
    void set_write_error(bool on) { top_.p_memory____write__error.set<bool>(on); }
    void set_register_address(uint32_t value) { top_.p_registers____address.data[0] = value; }
    void set_register_write(bool on) { top_.p_registers____write.set<bool>(on); }
    void set_register_write_data(uint32_t value) {
        top_.p_registers____write__data.data[0] = value;
    }

  private:
    cxxrtl_design::p_device top_;
};

}  // namespace

HALOCONV_EXPORT(Device)
