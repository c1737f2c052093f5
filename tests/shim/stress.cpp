// A random program over several threads and streams whose every byte is known, while the shim moves
// extents. Usage: stress SEED MOVES SECONDS. Ends with "ok MOVES CHECKS" once MOVES moves have
// happened, or when the time is over.
//
// A block is sixteen segments of one value each; each thread owns its blocks, and orders its
// streams by events, so a host shadow of one word a segment tells all bytes. Blocks of an earlier
// round are persistent; hidden writers reach those of the current round alone.
#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>

namespace {

constexpr std::size_t kSegments = 16;
constexpr std::size_t kMiB = std::size_t{1} << 20;
std::atomic<std::uint64_t> g_checks{0};
using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const char* what, long code) {
    std::fprintf(stderr, "stress: %s: %ld\n", what, code);
    std::fflush(stderr);
    std::_Exit(3);
}
#define CHECK(call)                                                                                \
    do {                                                                                           \
        const CUresult result_ = (call);                                                           \
        if (result_ != CUDA_SUCCESS) fail(#call, result_);                                         \
    } while (0)

/// Moves so far, from the statistics file of this process.
class Moves {
public:
    Moves() {
        const char* folder = std::getenv("TRANSIT_RUN_DIR");
        if (folder == nullptr) return;
        const std::string path = std::string(folder) + "/" + std::to_string(getpid()) + ".stats";
        const int file = open(path.c_str(), O_RDONLY);
        if (file < 0) return;
        void* at = mmap(nullptr, 16384, PROT_READ, MAP_SHARED, file, 0);
        close(file);
        std::uint32_t count = 0;
        std::memcpy(&count, static_cast<char*>(at) + 20, 4);
        for (std::uint32_t i = 0; i < count; ++i) {
            const char* row = static_cast<char*>(at) + 32 + 64 * i;
            if (!std::strcmp(row, "offloads") || !std::strcmp(row, "prefetches"))
                values_.push_back(reinterpret_cast<const volatile std::uint64_t*>(row + 56));
        }
    }
    std::uint64_t count() const {
        std::uint64_t sum = 0;
        for (const auto* value : values_)
            sum += *value;
        return sum;
    }

private:
    std::vector<const volatile std::uint64_t*> values_;
};

struct Kernels {
    CUfunction fill, axpy, copy, increment, gather, build, hidden, spin, optimizer;
} g;
int (*g_hide)(std::uint32_t, unsigned long long, unsigned long long);

template <typename... Arguments>
void launch(CUfunction f, CUstream on, Arguments... arguments) {
    void* params[] = {&arguments...};
    CHECK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, on, params, nullptr));
}

struct Block {
    CUdeviceptr at = 0;
    std::size_t bytes = 0;
    int round = 0;
    bool ordered = false;  // from cuMemAllocAsync
    std::array<std::uint32_t, kSegments> value{};
    std::size_t words() const { return bytes / 4 / kSegments; }
    CUdeviceptr segment(std::size_t i) const { return at + i * words() * 4; }
};

class Worker {
public:
    Worker(CUcontext context, std::uint64_t seed, unsigned slot)
        : context_(context), state_(seed * 0x9E3779B97F4A7C15ULL + slot + 1), slot_(slot) {
        CHECK(cuStreamCreate(&streams_[0], CU_STREAM_NON_BLOCKING));
        CHECK(cuStreamCreate(&streams_[1], CU_STREAM_DEFAULT));
        CHECK(cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING));
        on_ = streams_[0];
        table_ = make(4 * kMiB, 0, false);
        for (int i = 0; i < 4; ++i)
            blocks_.push_back(make((4 + 2 * (i % 2)) * kMiB, 0, false));
    }

    /// Large blocks that are touched now and then: the ones that move most.
    void add_idle_blocks(int count) {
        blocks_.clear();
        for (int i = 0; i < count; ++i)
            blocks_.push_back(make(8 * kMiB, 0, false));
    }
    void touch_idle_blocks(const std::atomic<bool>& stop) {
        CHECK(cuCtxSetCurrent(context_));
        while (!stop.load()) {
            Block& block = any();
            const std::size_t s = random(kSegments);
            launch(g.increment, on_, block.segment(s), std::uint64_t{block.words()});
            block.value[s] += 1;
            if (random(2) == 0) copy(block, s, any(), random(kSegments));
            rest();
            check(any(), random(kSegments));
            rest();
        }
    }

    void work(int round, int operations) {
        CHECK(cuCtxSetCurrent(context_));
        for (int i = 0; i < operations; ++i)
            step(round);
        for (const Block& block : blocks_)
            for (std::size_t s = 0; s < kSegments; ++s)
                check(block, s);
        check_hidden();
    }

