// Linear layers over rows. One output is one sum over k = 0, 1, 2 ... in that
// order (int8: groups of 32 in that order), whatever the tile it is computed in:
// tiles choose which outputs share a load, never how one of them is summed.
//
// Weights lie in blocks of BLOCK columns, each block one run of memory in the
// order in which it is read.
#pragma once
#include <algorithm>

#include "pool.h"
#include "vec.h"

namespace kev {

constexpr int VB = 2;           // vectors in a column block
constexpr int BLOCK = VB * W;   // columns in a column block
constexpr int GROUP = 32;       // k values that share an int8 scale
constexpr int TILE = W == 16 ? 12 : 6;  // most rows in a tile: the accumulators fill the registers

struct Matrix {
  const uint8_t* data;
  long block_bytes;
  int blocks;
  int depth;  // length of a sum
};

// The rows on the left side, in the form that a precision's kernel reads.
struct Operand {
  const void* data = nullptr;
  long stride = 0;              // bytes between rows
  const float* scale = nullptr;   // int8: one per row and group
  const int32_t* start = nullptr;  // int8: what each group's sum begins with
  long groups = 0;              // int8: groups between rows of the two arrays above
};

template <int R, int NV>
struct Accumulators {
  vf v[R][NV];
};

// R rows against NB runs of VPB vectors, `pairs` times two steps of k. For pair
// i, run b starts at block[b] + i * 2 * width.
template <int R, int NB, int VPB, class S>
static inline __attribute__((always_inline)) void dot_pairs(Accumulators<R, NB * VPB>& acc, const float* x, long xs,
                                                            const S* const* block, long width, int pairs) {
  constexpr int NV = NB * VPB;
  const S* at[NB];
  for (int b = 0; b < NB; b++) at[b] = block[b];
  for (int i = 0; i < pairs; i++) {
    vf even[NV], odd[NV];
#pragma GCC unroll 16
    for (int v = 0; v < NV; v++) load_pair(pair_column(at[v / VPB], (v % VPB) * W), width, even[v], odd[v]);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
      vf x0 = set1(x[r * xs]);
#pragma GCC unroll 16
      for (int v = 0; v < NV; v++) acc.v[r][v] = fma(x0, even[v], acc.v[r][v]);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
      vf x1 = set1(x[r * xs + 1]);
#pragma GCC unroll 16
      for (int v = 0; v < NV; v++) acc.v[r][v] = fma(x1, odd[v], acc.v[r][v]);
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
static inline __attribute__((always_inline)) void put(const Accumulators<R, NV>& acc, float* out) {
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 16
    for (int v = 0; v < NV; v++) store(out + (r * NV + v) * W, acc.v[r][v]);
}

// Each precision: tile<R, NB> computes R rows of NB neighbouring blocks into
// out[R][NB * BLOCK].

template <class S>
struct Dense {
  template <int R, int NB>
  static void tile(const Operand& a, int row, const Matrix& m, int block, float* out) {
    const S* at[NB];
    for (int b = 0; b < NB; b++) at[b] = reinterpret_cast<const S*>(m.data + (block + b) * m.block_bytes);
    const float* x = reinterpret_cast<const float*>(static_cast<const uint8_t*>(a.data) + row * a.stride);
    Accumulators<R, NB * VB> acc;
    clear(acc);
    dot_pairs<R, NB, VB>(acc, x, a.stride / 4, at, BLOCK, m.depth / 2);
    put(acc, out);
  }
};

#if defined(__AVX512BF16__)
// Two bfloat16 products per lane and step; the rows are bfloat16 as well.
struct DotBf16 {
  template <int R, int NB>
  static void tile(const Operand& a, int row, const Matrix& m, int block, float* out) {
    constexpr int NV = NB * VB;
    const uint8_t* w = m.data + block * m.block_bytes;
    const uint8_t* x = static_cast<const uint8_t*>(a.data) + row * a.stride;
    Accumulators<R, NV> acc;
    clear(acc);
    for (int i = 0; i < m.depth / 2; i++) {
      vi wv[NV];
#pragma GCC unroll 16
      for (int v = 0; v < NV; v++) wv[v] = loadi(w + (v / VB) * m.block_bytes + (v % VB) * W * 4);
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) {
        vi xv = repeat32(x + r * a.stride);
#pragma GCC unroll 16
        for (int v = 0; v < NV; v++) acc.v[r][v] = dot_bf16(acc.v[r][v], wv[v], xv);
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
  static constexpr int STEPS = GROUP / KQ;
  static constexpr long SCALE_BYTES = BLOCK * 2;
  static constexpr long GROUP_BYTES = SCALE_BYTES + BLOCK * GROUP;

  template <int R, int NB>
  static void tile(const Operand& a, int row, const Matrix& m, int block, float* out) {
    constexpr int NV = NB * VB;
    const uint8_t* w = m.data + block * m.block_bytes;
    const uint8_t* x = static_cast<const uint8_t*>(a.data) + row * a.stride;
    const float* scale = a.scale + row * a.groups;
    const int32_t* start = a.start + row * a.groups;
    Accumulators<R, NV> total;
    clear(total);
    for (int g = 0; g < m.depth / GROUP; g++) {
      vi acc[R][NV];
#pragma GCC unroll 16
      for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int v = 0; v < NV; v++) acc[r][v] = KQ == 4 ? set1i(start[r * a.groups + g]) : set1i(0);
      const uint8_t* ws = w + SCALE_BYTES;
      for (int s = 0; s < STEPS; s++) {
        vi wv[NV];
#pragma GCC unroll 16
        for (int v = 0; v < NV; v++) wv[v] = load_weights(ws + (v / VB) * m.block_bytes + (v % VB) * W * KQ);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
          vi xv = repeat32(x + r * a.stride);
#pragma GCC unroll 16
          for (int v = 0; v < NV; v++) acc[r][v] = idot(acc[r][v], wv[v], xv);
        }
        ws += BLOCK * KQ;
        x += 4;
      }
#pragma GCC unroll 16
      for (int b = 0; b < NB; b++) {
        vf s0, s1;
        load_pair(reinterpret_cast<const bf16*>(w + b * m.block_bytes), 0, s0, s1);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
          vf sx = set1(scale[r * a.groups + g]);
          vf& t0 = total.v[r][b * VB];
          vf& t1 = total.v[r][b * VB + 1];
          t0 = fma(to_float(acc[r][b * VB]), mul(s0, sx), t0);
          t1 = fma(to_float(acc[r][b * VB + 1]), mul(s1, sx), t1);
        }
      }
      w += GROUP_BYTES;
    }
    put(total, out);
  }
};

using TileFn = void (*)(const Operand&, int, const Matrix&, int, float*);

template <class P, int NB>
static TileFn tile_of(int rows) {
  switch (rows) {
    case 1: return P::template tile<1, NB>;
    case 2: return P::template tile<2, NB>;
    case 3: return P::template tile<3, NB>;
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

// rows x blocks of `m`. done(row, block, values) gets each row's BLOCK sums.
template <class P, class Done>
static void linear(Pool& pool, const Matrix& m, const Operand& a, int rows, const Done& done) {
  const int tiles = (rows + TILE - 1) / TILE;
  const int per_task = std::max(2, m.blocks / (pool.threads() * 8) & ~1);
  const int tasks = (m.blocks + per_task - 1) / per_task;
  pool.run(tasks, [&](int task, int) {
    alignas(64) float out[TILE * 2 * BLOCK];
    const int last = std::min(m.blocks, (task + 1) * per_task);
    int step;
    for (int block = task * per_task; block < last; block += step) {
      step = rows <= 3 && block + 2 <= last ? 2 : 1;
      for (int t = 0; t < tiles; t++) {
        const int r0 = long(rows) * t / tiles, r1 = long(rows) * (t + 1) / tiles;
        (step == 2 ? tile_of<P, 2>(r1 - r0) : tile_of<P, 1>(r1 - r0))(a, r0, m, block, out);
        for (int r = r0; r < r1; r++)
          for (int b = 0; b < step; b++) done(r, block + b, out + ((r - r0) * step + b) * BLOCK);
      }
    }
  });
}

}  // namespace kev
