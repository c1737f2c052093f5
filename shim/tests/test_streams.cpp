#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <thread>
#include <vector>

#include "fake_driver.hpp"
#include "transit/streams.hpp"

using transit::Streams;

namespace {

constexpr std::uint64_t bit(unsigned slot) { return std::uint64_t{1} << slot; }

std::uint64_t submit(Streams& streams, fake::Queue& queue) {
    const unsigned slot = streams.slot_of(queue.handle(), false);
    const std::uint64_t number = streams.begin(slot);
    queue.submitted.fetch_add(1);
    streams.end(slot, true);
    return number;
}

}  // namespace

TEST_SUITE("streams") {
    SCENARIO("an operation has passed when a marker behind it has") {
        GIVEN("two streams with one operation each") {
            const auto streams = std::make_unique<Streams>(nullptr);
            fake::Queue first;
            fake::Queue second;
            const std::uint64_t one = submit(*streams, first);
            const std::uint64_t two = submit(*streams, second);
            const unsigned a = streams->slot_of(first.handle(), false);
            const unsigned b = streams->slot_of(second.handle(), false);
            REQUIRE(a != b);
            CHECK_FALSE(streams->passed(bit(a), one));
            streams->flush(~std::uint64_t{0});
            WHEN("the GPU finishes the first") {
                first.finished = 1;
                streams->poll();
                THEN("only that one has passed") {
                    CHECK(streams->passed(bit(a), one));
                    CHECK(streams->passed(bit(a), two));  // nothing newer was submitted there
                    CHECK_FALSE(streams->passed(bit(a) | bit(b), two));
                }
            }
        }
    }

    SCENARIO("while one is between its number and the driver, nothing newer counts as passed") {
        const auto streams = std::make_unique<Streams>(nullptr);
        fake::Queue queue;
        submit(*streams, queue);
        const unsigned slot = streams->slot_of(queue.handle(), false);
        const std::uint64_t open = streams->begin(slot);
        streams->flush(~std::uint64_t{0});
        queue.finished = 1;
        streams->poll();
        CHECK_FALSE(streams->passed(bit(slot), open));
        queue.submitted = 2;
        streams->end(slot, false);
        CHECK_FALSE(streams->passed(bit(slot), open));
        streams->flush(~std::uint64_t{0});
        queue.finished = 2;
        streams->poll();
        CHECK(streams->passed(bit(slot), open));
    }

    SCENARIO("of many markers, those that have passed are found, and no other") {
        for (const std::uint64_t finished : {0, 1, 2, 7, 63, 64, 99, 100}) {
            const auto streams = std::make_unique<Streams>(nullptr);
            fake::Queue queue;
            std::vector<std::uint64_t> numbers;
            for (int i = 0; i < 100; ++i) {
                numbers.push_back(submit(*streams, queue));
                streams->flush(~std::uint64_t{0});
            }
            const unsigned slot = streams->slot_of(queue.handle(), false);
            queue.finished = finished;
            streams->poll();
            CAPTURE(finished);
            for (std::size_t i = 0; i < numbers.size(); ++i)
                CHECK(streams->passed(bit(slot), numbers[i]) == (i < finished));
        }
    }

    SCENARIO("a destroyed stream's slot serves again once its last marker has passed") {
        const auto streams = std::make_unique<Streams>(nullptr);
        std::array<fake::Queue, Streams::kSlots> queues;
        const std::uint64_t number = submit(*streams, queues[0]);
        const unsigned slot = streams->slot_of(queues[0].handle(), false);
        streams->retire(queues[0].handle());
        CHECK(streams->slot_of(queues[1].handle(), false) != slot);
        queues[0].finished = 1;
        streams->poll();
        CHECK(streams->passed(bit(slot), number));
        CHECK(streams->slot_of(queues[2].handle(), false) == slot);
    }

    SCENARIO("more streams than slots share the last one, which never passes") {
        const auto streams = std::make_unique<Streams>(nullptr);
        std::array<fake::Queue, Streams::kSlots + 2> queues;
        for (fake::Queue& queue : queues)
            submit(*streams, queue);
        CHECK(streams->slot_of(queues.back().handle(), false) == Streams::kOverflowSlot);
        for (fake::Queue& queue : queues)
            queue.finished = 1;
        streams->flush(~std::uint64_t{0});
        streams->poll();
        CHECK(streams->passed(bit(0), 1));
        CHECK_FALSE(streams->passed(bit(Streams::kOverflowSlot), streams->newest()));
    }

    SCENARIO("what has passed is finished, whoever submits, polls and marks meanwhile") {
        const auto streams = std::make_unique<Streams>(nullptr);
        constexpr std::size_t kQueues = 3;
        std::array<fake::Queue, kQueues> queues;
        std::atomic<bool> stop{false};
        std::atomic<int> wrong{0};
        std::vector<std::thread> threads;
        for (fake::Queue& queue : queues)
            threads.emplace_back([&] {
                for (int i = 0; i < 4000; ++i) {
                    const unsigned slot = streams->slot_of(queue.handle(), false);
                    const std::uint64_t number = streams->begin(slot);
                    const std::uint64_t place = queue.submitted.fetch_add(1) + 1;
                    streams->end(slot, true);
                    if (streams->passed(bit(slot), number) && queue.finished.load() < place)
                        wrong.fetch_add(1);
                }
            });
        threads.emplace_back([&] {  // the GPU
            while (!stop)
                for (fake::Queue& queue : queues) {
                    queue.finished = queue.submitted.load();
                    std::this_thread::yield();
                }
        });
        threads.emplace_back([&] {  // the mover
            while (!stop) {
                streams->flush(~std::uint64_t{0});
                streams->poll();
                std::this_thread::yield();
            }
        });
        for (std::size_t i = 0; i < kQueues; ++i)
            threads[i].join();
        stop = true;
        threads[kQueues].join();
        threads[kQueues + 1].join();
        CHECK(wrong == 0);
    }

    // Skipped until new_slot takes the slot's mutex: ThreadSanitizer sees it write foreign_thread
    // and stream while flush reads them. --no-skip runs it.
    TEST_CASE("streams may come and go while the mover marks") {
        const auto streams = std::make_unique<Streams>(nullptr);
        std::vector<std::unique_ptr<fake::Queue>> queues;
        for (int i = 0; i < 20000; ++i)
            queues.push_back(std::make_unique<fake::Queue>());
        std::atomic<bool> stop{false};
        std::thread mover([&] {
            while (!stop) {
                streams->flush(~std::uint64_t{0});
                streams->poll();
                std::this_thread::yield();
            }
        });
        for (const auto& queue : queues) {
            submit(*streams, *queue);
            queue->finished = 1;
            streams->retire(queue->handle());
        }
        stop = true;
        mover.join();
        CHECK(streams->newest() == queues.size());
    }
}
