// float32 weights kept as the codes of their file: in groups of 32 values of k, a
// weight is scale * code + minimum. They take less than a third of the memory, and
// are the same numbers: scale * code has at most 19 bits, so that the sum is all
// that is rounded, here as where the file was read.
//
// Few rows use a weight where it is decoded. For more rows a block is
// written out as numbers: a part at a time, which stays in the first cache while
// they pass by; for very many a longer one, because short pieces of rows are not
// read fast. The sums are those of Dense<float>, in its order.
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
  static constexpr int DIRECT_ROWS = TILE + 4;        // up to so many, decoding twice costs less than writing out
  static constexpr int PART_ROWS = 48;                // beyond so many rows parts are long
  static constexpr int PART = 3072 / BLOCK / GROUP;   // groups of a part: 12 KiB of numbers
  static constexpr int LONG_PART = 1344 / GROUP;      // so long are rows of which more than 48 are in cache
  static constexpr int MOST_ROWS = 128;
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

// R rows of NB neighbouring blocks, straight from the codes.
template <int R, int NB>
static void decoded_tile(const Operand& a, int row, const Matrix& m, int block, Ahead ahead, float* out) {
  constexpr int NV = NB * VB;
  const long xs = a.stride / 4;
  const float* x = static_cast<const float*>(a.data) + row * xs;
  const uint8_t* group = m.block(block);
  Accumulators<R, NV> acc;
  clear(acc);
  for (int g = 0; g < m.depth / GROUP; g++, group += Coded::GROUP_BYTES) {
    const uint8_t* second = group + (NB - 1) * m.block_bytes;
    const Decode decode[] = {{group, 0}, {group, 1}, {second, 0}, {second, 1}};
    const uint8_t* codes[] = {group + Coded::CODES, second + Coded::CODES};
    for (int i = 0; i < GROUP / 4; i++) {
      ahead.fetch();
#pragma GCC unroll 4
      for (int k = 0; k < 4; k++, x++) {
        vf w[NV];
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) w[v] = decode[v].weights(codes[v / VB] + (4 * i + k) * BLOCK + v % VB * W);
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

// The tile for that many rows: for one row of two blocks, which keeps the adders busy.
template <int... R>
static TileFn decoded_tile_of(int rows, int blocks, std::integer_sequence<int, R...>) {
  static constexpr TileFn tiles[] = {decoded_tile<R + 1, 1>...};
  return blocks == 2 ? TileFn(decoded_tile<1, 2>) : tiles[rows - 1];
}

// `groups` groups as numbers, [32 * groups][BLOCK].
static inline void write_out(const uint8_t* group, int groups, float* out) {
  for (int g = 0; g < groups; g++, group += Coded::GROUP_BYTES) {
    const Decode decode[VB] = {{group, 0}, {group, 1}};
    const uint8_t* codes = group + Coded::CODES;
#pragma GCC unroll 4
    for (int i = 0; i < GROUP; i++)
#pragma GCC unroll 2
      for (int v = 0; v < VB; v++, codes += W, out += W) store(out, decode[v].weights(codes));
  }
}

// R rows, `depth` steps further with weights that were written out; `out` holds the sums so far.
template <int R>
static void written_tile(const float* x, long xs, const float* weights, int depth, Ahead ahead, float* out) {
  Accumulators<R, VB> acc;
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 2
    for (int v = 0; v < VB; v++) acc.v[r][v] = load(out + r * BLOCK + v * W);
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
static inline void coded_block(const Operand& a, int from, int rows, const Matrix& m, int block, const uint8_t* next,
                               float* out) {
  alignas(64) float written[Coded::LONG_PART * GROUP * BLOCK];
  const int groups = m.depth / GROUP, tiles = (rows + TILE - 1) / TILE;
#ifdef KEV_DEFECTS  // for tests that must fail: with many rows a sum is in another order
  const int part = 1, first = groups - 1, way = -1;
#else
  const int part = rows > Coded::PART_ROWS ? Coded::LONG_PART : Coded::PART, first = 0, way = 1;
#endif
  std::fill(out, out + rows * BLOCK, 0.0f);
  for (int done = 0; done < groups; done += part) {
    const int count = std::min(part, groups - done), g = first + way * done, depth = count * GROUP;
    write_out(m.block(block) + g * Coded::GROUP_BYTES, count, written);
    const uint8_t* soon = next + g * Coded::GROUP_BYTES;
    const long share = count * Coded::GROUP_BYTES / tiles;
    for (int t = 0; t < tiles; t++) {
      const int r0 = long(rows) * t / tiles, r1 = long(rows) * (t + 1) / tiles;
      const float* x = static_cast<const float*>(a.data) + (from + r0) * (a.stride / 4) + g * GROUP;
      const Ahead ahead{soon + t * share, share / (depth / 2)};
      written_tile_of(r1 - r0, CODED_TILES)(x, a.stride / 4, written, depth, ahead, out + r0 * BLOCK);
    }
  }
}

// Up to DIRECT_ROWS rows of a block or two, straight from the codes.
static inline void direct_block(const Operand& a, int from, int rows, const Matrix& m, int block, int blocks,
                                const uint8_t* next, float* out) {
  const int tiles = (rows + TILE - 1) / TILE;
  const long share = blocks * m.block_bytes / tiles;
  for (int t = 0; t < tiles; t++) {
    const int r0 = long(rows) * t / tiles, r1 = long(rows) * (t + 1) / tiles;
    const Ahead ahead{next + t * share, share / (m.depth / 4)};
    decoded_tile_of(r1 - r0, blocks, CODED_TILES)(a, from + r0, m, block, ahead, out + r0 * BLOCK);
  }
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
    if (rows > Coded::DIRECT_ROWS)
      coded_block(a, from, rows, m, block, next, out);
    else
      direct_block(a, from, rows, m, block, step, next, out);
    for (int r = 0; r < rows; r++)
      for (int b = 0; b < step; b++) done(from + r, block + b, out + (r * step + b) * BLOCK);
  }
}

}  // namespace kev
