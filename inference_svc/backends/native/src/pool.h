// A thread pool for one caller: run(n, f) calls f(task, thread) for every task.
//
// Each thread has a run of neighbouring tasks of its own, so that it reads memory
// in one stream and knows what it reads next; who is done helps the others. Which
// thread takes which task is thus left to chance: no task's sums may depend on it.
// A worker that the system holds back never holds up the others: the caller waits
// for tasks, not for threads. Idle workers spin for a moment (the next piece of a
// forward comes within microseconds), then sleep and cost nothing.
#pragma once
#include <immintrin.h>
#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace kev {

class Pool {
 public:
  explicit Pool(int threads) : shares_(threads) {
    for (int i = 1; i < threads; i++) workers_.emplace_back([this, i] { work(i); });
  }

  ~Pool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (auto& t : workers_) t.join();
  }

  int threads() const { return int(shares_.size()); }

  template <class F>
  void run(int tasks, const F& f) {
    if (tasks <= 1 || workers_.empty()) {
      for (int i = 0; i < tasks; i++) f(i, 0);
      return;
    }
    call_ = [](const void* g, int task, int thread) { (*static_cast<const F*>(g))(task, thread); };
    context_ = &f;
    done_.store(0, std::memory_order_relaxed);
    for (int t = 0; t < threads(); t++)
      shares_[t].ticket.store(uint64_t(first(tasks, t + 1)) << 32 | uint32_t(first(tasks, t)));
    call_number_.fetch_add(1);
    if (sleepers_.load() > 0) {
      std::lock_guard<std::mutex> lock(mutex_);
      wake_.notify_all();
    }
    take(0);
    for (int spins = 0; done_.load(std::memory_order_acquire) < tasks; spins++) {
      _mm_pause();
      if (spins > 2000) sched_yield();
    }
  }

  // The first of `tasks` tasks that thread `t` takes before any other's.
  int first(int tasks, int t) const { return int(long(tasks) * t / threads()); }

 private:
  // A thread's own tasks: the end of them (high half) and the next one (low half).
  // Holding a valid task keeps the call alive: run() returns only after it is done.
  struct alignas(64) Share {
    std::atomic<uint64_t> ticket{0};
  };

  // Own tasks first, then the others'.
  void take(int thread) {
    for (int i = 0; i < threads(); i++) {
      auto& ticket = shares_[(thread + i) % threads()].ticket;
      while (has_task(ticket.load())) {
        const uint64_t t = ticket.fetch_add(1);
        if (!has_task(t)) break;
        call_(context_, int(uint32_t(t)), thread);
        done_.fetch_add(1, std::memory_order_release);
      }
    }
  }
  static bool has_task(uint64_t ticket) { return uint32_t(ticket) < uint32_t(ticket >> 32); }

  void work(int thread) {
    for (uint64_t seen = 0;;) {
      const auto called = [&] { return call_number_.load() != seen; };
      for (int spins = 0; spins < 4000 && !called(); spins++) _mm_pause();
      if (!called()) {
        std::unique_lock<std::mutex> lock(mutex_);
        sleepers_.fetch_add(1);
        wake_.wait(lock, [&] { return stop_ || called(); });
        sleepers_.fetch_sub(1);
        if (stop_) return;
      }
      seen = call_number_.load();
      take(thread);
    }
  }

  std::vector<Share> shares_;
  alignas(64) std::atomic<uint64_t> call_number_{0};
  alignas(64) std::atomic<int> done_{0};
  alignas(64) std::atomic<int> sleepers_{0};
  void (*call_)(const void*, int, int) = nullptr;
  const void* context_ = nullptr;
  bool stop_ = false;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
};

}  // namespace kev
