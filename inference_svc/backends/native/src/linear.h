// Linear layers over rows. One output is one sum over k = 0, 1, 2 ... in that
// order (int8: groups of 32 in that order), whatever the tile it is computed in:
// tiles choose which outputs share a load, never how one of them is summed.
//
// Weights lie in blocks of BLOCK columns, each block one run of memory in the
// order in which it is read.
#pragma once
#include <algorithm>

#include "ahead.h"
#include "pool.h"
#include "vec.h"

namespace kev {

constexpr int VB = 2;           // vectors in a column block
constexpr int BLOCK = VB * W;   // columns in a column block
constexpr int GROUP = 32;       // k values that share an int8 scale
constexpr int TILE = W == 16 ? 12 : 6;  // most rows in a tile: the accumulators fill the registers

// Bytes of rows on the left side that pass by a block before the next one: they fit the third
// cache. For each run of rows the blocks are read again, and runs that fit the second were slower.
constexpr long ROWS_IN_CACHE = 2 << 20;

struct Matrix {
  const uint8_t* data;
  long block_bytes;
  int blocks;
  int depth;  // length of a sum

  const uint8_t* block(int number) const { return data + number * block_bytes; }
};

// The rows on the left side, in the form that a precision's kernel reads.
struct Operand {
  const void* data = nullptr;
  long stride = 0;  // bytes between rows
};

// A group of a row in whole numbers: one run of memory, so that one address finds all of it.
template <class X, class Sum>
struct RowGroup {
  X value[GROUP];
  float scale;
  Sum sum;  // of the values, as the kernel adds it
};

template <int R, int NV>
struct Accumulators {
  vf v[R][NV];
};

// R rows against NB runs of VPB vectors, `pairs` times two steps of k. For pair
// i, run b starts at block[b] + i * 2 * width.
template <int R, int NB, int VPB, class S, class Next = Nothing>
static inline __attribute__((always_inline)) void dot_pairs(Accumulators<R, NB * VPB>& acc, const float* x, long xs,
                                                            const S* const* block, long width, int pairs,
                                                            Next next = {}) {
  constexpr int NV = NB * VPB;
  const S* at[NB];
  for (int b = 0; b < NB; b++) at[b] = block[b];
  for (int i = 0; i < pairs; i++) {
    next.fetch();
    // Even first, then odd: there are registers for one of them only. The shorter side
    // waits in them while the other one passes by.
    if constexpr (R < NV) {
      vf xr[R];
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) xr[r] = set1(x[r * xs]);
#pragma GCC unroll 16
      for (int v = 0; v < NV; v++) {
        const vf w = load_even(pair_column(at[v / VPB], (v % VPB) * W));
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) fma_into(acc.v[r][v], xr[r], w);
      }
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) xr[r] = set1(x[r * xs + 1]);
#pragma GCC unroll 16
      for (int v = 0; v < NV; v++) {
        const vf w = load_odd_tight(pair_column(at[v / VPB], (v % VPB) * W), width);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) fma_into(acc.v[r][v], xr[r], w);
      }
    } else {
      vf w[NV];
#pragma GCC unroll 16
      for (int v = 0; v < NV; v++) w[v] = load_even(pair_column(at[v / VPB], (v % VPB) * W));
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) {
        const vf xr = set1(x[r * xs]);
#pragma GCC unroll 16
        for (int v = 0; v < NV; v++) fma_into(acc.v[r][v], xr, w[v]);
      }
#pragma GCC unroll 16
      for (int v = 0; v < NV; v++) w[v] = load_odd(pair_column(at[v / VPB], (v % VPB) * W), width);
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) {
        const vf xr = set1(x[r * xs + 1]);
#pragma GCC unroll 16
        for (int v = 0; v < NV; v++) fma_into(acc.v[r][v], xr, w[v]);
      }
    }
    x += 2;
    for (int b = 0; b < NB; b++) at[b] += 2 * width;
  }
}

template <int R, int NV>
static inline __attribute__((always_inline)) void clear(Accumulators<R, NV>& acc) {
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 16
    for (int v = 0; v < NV; v++) acc.v[r][v] = set1(0.0f);
}

template <int R, int NV>
static inline __attribute__((always_inline)) void take(Accumulators<R, NV>& acc, const float* sums) {
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 16
    for (int v = 0; v < NV; v++) acc.v[r][v] = load(sums + (r * NV + v) * W);
}

template <int R, int NV>
static inline __attribute__((always_inline)) void put(const Accumulators<R, NV>& acc, float* out) {
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 16
    for (int v = 0; v < NV; v++) store(out + (r * NV + v) * W, acc.v[r][v]);
}

// Each precision: tile<R, NB> computes R rows of NB neighbouring blocks into
// out[R][NB * BLOCK]. For each:
//   STEP           k values per call of fetch
//   WIDE_ROWS      up to so many rows take two blocks at a time, which keeps the adders busy
//   FORESEEN_ROWS  up to so many rows read as fast as memory gives: a plain stream, which
//                  the machine foresees by itself, and asking ahead only disturbs
//   MOST_ROWS      that pass by before the next block is read

