// A thread pool for one caller: run(n, f) calls f(task, thread) for every task.
//
// Which thread takes which task is left to chance: no task's sums may depend on
// it. A worker that the system holds back never holds up the others: the caller
// waits for tasks, not for threads. Idle workers spin for a moment (the next
// piece of a forward comes within microseconds), then sleep and cost nothing.
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
  explicit Pool(int threads) {
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

  int threads() const { return int(workers_.size()) + 1; }

  template <class F>
  void run(int tasks, const F& f) {
    if (tasks <= 1 || workers_.empty()) {
      for (int i = 0; i < tasks; i++) f(i, 0);
      return;
    }
    call_ = [](const void* g, int task, int thread) { (*static_cast<const F*>(g))(task, thread); };
    context_ = &f;
    done_.store(0, std::memory_order_relaxed);
    ticket_.store(uint64_t(tasks) << 32);
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

 private:
  // ticket_ = number of tasks (high half) and the next task (low half). Holding
  // a valid task keeps the call alive: run() returns only after it is done.
  bool has_work() const {
    uint64_t t = ticket_.load();
    return uint32_t(t) < uint32_t(t >> 32);
  }

  void take(int thread) {
    while (has_work()) {
      uint64_t t = ticket_.fetch_add(1);
      if (uint32_t(t) >= uint32_t(t >> 32)) return;
      call_(context_, int(uint32_t(t)), thread);
      done_.fetch_add(1, std::memory_order_release);
    }
  }

  void work(int thread) {
    for (;;) {
      for (int spins = 0; spins < 4000 && !has_work(); spins++) _mm_pause();
      if (!has_work()) {
        std::unique_lock<std::mutex> lock(mutex_);
        sleepers_.fetch_add(1);
        wake_.wait(lock, [this] { return stop_ || has_work(); });
        sleepers_.fetch_sub(1);
        if (stop_) return;
      }
      take(thread);
    }
  }

  alignas(64) std::atomic<uint64_t> ticket_{0};
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
