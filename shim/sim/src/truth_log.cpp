#include "truth_log.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

#include "options.hpp"
#include "physical.hpp"

namespace transit::sim {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{256} << 10;

class TruthLog {
public:
    void open(const std::string& directory) {
        std::lock_guard lock(mutex_);
        if (fd_ >= 0) {
            return;
        }
        mkdir(directory.c_str(), 0777);
        const std::string path = directory + "/" + std::to_string(getpid()) + ".truth";
        fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        owner_ = getpid();
    }

    void append(std::string_view line) {
        std::lock_guard lock(mutex_);
        if (used_ + line.size() + 1 > kBufferBytes) {
            write_out();
        }
        if (line.size() + 1 > kBufferBytes) {
            return;
        }
        std::memcpy(buffer_ + used_, line.data(), line.size());
        used_ += line.size();
        buffer_[used_++] = '\n';
    }

    void flush() {
        std::lock_guard lock(mutex_);
        write_out();
    }

    // From a signal handler: the lock may be held by the very thread that faulted.
    void flush_if_free() {
        if (mutex_.try_lock()) {
            write_out();
            mutex_.unlock();
        }
    }

private:
    void write_out() {
        // A forked child inherits the buffer; only the process that filled it may write it.
        if (fd_ >= 0 && owner_ == getpid()) {
            for (std::size_t done = 0; done < used_;) {
                const ssize_t wrote = write(fd_, buffer_ + done, used_ - done);
                if (wrote <= 0) {
                    break;
                }
                done += static_cast<std::size_t>(wrote);
            }
        }
        used_ = 0;
    }

    std::mutex mutex_;
    char buffer_[kBufferBytes];
    std::size_t used_ = 0;
    int fd_ = -1;
    pid_t owner_ = 0;
};

TruthLog& log() {
    static TruthLog* const kLog = new TruthLog;
    return *kLog;
}

struct sigaction previous_segv;

// Flushes, then lets the fault happen again under whoever handled it before: never hidden.
void flush_on_fault(int signal, siginfo_t*, void*) {
    log().flush_if_free();
    sigaction(signal, &previous_segv, nullptr);
}

bool start_log() {
    const std::string& directory = options().truth_directory;
    if (directory.empty()) {
        return false;
    }
    log().open(directory);
    struct sigaction action{};
    action.sa_sigaction = flush_on_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &previous_segv);
    return true;
}

__attribute__((destructor)) void finish_log() {
    if (!truth_enabled()) {
        return;
    }
    char line[256];
    const auto& store = PhysicalStore::instance();
    std::snprintf(line, sizeof line,
                  "%llu %u summary hbm_bytes=%llu peak_hbm_bytes=%llu dram_bytes=%llu "
                  "peak_dram_bytes=%llu -> 0",
                  static_cast<unsigned long long>(now_ns()), thread_id(),
                  static_cast<unsigned long long>(store.bytes(Place::hbm)),
                  static_cast<unsigned long long>(store.peak_bytes(Place::hbm)),
                  static_cast<unsigned long long>(store.bytes(Place::dram)),
                  static_cast<unsigned long long>(store.peak_bytes(Place::dram)));
    truth_line(line);
    log().flush();
}

}  // namespace

std::uint64_t now_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
           static_cast<std::uint64_t>(now.tv_nsec);
}

std::uint32_t thread_id() {
    thread_local const auto kId = static_cast<std::uint32_t>(syscall(SYS_gettid));
    return kId;
}

bool truth_enabled() {
    static const bool kEnabled = start_log();
    return kEnabled;
}

void truth_line(std::string_view line) {
    if (truth_enabled()) {
        log().append(line);
    }
}

}  // namespace transit::sim