private:
    std::uint64_t random(std::uint64_t below) {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 7;
        state_ ^= state_ << 17;
        return (state_ >> 11) % below;
    }
    Block& any() { return blocks_[random(blocks_.size())]; }

    Block make(std::size_t bytes, int round, bool ordered) {
        Block block{0, bytes, round, ordered, {}};
        if (ordered) {
            if (cuMemAllocAsync(&block.at, bytes, on_) != CUDA_SUCCESS) return {};
        } else {
            CUresult result = cuMemAlloc(&block.at, bytes);
            if (result == CUDA_ERROR_OUT_OF_MEMORY) result = cuMemAlloc(&block.at, bytes);
            if (result == CUDA_ERROR_OUT_OF_MEMORY) return {};
            CHECK(result);
        }
        CHECK(cuMemsetD32Async(block.at, 0xABAB0000 + slot_, bytes / 4, on_));
        block.value.fill(0xABAB0000 + slot_);
        return block;
    }

    void check(const Block& block, std::size_t segment) {
        std::vector<std::uint32_t> got(block.words());
        CHECK(cuMemcpyDtoHAsync(got.data(), block.segment(segment), got.size() * 4, on_));
        CHECK(cuStreamSynchronize(on_));
        for (std::size_t i = 0; i < got.size(); ++i) {
            if (got[i] == block.value[segment]) continue;
            std::fprintf(stderr,
                         "stress: wrong word %zu of segment %zu of block %llx: %u, not %u\n", i,
                         segment, block.at, got[i], block.value[segment]);
            fail("wrong bytes", slot_);
        }
        g_checks.fetch_add(1);
    }

    void step(int round) {
        Block& block = any();
        const std::size_t s = random(kSegments);
        const auto value = static_cast<std::uint32_t>(random(1 << 30));
        const std::uint64_t words = block.words();
        switch (random(14)) {
        case 0:
            launch(g.fill, on_, block.segment(s), value, words);
            block.value[s] = value;
            break;
        case 1:
            CHECK(cuMemsetD32Async(block.segment(s), value, words, on_));
            block.value[s] = value;
            break;
        case 2:
        case 3:
            for (std::uint64_t i = 0; i < 3; ++i)
                launch(g.increment, on_, block.segment(s), words);
            block.value[s] += 3;
            break;
        case 4:
        case 5:
            copy(block, s, any(), random(kSegments));
            break;
        case 6: {
            const float x = static_cast<float>(value % 1000);
            const std::size_t other = (s + 1) % kSegments;
            launch(g.fill, on_, block.segment(s), std::bit_cast<std::uint32_t>(x), words);
            launch(g.fill, on_, block.segment(other), std::bit_cast<std::uint32_t>(x + 1), words);
            launch(g.axpy, on_, block.segment(s), block.segment(other), 3.0F, words);
            block.value[other] = std::bit_cast<std::uint32_t>(x + 1);
            block.value[s] = std::bit_cast<std::uint32_t>(x + 3.0F * (x + 1));
            break;
        }
        case 7:
            gather(block);
            break;
        case 8:
            if (blocks_.size() < 7) grow(round);
            break;
        case 9:
            if (blocks_.size() > 3) drop();
            break;
        case 10:
            hide(round, value);
            break;
        case 11:
            switch_stream();
            break;
        case 12:
            check(block, s);
            break;
        default:
            launch(g.spin, on_, std::uint64_t{1000} * random(200));
            if (random(3) == 0) rest();
        }
    }

    // Lets what runs be passed, so that this worker's blocks can move.
    void rest() {
        for (int i = 0; i < 17; ++i)
            launch(g.spin, on_, std::uint64_t{1});
        std::this_thread::sleep_for(std::chrono::microseconds(500 + random(3000)));
    }

    void copy(const Block& from, std::size_t s, Block& to, std::size_t t) {
        if (from.words() != to.words()) return;
        if (from.at == to.at && s == t) return;
        const std::size_t bytes = from.words() * 4;
        if (random(2)) {
            launch(g.copy, on_, to.segment(t), from.segment(s), std::uint64_t{bytes});
        } else {
            CHECK(cuMemcpyDtoDAsync(to.segment(t), from.segment(s), bytes, on_));
        }
        to.value[t] = from.value[s];
    }

    // Segments 0 to 3 of `to` from four segments of blocks of its size, through a table.
    void gather(Block& to) {
        std::array<std::uint64_t, 4> table{};
        std::array<std::uint32_t, 4> values{};
        for (std::size_t i = 0; i < 4; ++i) {
            const Block* from = &any();
            while (from->words() != to.words() || from->round == -1)
                from = &any();
            const std::size_t s = 4 + random(kSegments - 4);
            table[i] = from->segment(s);
            values[i] = from->value[s];
        }
        CHECK(cuMemcpyHtoDAsync(table_.at, table.data(), sizeof table, on_));
        launch(g.gather, on_, to.at, table_.at, std::uint64_t{4}, std::uint64_t{to.words()});
        for (std::size_t i = 0; i < 4; ++i)
            to.value[i] = values[i];
        CHECK(cuStreamSynchronize(on_));  // `table` is on this frame's stack
    }

    void grow(int round) {
        const Block block = make((4 + 2 * random(3)) * kMiB, round, random(2) != 0);
        if (block.at != 0) blocks_.push_back(block);
    }

    void drop() {
        const std::size_t i = random(blocks_.size());
        if (blocks_[i].at == hidden_.at) return;
        if (blocks_[i].ordered) {
            CHECK(cuMemFreeAsync(blocks_[i].at, on_));
        } else {
            CHECK(cuMemFree(blocks_[i].at));
        }
        blocks_.erase(blocks_.begin() + static_cast<long>(i));
    }

    // A block of its own, of the current round, that only unseen kernels write.
    void hide(int round, std::uint32_t value) {
        if (hidden_.at == 0 || hidden_.round != round) {
            check_hidden();
            if (hidden_.at != 0) CHECK(cuMemFree(hidden_.at));
            hidden_ = make(4 * kMiB, round, false);
            if (hidden_.at == 0) return;
            CHECK(cuStreamSynchronize(on_));
            g_hide(slot_, hidden_.at, hidden_.bytes);
        }
        launch(g.hidden, on_, static_cast<std::uint32_t>(slot_), value);
        hidden_.value.fill(value);
        if (random(4) == 0) check(hidden_, random(kSegments));
    }
    void check_hidden() {
        if (hidden_.at == 0) return;
        for (std::size_t s = 0; s < kSegments; ++s)
            check(hidden_, s);
    }

    void switch_stream() {
        CUstream next = on_ == streams_[0] ? streams_[1] : streams_[0];
        if (random(8) == 0) {  // this one ends with its work in flight
            CHECK(cuEventRecord(event_, on_));
            CHECK(cuStreamWaitEvent(next, event_, 0));
            CUstream& old = on_ == streams_[0] ? streams_[0] : streams_[1];
            CHECK(cuStreamDestroy(old));
            CHECK(cuStreamCreate(&old, CU_STREAM_NON_BLOCKING));
        } else {
            CHECK(cuEventRecord(event_, on_));
            CHECK(cuStreamWaitEvent(next, event_, 0));
        }
        on_ = next;
    }

    CUcontext context_;
    std::uint64_t state_;
    unsigned slot_;
    CUstream streams_[2]{};
    CUstream on_ = nullptr;
    CUevent event_ = nullptr;
    Block table_;
    Block hidden_;
    std::vector<Block> blocks_;
};