template <class S>
struct Dense {
  static long block_bytes(int depth) { return long(depth) * BLOCK * long(sizeof(S)); }
  static constexpr int STEP = 2, WIDE_ROWS = 3, MOST_ROWS = 1 << 16, FORESEEN_ROWS = sizeof(S) == 4 ? TILE : WIDE_ROWS;
  template <int R, int NB>
  static void tile(const Operand& a, int row, const Matrix& m, int block, Ahead ahead, float* out) {
    const S* at[NB];
    for (int b = 0; b < NB; b++) at[b] = reinterpret_cast<const S*>(m.data + (block + b) * m.block_bytes);
    const float* x = reinterpret_cast<const float*>(static_cast<const uint8_t*>(a.data) + row * a.stride);
    Accumulators<R, NB * VB> acc;
    clear(acc);
#ifdef KEV_DEFECTS  // for tests that must fail: the order of a sum depends on the size of the tile
    if (R > 1) {
      const int half = m.depth / 4;
      for (int b = 0; b < NB; b++) at[b] += long(half) * 2 * BLOCK;
      dot_pairs<R, NB, VB>(acc, x + half * 2, a.stride / 4, at, BLOCK, m.depth / 2 - half, ahead);
      for (int b = 0; b < NB; b++) at[b] -= long(half) * 2 * BLOCK;
      dot_pairs<R, NB, VB>(acc, x, a.stride / 4, at, BLOCK, half, ahead);
      put(acc, out);
      return;
    }
#endif
    dot_pairs<R, NB, VB>(acc, x, a.stride / 4, at, BLOCK, m.depth / 2, ahead);
    put(acc, out);
  }
};

#if defined(__AVX512BF16__)
// Two bfloat16 products per lane and step; the rows are bfloat16 as well.
struct DotBf16 {
  static long block_bytes(int depth) { return long(depth) * BLOCK * 2; }
  static constexpr int STEP = 2, WIDE_ROWS = 3, MOST_ROWS = 1 << 16, FORESEEN_ROWS = WIDE_ROWS;
  template <int R, int NB>
  static void tile(const Operand& a, int row, const Matrix& m, int block, Ahead ahead, float* out) {
    constexpr int NV = NB * VB;
    const uint8_t* w = m.data + block * m.block_bytes;
    const uint8_t* x = static_cast<const uint8_t*>(a.data) + row * a.stride;
    Accumulators<R, NV> acc;
    clear(acc);
    for (int i = 0; i < m.depth / 2; i++) {
      ahead.fetch();
      vi wv[NV];
#pragma GCC unroll 16
      for (int v = 0; v < NV; v++) wv[v] = loadi(w + (v / VB) * m.block_bytes + (v % VB) * W * 4);
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) {
        vi xv = repeat32(x + r * a.stride);
#pragma GCC unroll 16
        for (int v = 0; v < NV; v++) dot_bf16_into(acc.v[r][v], wv[v], xv);
      }
      w += BLOCK * 4;
      x += 4;
    }
    put(acc, out);
  }
};
#endif

// A group of a block: BLOCK scales as bfloat16 (the first vector's in the low
// halves of a word, the second's in the high halves), then 32 / KQ steps of
// BLOCK * KQ weights.
struct Int8 {
  using Rows = RowGroup<xint, int32_t>;  // sum: what the group's sum begins with
  static constexpr int STEP = GROUP / 8, WIDE_ROWS = 0, MOST_ROWS = 1 << 16, FORESEEN_ROWS = 0;
  static constexpr int STEPS = GROUP / KQ;
  static constexpr long SCALE_BYTES = BLOCK * 2;
  static constexpr long GROUP_BYTES = SCALE_BYTES + BLOCK * GROUP;
  static long block_bytes(int depth) { return depth / GROUP * GROUP_BYTES; }

