// float32 weights kept as the codes of their file: in groups of 32 values of k, a
// weight is scale * code + minimum. They take less than a third of the memory, and
// are the same numbers: scale * code has at most 19 bits, so that the sum is all
// that is rounded, here as where the file was read.
//
// A tile of rows uses each weight where it decodes it. Where there are more rows than
// a tile has, the first tile also leaves the weights, and the others read those. The
// sums are those of Dense<float>, in its order.
//
// Codes are few bytes, and decoding them is slower than memory: no stream of them is
// foreseen well enough, and every tile asks for what comes next.
#pragma once
#include <cmath>
#include <utility>

#include "linear.h"

namespace kev {

// A group of a block: BLOCK scales and BLOCK minima as float32, then 32 times
// BLOCK codes.
struct Coded {
  static constexpr int PART = 1344 / GROUP;  // most groups that are kept as numbers: they fit a second cache
  static constexpr int MOST_ROWS = 256;
  static constexpr long CODES = 2 * BLOCK * 4;  // where a group's codes begin
  static constexpr long GROUP_BYTES = CODES + BLOCK * GROUP;
  static long block_bytes(int depth) { return depth / GROUP * GROUP_BYTES; }
};

// What turns the codes of one vector of columns into weights.
struct Decode {
  vf scale, minimum;
  Decode(const uint8_t* group, int vector)
      : scale(load(reinterpret_cast<const float*>(group) + vector * W)),
        minimum(load(reinterpret_cast<const float*>(group) + BLOCK + vector * W)) {}
  vf weights(const uint8_t* codes) const { return fma(to_float(load_codes(codes)), scale, minimum); }
};

// The weights of one column: a token's embedding, where the head is tied to it.
static inline void coded_column(const Matrix& m, int column, float* out) {
  const uint8_t* group = m.block(column / BLOCK);
  const int lane = column % BLOCK;
  for (int g = 0; g < m.depth / GROUP; g++, group += Coded::GROUP_BYTES) {
    const float* scales = reinterpret_cast<const float*>(group);
    const auto* codes = reinterpret_cast<const int8_t*>(group + Coded::CODES);
    for (int i = 0; i < GROUP; i++)
      *out++ = std::fma(float(codes[i * BLOCK + lane]), scales[lane], scales[BLOCK + lane]);
  }
}

// R rows of NB neighbouring blocks, `groups` groups further straight from the codes. `out`
// holds the sums so far. With KEEP the weights are left in `written`, [32 * groups][BLOCK],
// for other rows: storing them is nearly free beside R rows of multiplications.
template <int R, int NB, bool KEEP>
static void decoded_tile(const float* x, long xs, const uint8_t* group, long block_bytes, int groups, Ahead ahead,
                         float* written, float* out) {
  static_assert(!KEEP || NB == 1);
  constexpr int NV = NB * VB;
  Accumulators<R, NV> acc;
  take(acc, out);
  for (int g = 0; g < groups; g++, group += Coded::GROUP_BYTES) {
    const uint8_t* second = group + (NB - 1) * block_bytes;
    const Decode decode[] = {{group, 0}, {group, 1}, {second, 0}, {second, 1}};
    const uint8_t* codes[] = {group + Coded::CODES, second + Coded::CODES};
    for (int i = 0; i < GROUP / 4; i++) {
      ahead.fetch();
#pragma GCC unroll 4
      for (int k = 0; k < 4; k++, x++) {
        vf w[NV];
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) w[v] = decode[v].weights(codes[v / VB] + (4 * i + k) * BLOCK + v % VB * W);
        if constexpr (KEEP) {
#pragma GCC unroll 2
          for (int v = 0; v < VB; v++, written += W) store(written, w[v]);
        }
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
          const vf xr = set1(x[r * xs]);
#pragma GCC unroll 16
          for (int v = 0; v < NV; v++) fma_into(acc.v[r][v], xr, w[v]);
        }
      }
    }
  }
  put(acc, out);
}

using DecodedFn = void (*)(const float*, long, const uint8_t*, long, int, Ahead, float*, float*);
template <bool KEEP, int... R>
static DecodedFn decoded_tile_of(int rows, std::integer_sequence<int, R...>) {
  static constexpr DecodedFn tiles[] = {decoded_tile<R + 1, 1, KEEP>...};
  return tiles[rows - 1];
}

