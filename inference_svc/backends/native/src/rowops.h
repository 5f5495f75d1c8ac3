// Work on single rows: norms, rotary positions, and the form in which each
// precision wants the rows of a linear layer.
#pragma once
#include <cmath>
#include <vector>

#include "linear.h"

namespace kev {

// out = x / rms(x) * weight. Lanes are summed apart and joined in lane order.
static inline void rms_norm(const float* x, const float* weight, float eps, int n, float* out) {
  vf squares = set1(0.0f);
  for (int i = 0; i < n; i += W) squares = fma(load(x + i), load(x + i), squares);
  const vf factor = set1(1.0f / std::sqrt(sum_lanes(squares) / float(n) + eps));
  for (int i = 0; i < n; i += W) store(out + i, mul(mul(load(x + i), factor), load(weight + i)));
}

// Rotates the two halves of a head by the position's angles, and scales it.
static inline void rotate(float* x, const float* cos, const float* sin, int dim, float scale) {
  const int half = dim / 2;
  int i = 0;
  for (; i + W <= half; i += W) {
    const vf a = load(x + i), b = load(x + i + half), c = load(cos + i), s = load(sin + i), size = set1(scale);
    store(x + i, mul(sub(mul(a, c), mul(b, s)), size));
    store(x + i + half, mul(add(mul(b, c), mul(a, s)), size));
  }
  for (; i < half; i++) {
    const float a = x[i], b = x[i + half];
    x[i] = (a * cos[i] - b * sin[i]) * scale;
    x[i + half] = (b * cos[i] + a * sin[i]) * scale;
  }
}

static inline void add_to(float* x, const float* bias, int n) {
  for (int i = 0; i < n; i++) x[i] += bias[i];
}

static inline vf silu_times(vf gate, vf up) {
  const vf one = set1(1.0f);
  return mul(div(gate, add(one, exp(sub(set1(0.0f), gate)))), up);
}

// Distance between rows in memory: one cache line more than the row, so that
// rows whose length is a power of two do not fall on the same few cache sets.
static inline long padded(long n) { return n + 16; }

// ---- the left side of a linear layer ----------------------------------------

// Rows as they are.
class FloatRows {
 public:
  void reserve(long rows, long depth) { data_.resize(rows * padded(depth)); }
  float* row(int r, long depth) { return data_.data() + r * padded(depth); }
  void put(int, const float*, long) {}  // already in place
  Operand operand(long depth) const { return {data_.data(), padded(depth) * 4}; }
  static constexpr bool in_place = true;

 private:
  std::vector<float> data_;
};

// Rows rounded to bfloat16.
class Bf16Rows {
 public:
  void reserve(long rows, long depth) { data_.resize(rows * padded(depth)); }
  void put(int r, const float* x, long depth) {
    bf16* to = data_.data() + r * padded(depth);
    for (long i = 0; i < depth; i++) narrow(x[i], to[i]);
  }
  Operand operand(long depth) const { return {data_.data(), padded(depth) * 2}; }
  static constexpr bool in_place = false;

 private:
  std::vector<bf16> data_;
};

// Rows in groups of 32, each with its own scale: never one scale for two rows.
template <class X, class Sum>
class GroupRows {
  using Group = RowGroup<X, Sum>;

 public:
  explicit GroupRows(float levels) : levels_(levels) {}
  void reserve(long rows, long depth) { data_.resize(rows * stride(depth)); }
  void put(int r, const float* x, long depth) {
    Group* to = data_.data() + r * stride(depth);
    for (long g = 0; g < depth / GROUP; g++) quantise(x + g * GROUP, to[g]);
  }
  Operand operand(long depth) const { return {data_.data(), stride(depth) * long(sizeof(Group))}; }
  static constexpr bool in_place = false;

 private:
  static long stride(long depth) { return depth / GROUP + 1; }  // a group more, as in padded

  // Magnitudes are compared as whole numbers: so what is not finite is the greatest, and
  // makes the scale what it is. Else a NaN would be rounded to a number like any other.
  void quantise(const float* x, Group& to) {
    vi top = set1i(0);
    for (int i = 0; i < GROUP; i += W) top = maxi(top, bits(abs(load(x + i))));
    float most = bits(max_lanes(top));
#ifdef KEV_DEFECTS  // for tests that must fail: the scale depends on rows seen before
    static float seen = 0.0f;
    most = seen = most > seen ? most : seen;
#endif
    const vf factor = set1(most > 0.0f ? levels_ / most : 0.0f);
    alignas(64) int32_t whole[GROUP];
    vi sums = set1i(0);
    for (int i = 0; i < GROUP; i += W) {
      const vi rounded = to_int(mul(load(x + i), factor));
      storei(whole + i, rounded);
      sums = addi(sums, rounded);
    }
    for (int i = 0; i < GROUP; i++) to.value[i] = X(whole[i]);
    to.scale = most / levels_;
    put_sum(sum_lanes(sums), to);
  }

  static void put_sum(uint32_t sum, RowGroup<X, int32_t>& to) { to.sum = int32_t(0u - 128u * sum); }
  static void put_sum(uint32_t sum, RowGroup<X, float>& to) { to.sum = to.scale * float(int32_t(sum)); }

  const float levels_;
  std::vector<Group> data_;
};

struct Int8Rows : GroupRows<xint, int32_t> {
  Int8Rows() : GroupRows(X_LEVELS) {}
};
struct NibbleRows : GroupRows<int8_t, float> {
  NibbleRows() : GroupRows(127.0f) {}
};

}  // namespace kev