  template <int R, int NB>
  static void tile(const Operand& a, int row, const Matrix& m, int block, Ahead ahead, float* out) {
    constexpr int NV = NB * VB;
    const uint8_t* w = m.data + block * m.block_bytes;
    const uint8_t* x = static_cast<const uint8_t*>(a.data) + row * a.stride;
    const long xs = a.stride, bytes = m.block_bytes;
    const auto of = [&](int r) { return reinterpret_cast<const Rows*>(x + r * xs); };
    // The totals stay in memory: the registers belong to the group's whole numbers.
    for (int i = 0; i < R * NV; i++) store(out + i * W, set1(0.0f));
    for (int g = 0; g < m.depth / GROUP; g++) {
      vi acc[R][NV];
#pragma GCC unroll 16
      for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int v = 0; v < NV; v++) acc[r][v] = KQ == 4 ? set1i(of(r)->sum) : set1i(0);
      const uint8_t *ws = w + SCALE_BYTES, *xk = x;
      for (int turn = 0; turn < 8; turn++) {
        ahead.fetch();
#pragma GCC unroll 2
        for (int s = 0; s < STEPS / 8; s++) {
          vi wv[NV];
#pragma GCC unroll 16
          for (int v = 0; v < NV; v++) wv[v] = load_weights(ws + (v / VB) * bytes + (v % VB) * W * KQ);
#pragma GCC unroll 16
          for (int r = 0; r < R; r++) {
            const vi xv = repeat32(xk + r * xs);
#pragma GCC unroll 16
            for (int v = 0; v < NV; v++) idot_into(acc[r][v], wv[v], xv);
          }
          ws += BLOCK * KQ;
          xk += 4;
        }
      }
#pragma GCC unroll 16
      for (int b = 0; b < NB; b++) {
        keep_in_memory();
        const bf16* scales = reinterpret_cast<const bf16*>(w + b * bytes);
        const vf s0 = load_even(scales), s1 = load_odd(scales, 0);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
          const vf sx = set1(of(r)->scale);
          float* total = out + (r * NV + b * VB) * W;
          store(total, fma(to_float(acc[r][b * VB]), mul(s0, sx), load(total)));
          store(total + W, fma(to_float(acc[r][b * VB + 1]), mul(s1, sx), load(total + W)));
        }
      }
      w += GROUP_BYTES;
      x += sizeof(Rows);
    }
  }
};

using TileFn = void (*)(const Operand&, int, const Matrix&, int, Ahead, float*);

template <class P, int NB>
static TileFn tile_of(int rows) {
  switch (rows) {
    case 1: return P::template tile<1, P::WIDE_ROWS ? NB : 1>;
    case 2: return P::template tile<2, P::WIDE_ROWS ? NB : 1>;
    case 3: return P::template tile<3, P::WIDE_ROWS ? NB : 1>;
    case 4: return P::template tile<4, 1>;
    case 5: return P::template tile<5, 1>;
    case 6: return P::template tile<6, 1>;
#if defined(__AVX512F__)
    case 7: return P::template tile<7, 1>;
    case 8: return P::template tile<8, 1>;
    case 9: return P::template tile<9, 1>;
    case 10: return P::template tile<10, 1>;
    case 11: return P::template tile<11, 1>;
    case 12: return P::template tile<12, 1>;
#endif
  }
  return nullptr;
}

// Rows `from .. to` of blocks `first .. last`. `beyond` is what this thread reads after them.
template <class P, class Done>
static void linear_part(P, const Matrix& m, const Operand& a, int from, int to, int first, int last,
                        const uint8_t* beyond, const Done& done) {
  alignas(64) float out[TILE * 2 * BLOCK];
  const int rows = to - from, tiles = (rows + TILE - 1) / TILE;
  const int wide = rows <= P::WIDE_ROWS ? 2 : 1;
  int step;
  for (int block = first; block < last; block += step) {
    step = std::min(wide, last - block);
    const bool on = block + step < last;
    const uint8_t* next = on ? m.block(block + step) : beyond;
    const long share = step * m.block_bytes / tiles;
    for (int t = 0; t < tiles; t++) {
      const int r0 = from + long(rows) * t / tiles, r1 = from + long(rows) * (t + 1) / tiles;
      const bool asks = rows > P::FORESEEN_ROWS || !on;
      const Ahead ahead = Ahead::over(next + t * share, asks ? share : 0, m.depth / P::STEP);
      (step == 2 ? tile_of<P, 2>(r1 - r0) : tile_of<P, 1>(r1 - r0))(a, r0, m, block, ahead, out);
      for (int r = r0; r < r1; r++)
        for (int b = 0; b < step; b++) done(r, block + b, out + ((r - r0) * step + b) * BLOCK);
    }
  }
}

// How the blocks of a matrix are dealt out to threads.
struct Deal {
  int per_task, tasks;
  Deal(const Pool& pool, const Matrix& m)
      : per_task(std::max(2, m.blocks / (pool.threads() * 32) & ~1)), tasks((m.blocks + per_task - 1) / per_task) {}
};

// All rows and blocks. done(row, block, values) gets each row's BLOCK sums. `then` is
// the matrix of the next call: every thread asks for the start of its own part of it.
template <class P, class Done>
static void linear(Pool& pool, const Matrix& m, const Operand& a, int rows, const Matrix& then, const Done& done) {
  const Deal deal(pool, m), later(pool, then);
  // Rows that every block finds in cache.
  const int chunk = std::clamp(int(ROWS_IN_CACHE / a.stride), TILE, P::MOST_ROWS);
  pool.run(deal.tasks, [&](int task, int thread) {
    const int first = task * deal.per_task, last = std::min(m.blocks, first + deal.per_task);
    const bool ends = task + 1 == pool.first(deal.tasks, thread + 1);
    const uint8_t* beyond = ends ? then.block(pool.first(later.tasks, thread) * later.per_task) : m.block(last);
    for (int row = 0; row < rows; row += chunk)
      linear_part(P{}, m, a, row, std::min(rows, row + chunk), first, last, row + chunk < rows ? m.block(first) : beyond,
                  done);
  });
}

}  // namespace kev
