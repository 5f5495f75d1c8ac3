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

// BYTES of each of two runs at a time.
template <long BYTES>
struct AheadTwo {
  const uint8_t* at[2];
  long step;
  void fetch() {
#pragma GCC unroll 2
    for (auto& run : at) {
#pragma GCC unroll 4
      for (long i = 0; i < BYTES; i += LINE) ask(run + i);
      run += step;
    }
  }
};

// Two pages to ask for. Where the second follows the first they are one stream, and asked
// for in its order: what the machine foresees of a stream comes while it multiplies, and
// from two streams in turns it foresees little.
class Soon {
 public:
  template <class S>
  Soon(const S* first, const S* second, long size)
      : first_(reinterpret_cast<const uint8_t*>(first)), second_(reinterpret_cast<const uint8_t*>(second)),
        stream_(first + size == second) {}

  // From here on, BYTES for each page at a time.
  template <long BYTES>
  AheadTwo<BYTES> each() const {
    return {{first_, stream_ ? first_ + BYTES : second_}, stream_ ? 2 * BYTES : BYTES};
  }
  // So many bytes of each page were asked for.
  void pass(long bytes) {
    first_ += stream_ ? 2 * bytes : bytes;
    second_ += bytes;
  }

 private:
  const uint8_t *first_, *second_;
  bool stream_;
};

}  // namespace kev
