// Faster slices and concatenations for CXXRTL's runtime.
//
// The runtime takes a slice by shifting the whole value, chunk by chunk, and cutting the result: 80
// steps for one bit of a 2560-bit register, unrolled or looped at every use. These partial
// specialisations touch only the chunks that hold the slice. They must be seen before the generated
// code uses a slice.
//
// It puts a value of many parts together by a value of the first two, another of that and the third,
// and so on: 600 chunks for a word of 64 weights. Here each part goes to its place at once.
#pragma once

#include <cxxrtl/cxxrtl.h>

namespace cxxrtl {

template <size_t Stop, size_t Start, size_t Bits>
CXXRTL_ALWAYS_INLINE value<Stop - Start + 1> haloconv_cut(const value<Bits> &from) {
    static_assert(Start <= Stop && Stop < Bits, "slice must lie within the value");
    constexpr size_t width = sizeof(chunk_t) * 8;
    constexpr size_t first = Start / width;
    constexpr size_t last = Stop / width;
    constexpr size_t shift = Start % width;
    value<Stop - Start + 1> result;
    for (size_t n = 0; n < result.chunks; n++) {
        chunk_t chunk = from.data[first + n] >> shift;
        if (shift != 0 && first + n + 1 <= last)
            chunk |= from.data[first + n + 1] << (width - shift) % width;
        result.data[n] = chunk;
    }
    result.data[result.chunks - 1] &= result.msb_mask;
    return result;
}

template <size_t Stop, size_t Start, size_t Bits>
CXXRTL_ALWAYS_INLINE void haloconv_paste(value<Bits> &to, const value<Stop - Start + 1> &from) {
    static_assert(Start <= Stop && Stop < Bits, "slice must lie within the value");
    constexpr size_t width = sizeof(chunk_t) * 8;
    constexpr size_t shift = Start % width;
    constexpr chunk_t ones = chunk_traits<chunk_t>::mask;
    for (size_t n = Start / width; n <= Stop / width; n++) {
        const size_t source = n - Start / width;
        chunk_t mask = ones;
        if (n == Start / width)
            mask &= ones << shift;
        if (n == Stop / width)
            mask &= ones >> (width - 1 - Stop % width);
        chunk_t chunk = source < from.chunks ? from.data[source] << shift : 0;
        if (shift != 0 && source > 0)
            chunk |= from.data[source - 1] >> (width - shift) % width;
        to.data[n] = (to.data[n] & ~mask) | (chunk & mask);
    }
}

template <size_t Bits, size_t Stop, size_t Start>
struct slice_expr<const value<Bits>, Stop, Start>
    : public expr_base<slice_expr<const value<Bits>, Stop, Start>> {
    static constexpr size_t bits = Stop - Start + 1;

    const value<Bits> &expr;

    slice_expr(const value<Bits> &expr) : expr(expr) {}
    slice_expr(const slice_expr &) = delete;

    CXXRTL_ALWAYS_INLINE
    operator value<bits>() const { return haloconv_cut<Stop, Start>(expr); }

    CXXRTL_ALWAYS_INLINE
    value<bits> val() const { return haloconv_cut<Stop, Start>(expr); }
};

template <size_t Bits, size_t Stop, size_t Start>
struct slice_expr<value<Bits>, Stop, Start>
    : public expr_base<slice_expr<value<Bits>, Stop, Start>> {
    static constexpr size_t bits = Stop - Start + 1;

    value<Bits> &expr;

    slice_expr(value<Bits> &expr) : expr(expr) {}
    slice_expr(const slice_expr &) = delete;

    CXXRTL_ALWAYS_INLINE
    operator value<bits>() const { return haloconv_cut<Stop, Start>(expr); }

    CXXRTL_ALWAYS_INLINE
    slice_expr &operator=(const value<bits> &from) {
        haloconv_paste<Stop, Start>(expr, from);
        return *this;
    }

    CXXRTL_ALWAYS_INLINE
    value<bits> val() const { return haloconv_cut<Stop, Start>(expr); }
};

template <size_t At, class Part, size_t Bits>
CXXRTL_ALWAYS_INLINE void haloconv_fill(value<Bits> &to, const Part &part) {
    haloconv_paste<At + Part::bits - 1, At>(to, static_cast<const value<Part::bits> &>(part));
}

template <size_t At, class High, class Low, size_t Bits>
CXXRTL_ALWAYS_INLINE void haloconv_fill(value<Bits> &to, const concat_expr<High, Low> &parts) {
    haloconv_fill<At>(to, parts.ls_expr);
    haloconv_fill<At + Low::bits>(to, parts.ms_expr);
}

template <class Many, class Low>
struct haloconv_parts : public expr_base<concat_expr<Many, Low>> {
    static constexpr size_t bits = Many::bits + Low::bits;

    Many &ms_expr;
    Low &ls_expr;

    haloconv_parts(Many &ms_expr, Low &ls_expr) : ms_expr(ms_expr), ls_expr(ls_expr) {}
    haloconv_parts(const haloconv_parts &) = delete;

    CXXRTL_ALWAYS_INLINE
    operator value<bits>() const { return val(); }

    CXXRTL_ALWAYS_INLINE
    haloconv_parts &operator=(const value<bits> &from) {
        ms_expr = haloconv_cut<bits - 1, Low::bits>(from);
        ls_expr = haloconv_cut<Low::bits - 1, 0>(from);
        return *this;
    }

    CXXRTL_ALWAYS_INLINE
    value<bits> val() const {
        value<bits> whole;
        haloconv_fill<0>(whole, ls_expr);
        haloconv_fill<Low::bits>(whole, ms_expr);
        return whole;
    }
};

template <class High, class Middle, class Low>
struct concat_expr<const concat_expr<High, Middle>, Low>
    : public haloconv_parts<const concat_expr<High, Middle>, Low> {
    using haloconv_parts<const concat_expr<High, Middle>, Low>::haloconv_parts;
    using haloconv_parts<const concat_expr<High, Middle>, Low>::operator=;
};

template <class High, class Middle, class Low>
struct concat_expr<concat_expr<High, Middle>, Low>
    : public haloconv_parts<concat_expr<High, Middle>, Low> {
    using haloconv_parts<concat_expr<High, Middle>, Low>::haloconv_parts;
    using haloconv_parts<concat_expr<High, Middle>, Low>::operator=;
};

}  // namespace cxxrtl
