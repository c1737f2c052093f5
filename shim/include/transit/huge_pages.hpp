#pragma once
// Large tables that every launch reads a few lines of. On 4 KiB pages each line costs a walk of the
// page table too, which the framework's work between launches has pushed out of the TLB; under a
// hypervisor a walk costs more than the line.
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace transit {

/// An allocator of whole huge pages, where the kernel grants them (MADV_HUGEPAGE is advice).
template <typename T>
struct HugePages {
    using value_type = T;

    HugePages() = default;
    template <typename U>
    explicit HugePages(const HugePages<U>&) noexcept {}

    T* allocate(std::size_t count) {
        const std::size_t bytes = rounded(count);
        void* const got = mmap(nullptr, bytes + kHugePageBytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (got == MAP_FAILED) std::abort();  // built without exceptions, like operator new here
        // The kernel aligns to small pages: what lies before and behind goes back.
        char* const begin = static_cast<char*>(got);
        const std::size_t before = -reinterpret_cast<std::uintptr_t>(got) % kHugePageBytes;
        if (before != 0) munmap(begin, before);
        if (before != kHugePageBytes) munmap(begin + before + bytes, kHugePageBytes - before);
        madvise(begin + before, bytes, MADV_HUGEPAGE);
        return reinterpret_cast<T*>(begin + before);
    }
    void deallocate(T* at, std::size_t count) noexcept { munmap(at, rounded(count)); }
    template <typename U>
    bool operator==(const HugePages<U>&) const noexcept {
        return true;
    }

private:
    static constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
    static std::size_t rounded(std::size_t count) noexcept {
        return (count * sizeof(T) + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
    }
};

template <typename T>
using OnHugePages = std::vector<T, HugePages<T>>;

}  // namespace transit
