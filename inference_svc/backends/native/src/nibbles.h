// int8 where the file has codes of four bits: they are multiplied as they lie there,
// with rows of eight bits. Weights take five bits each, scale and minimum included, and
// are exactly those of the file; what is rounded is the rows, in groups of 32.
#pragma once
#include "linear.h"

namespace kev {

// A group of a block: BLOCK scales and BLOCK minima as half-precision numbers, then
// GROUP / 8 steps of four bytes for each column. Their low halves are the codes of four
// values of k, their high halves those of the next four. A weight is scale * code + minimum.
struct Nibbles {
  using Rows = RowGroup<int8_t, float>;
  static constexpr int STEP = 8, WIDE_ROWS = 0, MOST_ROWS = 1 << 16, FORESEEN_ROWS = 0;
  static constexpr long MINIMA = BLOCK * 2, CODES = 2 * MINIMA;
  static constexpr long GROUP_BYTES = CODES + BLOCK * GROUP / 2;
  static long block_bytes(int depth) { return depth / GROUP * GROUP_BYTES; }

  template <int R, int NB>
  static void tile(const Operand& a, int row, const Matrix& m, int block, Ahead ahead, float* out) {
    static_assert(NB == 1);
    const uint8_t* group = m.block(block);
    const uint8_t* x = static_cast<const uint8_t*>(a.data) + row * a.stride;
    const long xs = a.stride;
    const auto of = [&](int r) { return reinterpret_cast<const Rows*>(x + r * xs); };
    // The totals stay in memory: the registers belong to the group's whole numbers.
    for (int i = 0; i < R * VB; i++) store(out + i * W, set1(0.0f));
    for (int g = 0; g < m.depth / GROUP; g++, group += GROUP_BYTES, x += sizeof(Rows)) {
      vi acc[R][VB];
#pragma GCC unroll 8
      for (int half = 0; half < GROUP / 4; half++) {
        if (half % 2 == 0) ahead.fetch();
        vi w[VB];
#pragma GCC unroll 2
        for (int v = 0; v < VB; v++) {
          const vi both = loadi(group + CODES + (half / 2 * BLOCK + v * W) * 4);
          w[v] = half % 2 ? high_nibbles(both) : low_nibbles(both);
        }
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
          const vi xv = repeat32(x + r * xs + half * 4);
#pragma GCC unroll 2
          for (int v = 0; v < VB; v++)
            if (half == 0)
              acc[r][v] = nibble_dot(w[v], xv);
            else
              nibble_dot_into(acc[r][v], w[v], xv);
        }
      }
#pragma GCC unroll 2
      for (int v = 0; v < VB; v++) {
        keep_in_memory();
        const vf s = load_halves(group + v * W * 2), least = load_halves(group + MINIMA + v * W * 2);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
          float* to = out + (r * VB + v) * W;
          const vf dot = to_float(nibble_sums(acc[r][v]));
          const vf sum = fma(dot, mul(s, set1(of(r)->scale)), load(to));
          store(to, fma(least, set1(of(r)->sum), sum));
        }
      }
    }
  }
};

}  // namespace kev
