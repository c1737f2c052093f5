#include "reduce.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace transit::sim::nccl {
namespace {

// How values of a type are held while they are reduced.
template <class Stored>
struct Plain {
    using Value = Stored;
    static Value load(Stored stored) { return stored; }
    static Stored store(Value value) { return value; }
};

struct Bfloat16 {
    using Value = float;
    static float load(std::uint16_t stored) {
        return std::bit_cast<float>(std::uint32_t{stored} << 16);
    }
    static std::uint16_t store(float value) {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        if (std::isnan(value)) {
            return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
        }
        return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >>
                                          16);  // nearest even
    }
};

struct Half {
    using Value = float;
    static float load(std::uint16_t stored) {
        const std::uint32_t sign = (stored & 0x8000U) << 16;
        const std::uint32_t exponent = (stored >> 10) & 0x1FU;
        const std::uint32_t fraction = stored & 0x3FFU;
        if (exponent == 0) {  // zero and subnormal: fraction / 2^24
            const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
            return sign != 0 ? -magnitude : magnitude;
        }
        const std::uint32_t wide = exponent == 31 ? 255U : exponent + 112U;
        return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
    }
    static std::uint16_t store(float value) {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
        const float magnitude = std::fabs(value);
        if (std::isnan(value)) {
            return static_cast<std::uint16_t>(sign | 0x7E00U);
        }
        if (magnitude >= 65520.0F) {
            return static_cast<std::uint16_t>(sign | 0x7C00U);
        }
        if (magnitude < 0x1p-14F) {  // subnormal; rounds to nearest even
            return static_cast<std::uint16_t>(
                sign | static_cast<std::uint16_t>(std::nearbyintf(magnitude * 0x1p24F)));
        }
        std::uint32_t rounded = (bits & 0x7FFFFFFFU) + 0xFFFU + ((bits >> 13) & 1U);
        rounded -= 112U << 23;
        return static_cast<std::uint16_t>(sign | (rounded >> 13));
    }
};

template <class Value>
Value combine(Value a, Value b, ncclRedOp_t op) {
    switch (op) {
    case ncclProd:
        return static_cast<Value>(a * b);
    case ncclMax:
        return std::max(a, b);
    case ncclMin:
        return std::min(a, b);
    default:
        return static_cast<Value>(a + b);
    }
}

template <class Stored, class As>
void reduce_as(void* out, const void* const* inputs, int ranks, std::size_t count, ncclRedOp_t op) {
    auto* const result = static_cast<Stored*>(out);
    for (std::size_t i = 0; i < count; ++i) {
        typename As::Value value = As::load(static_cast<const Stored*>(inputs[0])[i]);
        for (int rank = 1; rank < ranks; ++rank) {
            value = combine(value, As::load(static_cast<const Stored*>(inputs[rank])[i]), op);
        }
        if (op == ncclAvg) {
            value = static_cast<typename As::Value>(value / static_cast<typename As::Value>(ranks));
        }
        result[i] = As::store(value);
    }
}

}  // namespace

std::size_t bytes_of(ncclDataType_t type) {
    switch (type) {
    case ncclInt8:
    case ncclUint8:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
        return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
        return 8;
    default:
        return 0;
    }
}

void reduce(void* out, const void* const* inputs, int ranks, std::size_t count, ncclDataType_t type,
            ncclRedOp_t op) {
    switch (type) {
    case ncclInt8:
        return reduce_as<std::int8_t, Plain<std::int8_t>>(out, inputs, ranks, count, op);
    case ncclUint8:
        return reduce_as<std::uint8_t, Plain<std::uint8_t>>(out, inputs, ranks, count, op);
    case ncclInt32:
        return reduce_as<std::int32_t, Plain<std::int32_t>>(out, inputs, ranks, count, op);
    case ncclUint32:
        return reduce_as<std::uint32_t, Plain<std::uint32_t>>(out, inputs, ranks, count, op);
    case ncclInt64:
        return reduce_as<std::int64_t, Plain<std::int64_t>>(out, inputs, ranks, count, op);
    case ncclUint64:
        return reduce_as<std::uint64_t, Plain<std::uint64_t>>(out, inputs, ranks, count, op);
    case ncclFloat16:
        return reduce_as<std::uint16_t, Half>(out, inputs, ranks, count, op);
    case ncclBfloat16:
        return reduce_as<std::uint16_t, Bfloat16>(out, inputs, ranks, count, op);
    case ncclFloat32:
        return reduce_as<float, Plain<float>>(out, inputs, ranks, count, op);
    case ncclFloat64:
        return reduce_as<double, Plain<double>>(out, inputs, ranks, count, op);
    }
}

}  // namespace transit::sim::nccl
