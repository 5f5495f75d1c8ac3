// What this machine could do at best: bytes read and operations done per second
// by all threads together, with nothing else in the way. Benchmarks hold the
// forward against these.
#pragma once
#include <chrono>

#include "nibbles.h"

namespace kev {

using Clock = std::chrono::steady_clock;

static inline double seconds(Clock::time_point from) {
  return std::chrono::duration<double>(Clock::now() - from).count();
}

// Keeps a result alive that nobody reads.
template <class V>
static inline void keep(const V& v) {
#if !defined(KEV_NO_ASM)
  asm volatile("" : : "v"(v));
#else
  asm volatile("" : : "m"(v));
#endif
}

// Bytes per second while reading `size` bytes (much more than the caches hold).
static inline double read_roof(Pool& pool, const float* data, long size) {
  const int tasks = pool.threads() * 16;
  const long part = size / 4 / tasks / 64 * 64;
  const auto start = Clock::now();
  pool.run(tasks, [&](int task, int) {
    const float* from = data + task * part;
    vi sum[8] = {};
    for (long i = 0; i + 8 * W <= part; i += 8 * W)
#pragma GCC unroll 8
      for (int v = 0; v < 8; v++) sum[v] = addi(sum[v], loadi(from + i + v * W));
    for (int v = 0; v < 8; v++) keep(sum[v]);
  });
  return double(part) * 4 * tasks / seconds(start);
}

constexpr int CHAINS = 10, TURNS = 200000;  // short: the best of many runs is wanted

template <class Step, class V>
__attribute__((noinline)) static void run_chains(V x) {
  V acc[CHAINS];
#pragma GCC unroll 16
  for (int c = 0; c < CHAINS; c++) acc[c] = x;
  for (int i = 0; i < TURNS; i++) {
#pragma GCC unroll 16
    for (int c = 0; c < CHAINS; c++) Step::into(acc[c], x);
  }
#pragma GCC unroll 16
  for (int c = 0; c < CHAINS; c++) keep(acc[c]);
}

// Operations per second (a multiplication and an addition are two), from registers only.
template <class Step, class V>
static inline double compute_roof(Pool& pool, long per_step, V x) {
  const auto start = Clock::now();
  pool.run(pool.threads(), [&](int, int) { run_chains<Step>(x); });
  return double(per_step) * CHAINS * TURNS * pool.threads() / seconds(start);
}

struct FloatStep {
  static inline void into(vf& acc, vf a) { fma_into(acc, a, a); }
};
struct Int8Step {
  static inline void into(vi& acc, vi a) {
#if !defined(KEV_NO_ASM)
    asm volatile("" : "+v"(a));  // or the compiler multiplies once and only adds
#endif
    idot_into(acc, a, a);
  }
};
struct NibbleStep {
  static inline void into(vi& acc, vi a) {
#if !defined(KEV_NO_ASM)
    asm volatile("" : "+v"(a));
#endif
    nibble_dot_into(acc, a, a);
  }
};
#if defined(__AVX512BF16__)
struct Bf16Step {
  static inline void into(vf& acc, vf a) { dot_bf16_into(acc, bits(a), bits(a)); }
};
#endif

// kind: 0 float32, 1 bfloat16, 2 int8, 4 nibbles, as the kernels of this variant do it.
static inline double operations_roof(Pool& pool, int kind) {
  if (kind == 4) return compute_roof<NibbleStep>(pool, 2L * W * 4, set1i(0x01010101));
  if (kind == 2) return compute_roof<Int8Step>(pool, 2L * W * KQ, set1i(0x00010001));
#if defined(__AVX512BF16__)
  if (kind == 1) return compute_roof<Bf16Step>(pool, 4L * W, set1(0.5f));
#endif
  return compute_roof<FloatStep>(pool, 2L * W, set1(0.5f));
}

// Instructions per second, of the simplest kind. Where two hardware threads share a core, a
// neighbour on the other one takes a part of what it can begin in a cycle. Kernels lose up to a
// third by that, and neither the multiplications above nor the system's clocks show it.
static inline double instructions_roof(Pool& pool) {
#if !defined(KEV_NO_ASM)
  constexpr int IN_A_TURN = 10;
  const auto start = Clock::now();
  pool.run(pool.threads(), [&](int, int) {
    int a = 1, b = 1, c = 1;
    for (int i = 0; i < TURNS; i++)
      asm volatile("add %0, %0\n add %1, %1\n add %2, %2\n nop\n nop\n add %0, %0\n add %1, %1\n add %2, %2\n nop\n nop"
                   : "+r"(a), "+r"(b), "+r"(c) : : "cc");
  });
  return double(IN_A_TURN) * TURNS * pool.threads() / seconds(start);
#else
  return 0.0;
#endif
}

}  // namespace kev
