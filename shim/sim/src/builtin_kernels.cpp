// The kernels every test may use. Each names its parameters as a struct laid out as they are
// packed.
#include <cstring>

#include "hooks.hpp"
#include "kernels.hpp"
#include "truth_log.hpp"

namespace transit::sim {
namespace {

struct Fill {
    std::uint32_t* dst;
    std::uint32_t value;
    std::uint64_t count;
};
void fill(const Fill& p) {
    for (std::uint64_t i = 0; i < p.count; ++i) {
        p.dst[i] = p.value;
    }
}

struct Axpy {
    float* y;
    const float* x;
    float a;
    std::uint64_t count;
};
void axpy(const Axpy& p) {
    for (std::uint64_t i = 0; i < p.count; ++i) {
        p.y[i] += p.a * p.x[i];
    }
}

struct Copy {
    void* dst;
    const void* src;
    std::uint64_t bytes;
};
void copy(const Copy& p) { std::memmove(p.dst, p.src, p.bytes); }

struct Increment {
    std::uint32_t* values;
    std::uint64_t count;
};
void increment(const Increment& p) {
    for (std::uint64_t i = 0; i < p.count; ++i) {
        ++p.values[i];
    }
}

// FNV-1a over bytes: order matters, so swapped extents are noticed.
struct Checksum {
    const unsigned char* data;
    std::uint64_t bytes;
    std::uint64_t* out;
};
void checksum(const Checksum& p) {
    std::uint64_t hash = 14695981039346656037U;
    for (std::uint64_t i = 0; i < p.bytes; ++i) {
        hash = (hash ^ p.data[i]) * 1099511628211U;
    }
    *p.out = hash;
}

// Reads through addresses that stand in device memory, as FSDP2's chunk_cat does.
struct GatherByTable {
    float* dst;
    const std::uint64_t* table;
    std::uint64_t count;
    std::uint64_t floats_each;
};
void gather_by_table(const GatherByTable& p) {
    for (std::uint64_t i = 0; i < p.count; ++i) {
        std::memcpy(p.dst + i * p.floats_each, reinterpret_cast<const float*>(p.table[i]),
                    p.floats_each * sizeof(float));
    }
}

// Makes such a table on the device: the host never sees the addresses in it.
struct BuildTable {
    std::uint64_t* table;
    std::uint64_t base;
    std::uint64_t stride_bytes;
    std::uint64_t count;
};
void build_table(const BuildTable& p) {
    for (std::uint64_t i = 0; i < p.count; ++i) {
        p.table[i] = p.base + i * p.stride_bytes;
    }
}

// Writes where no parameter points: the slot was filled by transit_sim_hide.
struct HiddenWriter {
    std::uint32_t slot;
    std::uint32_t value;
};
void hidden_writer(const HiddenWriter& p) {
    const HiddenRange range = hidden_range(p.slot);
    auto* const words = reinterpret_cast<std::uint32_t*>(range.address);
    for (std::uint64_t i = 0; i < range.bytes / sizeof(std::uint32_t); ++i) {
        words[i] = p.value;
    }
}

struct Spin {
    std::uint64_t duration_ns;
};
void spin(const Spin& p) {
    for (const std::uint64_t end = now_ns() + p.duration_ns; now_ns() < end;) {
    }
}

template <class Parameters, void (*kBody)(const Parameters&)>
void run(void*, const void* packed, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned) {
    kBody(*static_cast<const Parameters*>(packed));
}

template <class Parameters, void (*kBody)(const Parameters&)>
void add(const char* name, std::initializer_list<unsigned> sizes) {
    register_kernel(name, &run<Parameters, kBody>, nullptr, sizes.begin(),
                    static_cast<unsigned>(sizes.size()));
}

}  // namespace

void register_builtin_kernels() {
    add<Fill, fill>("sim_fill", {8, 4, 8});
    add<Axpy, axpy>("sim_axpy", {8, 8, 4, 8});
    add<Copy, copy>("sim_copy", {8, 8, 8});
    add<Increment, increment>("sim_increment", {8, 8});
    add<Checksum, checksum>("sim_checksum", {8, 8, 8});
    add<GatherByTable, gather_by_table>("sim_gather_by_table", {8, 8, 8, 8});
    add<BuildTable, build_table>("sim_build_table", {8, 8, 8, 8});
    add<HiddenWriter, hidden_writer>("sim_hidden_writer", {4, 4});
    add<Spin, spin>("sim_spin", {8});
}

}  // namespace transit::sim
