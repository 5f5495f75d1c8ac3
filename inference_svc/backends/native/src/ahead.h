// Memory that comes next: a kernel asks for a little of it at each of its steps, so
// that it arrives while this step's numbers are multiplied. Into the second cache
// only: the first is full of what is in use.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace kev {

constexpr long LINE = 64;  // bytes in a cache line

static inline void ask(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

// Nothing, for a plain stream, which the machine foresees by itself.
struct Nothing {
  void fetch() {}
};

// One line at a time, `step` bytes apart.
struct Ahead {
  const uint8_t* at = nullptr;
  long step = 0;

  // All of `bytes`, in so many calls of fetch. Rounded up: rounded down, many tiles with
  // small shares would all ask for their first line only.
  static Ahead over(const uint8_t* from, long bytes, long calls) { return {from, (bytes + calls - 1) / calls}; }
  void fetch() {
    ask(at);
    at += step;
  }
};

// BYTES of each of several runs at a time: pages lie anywhere, and nothing foresees the next.
template <int RUNS, long BYTES>
struct AheadPages {
  const void* at[RUNS];
  void fetch() {
#pragma GCC unroll 4
    for (int run = 0; run < RUNS; run++) {
      const auto* from = static_cast<const uint8_t*>(at[run]);
#pragma GCC unroll 4
      for (long i = 0; i < BYTES; i += LINE) ask(from + i);
      at[run] = from + BYTES;
    }
  }
};

}  // namespace kev
