// The statistics file. Its reader treats it as untrusted; its writer never fails the job: without a
// folder, or on a full disk, the counters live in anonymous memory and only the summary is lost.
#include "transit/stats.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "transit/options.hpp"

namespace transit {
namespace {

constexpr unsigned kCounters = static_cast<unsigned>(Counter::kCount);
constexpr unsigned kNames = 256;

struct Header {
    char magic[8];
    std::uint32_t version, pid, local_rank, counters, names, state;
};
struct CounterRow {
    char name[56];
    std::atomic<std::uint64_t> value;
};
struct NameRow {
    char kind[16];
    char name[232];
    std::uint64_t count;
};
struct File {
    Header header;
    CounterRow counters[kCounters];
    NameRow names[kNames];
};
static_assert(sizeof(Header) == 32 && sizeof(CounterRow) == 64 && sizeof(NameRow) == 256);

File* g_file = nullptr;
std::mutex g_names_mutex;

// Keeps a later `transit run` from taking the folder for that of a job that is gone, should ours be
// killed: the lock ends with this process (docs/formats.md). Never waits, and closes on exec.
void hold_folder(const std::string& folder) noexcept {
    char path[4096];
    std::snprintf(path, sizeof path, "%s/lock", folder.c_str());
    const int lock = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (lock >= 0 && flock(lock, LOCK_SH | LOCK_NB) != 0) close(lock);
}

File* map_file() noexcept {
    const std::string& folder = options().run_dir;
    int descriptor = -1;
    if (!folder.empty()) {
        hold_folder(folder);
        char path[4096];
        std::snprintf(path, sizeof path, "%s/%d.stats", folder.c_str(), static_cast<int>(getpid()));
        descriptor = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (descriptor >= 0 && posix_fallocate(descriptor, 0, sizeof(File)) != 0) {
            close(descriptor);
            descriptor = -1;
        }
    }
    const int flags = descriptor >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    void* where = mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, flags, descriptor, 0);
    if (descriptor >= 0) close(descriptor);
    return where == MAP_FAILED ? nullptr : static_cast<File*>(where);
}

void mark_orderly_exit() noexcept {
    if (g_file != nullptr && g_file->header.pid == static_cast<std::uint32_t>(getpid()))
        g_file->header.state = 2;
}

}  // namespace

void open_stats() noexcept {
    File* file = map_file();
    if (file == nullptr) return;
    for (unsigned i = 0; i < kCounters; ++i)
        std::memcpy(file->counters[i].name, kCounterNames[i].data(), kCounterNames[i].size());
    const char* rank = std::getenv("LOCAL_RANK");
    std::memcpy(file->header.magic, "TRANSITS", 8);
    file->header.version = 1;
    file->header.pid = static_cast<std::uint32_t>(getpid());
    file->header.local_rank =
        rank == nullptr ? 0 : static_cast<std::uint32_t>(std::strtoul(rank, nullptr, 10));
    file->header.counters = kCounters;
    file->header.names = kNames;
    file->header.state = 1;
    g_file = file;
    std::atexit(mark_orderly_exit);
}

std::atomic<std::uint64_t>& counter(Counter which) noexcept {
    static std::atomic<std::uint64_t> scratch{0};
    return g_file == nullptr ? scratch : g_file->counters[static_cast<unsigned>(which)].value;
}

void add_with_peak(Counter which, Counter peak, std::int64_t delta) noexcept {
    const std::uint64_t change = static_cast<std::uint64_t>(delta);
    const std::uint64_t now = counter(which).fetch_add(change, std::memory_order_relaxed) + change;
    std::atomic<std::uint64_t>& highest = counter(peak);
    std::uint64_t seen = highest.load(std::memory_order_relaxed);
    while (now > seen && !highest.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
    }
}

void count_named(const char* kind, const char* name, std::uint64_t count) noexcept {
    if (g_file == nullptr) return;
    const std::lock_guard lock(g_names_mutex);
    for (NameRow& row : g_file->names) {
        if (row.kind[0] == '\0') {
            std::snprintf(row.name, sizeof row.name, "%s", name);
            row.count = count;
            std::snprintf(row.kind, sizeof row.kind, "%s", kind);
            return;
        }
        if (std::strncmp(row.kind, kind, sizeof row.kind - 1) == 0 &&
            std::strncmp(row.name, name, sizeof row.name - 1) == 0) {
            row.count += count;
            return;
        }
    }
}

void warn_once(const char* sentence, LogLevel level) noexcept {
    if (g_file != nullptr) {
        const std::lock_guard lock(g_names_mutex);
        for (const NameRow& row : g_file->names)
            if (std::strcmp(row.kind, "warning") == 0 &&
                std::strncmp(row.name, sentence, sizeof row.name - 1) == 0)
                return;
    }
    log(level, "%s", sentence);
    count_named("warning", sentence);
}

}  // namespace transit
