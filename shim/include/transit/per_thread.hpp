#pragma once
// What a thread keeps between calls. It ends with the thread, after the application's thread_local
// objects, and not at all where the thread ends the process: static destructors and exit handlers
// still make driver calls.
#include <pthread.h>

namespace transit {

class KeptByThread {
public:
    KeptByThread() noexcept : older_(static_cast<KeptByThread*>(pthread_getspecific(key()))) {
        pthread_setspecific(key(), this);
    }
    virtual ~KeptByThread() = default;
    KeptByThread(const KeptByThread&) = delete;
    KeptByThread& operator=(const KeptByThread&) = delete;

private:
    // Keys' destructors run where a thread ends; exit() only runs those of thread_local objects.
    static pthread_key_t key() noexcept {
        static const pthread_key_t made = [] {
            pthread_key_t fresh = 0;
            pthread_key_create(&fresh, end_all);
            return fresh;
        }();
        return made;
    }
    static void end_all(void* newest) {
        for (auto* each = static_cast<KeptByThread*>(newest); each != nullptr;) {
            KeptByThread* older = each->older_;
            delete each;
            each = older;
        }
    }

    KeptByThread* older_;
};

/// To be `static thread_local`. Made when it is first used, which may be after the thread's end has
/// begun.
template <typename T>
class PerThread {
public:
    T& operator*() noexcept {
        if (held_ == nullptr) held_ = new Held(*this);
        return held_->value;
    }

private:
    struct Held final : KeptByThread {
        explicit Held(PerThread& made_by) noexcept : owner(made_by) {}
        ~Held() override { owner.held_ = nullptr; }

        PerThread& owner;
        T value{};
    };

    Held* held_ = nullptr;
};

}  // namespace transit