void nothing(void*, const void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned) {}

}  // namespace

int main(int count, char** arguments) {
    if (count < 4) return 2;
    const std::uint64_t seed = std::strtoull(arguments[1], nullptr, 10);
    const std::uint64_t wanted = std::strtoull(arguments[2], nullptr, 10);
    const auto end = Clock::now() + std::chrono::seconds(std::atoi(arguments[3]));
    void* simulator = dlopen(std::getenv("SIMULATOR"), RTLD_NOW | RTLD_LOCAL);
    if (simulator == nullptr) fail(dlerror(), 0);
    g_hide = reinterpret_cast<decltype(g_hide)>(dlsym(simulator, "transit_sim_hide"));
    using Register = int (*)(const char*, decltype(&nothing), void*, const unsigned*, unsigned);
    const unsigned size = 8;
    reinterpret_cast<Register>(dlsym(simulator, "transit_sim_register_kernel"))(
        "sim_fused_adamw", &nothing, nullptr, &size, 1);
    CUcontext context;
    CUmodule module;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, "image"));
    const std::pair<CUfunction*, const char*> names[] = {{&g.fill, "sim_fill"},
                                                         {&g.axpy, "sim_axpy"},
                                                         {&g.copy, "sim_copy"},
                                                         {&g.increment, "sim_increment"},
                                                         {&g.build, "sim_build_table"},
                                                         {&g.gather, "sim_gather_by_table"},
                                                         {&g.hidden, "sim_hidden_writer"},
                                                         {&g.spin, "sim_spin"},
                                                         {&g.optimizer, "sim_fused_adamw"}};
    for (const auto& [function, name] : names)
        CHECK(cuModuleGetFunction(function, module, name));

    std::vector<Worker> workers;
    for (unsigned i = 0; i < 3; ++i)
        workers.emplace_back(context, seed, i);
    Worker idle(context, seed, 9);
    idle.add_idle_blocks(12);
    const Moves moves;
    for (int round = 1; moves.count() < wanted && Clock::now() < end; ++round) {
        launch(g.optimizer, nullptr, std::uint64_t{0});
        launch(g.spin, nullptr, std::uint64_t{1});
        CHECK(cuCtxSynchronize());
        std::vector<std::thread> threads;
        for (Worker& worker : workers)
            threads.emplace_back([&worker, round] { worker.work(round, 120); });
        std::atomic<bool> stop{false};
        std::thread toucher([&] { idle.touch_idle_blocks(stop); });
        for (std::thread& thread : threads)
            thread.join();
        stop = true;
        toucher.join();
    }
    idle.work(0, 0);
    CHECK(cuCtxSynchronize());
    std::printf("ok %llu %llu\n", static_cast<unsigned long long>(moves.count()),
                static_cast<unsigned long long>(g_checks.load()));
    return 0;
}