// R rows, `depth` steps further with weights that were written out; `out` holds the sums so far.
template <int R>
static void written_tile(const float* x, long xs, const float* weights, int depth, Ahead ahead, float* out) {
  Accumulators<R, VB> acc;
  take(acc, out);
  dot_pairs<R, 1, VB>(acc, x, xs, &weights, BLOCK, depth / 2, ahead);
  put(acc, out);
}

using WrittenFn = void (*)(const float*, long, const float*, int, Ahead, float*);
template <int... R>
static WrittenFn written_tile_of(int rows, std::integer_sequence<int, R...>) {
  static constexpr WrittenFn tiles[] = {written_tile<R + 1>...};
  return tiles[rows - 1];
}

constexpr auto CODED_TILES = std::make_integer_sequence<int, TILE>();

// `rows` rows of a block, more than a tile has. `next` is the block that is read after it.
static inline void tiles_of_block(const Operand& a, int from, int rows, const Matrix& m, int block,
                                  const uint8_t* next, float* out) {
  alignas(64) float written[Coded::PART * GROUP * BLOCK];
  const int groups = m.depth / GROUP, tiles = (rows + TILE - 1) / TILE;
  const long xs = a.stride / 4;
#ifdef KEV_DEFECTS  // for tests that must fail: with many rows a sum is in another order
  const int part = 1, first = groups - 1, way = -1;
#else
  const int part = Coded::PART, first = 0, way = 1;
#endif
  std::fill(out, out + rows * BLOCK, 0.0f);
  for (int done = 0; done < groups; done += part) {
    const int count = std::min(part, groups - done), g = first + way * done, depth = count * GROUP;
    const uint8_t* soon = next + g * Coded::GROUP_BYTES;
    const long share = count * Coded::GROUP_BYTES / tiles;
    for (int t = 0; t < tiles; t++, soon += share) {
      const int r0 = long(rows) * t / tiles, r1 = long(rows) * (t + 1) / tiles;
      const float* x = static_cast<const float*>(a.data) + (from + r0) * xs + g * GROUP;
      float* sums = out + r0 * BLOCK;
      if (t == 0)
        decoded_tile_of<true>(r1, CODED_TILES)(x, xs, m.block(block) + g * Coded::GROUP_BYTES, 0, count,
                                               Ahead::over(soon, share, depth / 4), written, sums);
      else
        written_tile_of(r1 - r0, CODED_TILES)(x, xs, written, depth, Ahead::over(soon, share, depth / 2), sums);
    }
  }
}

// Up to a tile of rows of a block, or one row of two, which keeps the adders busy.
static inline void single_tile(const Operand& a, int from, int rows, const Matrix& m, int block, int blocks,
                               const uint8_t* next, float* out) {
  const long xs = a.stride / 4, bytes = m.block_bytes;
  const Ahead ahead = Ahead::over(next, blocks * bytes, m.depth / 4);
  const DecodedFn tile = blocks == 2 ? decoded_tile<1, 2, false> : decoded_tile_of<false>(rows, CODED_TILES);
  std::fill(out, out + rows * blocks * BLOCK, 0.0f);
  tile(static_cast<const float*>(a.data) + from * xs, xs, m.block(block), bytes, m.depth / GROUP, ahead, nullptr, out);
}

template <class Done>
static void linear_part(Coded, const Matrix& m, const Operand& a, int from, int to, int first, int last,
                        const uint8_t* beyond, const Done& done) {
  alignas(64) float out[Coded::MOST_ROWS * BLOCK];
  const int rows = to - from;
  int step;
  for (int block = first; block < last; block += step) {
    step = rows == 1 ? std::min(2, last - block) : 1;
    const uint8_t* next = block + step < last ? m.block(block + step) : beyond;
    if (rows > TILE)
      tiles_of_block(a, from, rows, m, block, next, out);
    else
      single_tile(a, from, rows, m, block, step, next, out);
    for (int r = 0; r < rows; r++)
      for (int b = 0; b < step; b++) done(from + r, block + b, out + (r * step + b) * BLOCK);
  }
}

}  // namespace kev
