// KV pages and attention.
//
// A page holds 16 positions of every KV head: for each head K, as [head dim][16],
// and V, as [16][head dim], so that both are read as columns. Neighbouring pages
// lie in runs: a head's K of RUN pages, then its V. A context whose pages are
// neighbours is thus a stream of memory for each side of each head, and streams
// are what the machine reads fast; runs are short, so that a store of which little
// is used takes little memory.
//
// Row by row: scores over the positions 0 .. own, then their maximum, exponentials
// and sum, then the weighted values, each in the order of absolute positions. Pages
// are the outer loop and rows the inner one: a page that several rows see is read
// from memory once and from cache for the others.
#pragma once
#include "linear.h"

namespace kev {

// Twelve sums, three rows and a weight fill all registers of AVX2. The compiler's usual way
// to deal them out keeps some of the sums in memory, where each waits for itself.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__AVX512F__)
#define KEV_ALL_REGISTERS __attribute__((optimize("ira-algorithm=priority")))
#else
#define KEV_ALL_REGISTERS
#endif

constexpr int PAGE = 16, RUN = 64;
constexpr int ROWS_PER_TASK = 8;

template <class S>
struct Pages {
  S* data = nullptr;
  long pages = 0;
  int heads = 0, dim = 0;

  // Elements: of a page, one head's K or V; of all pages of a layer.
  long side() const { return long(PAGE) * dim; }
  long layer_size() const { return (pages + RUN - 1) / RUN * RUN * 2 * heads * side(); }

  S* key(int layer, int page, int head) const { return at_side(layer, page, 2 * head); }
  S* value(int layer, int page, int head) const { return at_side(layer, page, 2 * head + 1); }
  S* at_side(int layer, int page, int side_of_head) const {
    const long run = long(page / RUN) * 2 * heads + side_of_head;
    return data + layer * layer_size() + (run * RUN + page % RUN) * side();
  }

  // Where one element lies; see load_even for the two orders.
  static long at(long k, long column, long width) {
    return sizeof(S) == 4 ? k * width + column : (k / 2 * width + column) * 2 + k % 2;
  }
  S& key_at(int layer, int page, int head, int slot, int d) const { return key(layer, page, head)[at(d, slot, PAGE)]; }
  S& value_at(int layer, int page, int head, int slot, int d) const {
    return value(layer, page, head)[at(slot, d, dim)];
  }

  // K and V of one position of a head.
  void put(int layer, int page, int head, int slot, const float* k, const float* v) const {
    S *keys = key(layer, page, head) + at(0, slot, PAGE), *values = value(layer, page, head) + at(slot, 0, dim);
    for (int d = 0; d < dim; d++) {
      narrow(k[d], keys[at(d, 0, PAGE)]);
      narrow(v[d], values[at(0, d, dim)]);
    }
  }
};

// What attention needs to know of a row.
struct RowView {
  const float* q;        // [heads][dim], scaled
  float* out;            // [heads][dim]
  const int32_t* table;  // page ids of its channel
  int position;
};

template <class S>
class Attention {
 public:
  Attention(const Pages<S>& kv, int heads) : kv_(kv), share_(heads / kv.heads) {}

  // Makes room for rows at positions up to `last`. Returns the floats that run() needs as scratch.
  long reach(int last) {
    width_ = (last / PAGE + 1) * PAGE;
    return long(ROWS_PER_TASK) * share_ * width_;
  }

  // The query heads of KV head `head`, for up to ROWS_PER_TASK rows.
  void run(const RowView* rows, int count, int layer, int head, float* scratch) const {
    int last = 0;  // last page
    for (int r = 0; r < count; r++) last = std::max(last, rows[r].position / PAGE);
    const Sight sight{kv_, layer, head};
    for (int page = 0; page <= last; page += 2)
      for (int r = 0; r < count; r++) score(rows[r], page, sight, scores(scratch, r));
    float inverse[ROWS_PER_TASK * 64];
    for (int r = 0; r < count; r++)
      for (int h = 0; h < share_; h++) {
        inverse[r * share_ + h] = weigh(scores(scratch, r) + h * width_, rows[r].position + 1);
        float* out = rows[r].out + (head * share_ + h) * kv_.dim;
        std::fill(out, out + kv_.dim, 0.0f);
      }
    for (int page = 0; page <= last; page += 2)
      for (int r = 0; r < count; r++) gather(rows[r], page, sight, scores(scratch, r));
    for (int r = 0; r < count; r++)
      for (int h = 0; h < share_; h++) {
        float* out = rows[r].out + (head * share_ + h) * kv_.dim;
        for (int d = 0; d < kv_.dim; d += W) store(out + d, mul(load(out + d), set1(inverse[r * share_ + h])));
      }
  }

 private:
  static constexpr int VP = PAGE / W;  // vectors in a page's 16 positions

  float* scores(float* scratch, int row) const { return scratch + long(row) * share_ * width_; }

  // Pages of one head, and which two of them to ask for while two others are multiplied: the
  // row's next, and after its last K the first V.
  struct Sight {
    const Pages<S>& kv;
    const int layer, head;

    static int last(const RowView& row) { return row.position / PAGE; }
    const S* key(const RowView& row, int page) const { return kv.key(layer, row.table[page], head); }
    const S* value(const RowView& row, int page) const { return kv.value(layer, row.table[page], head); }
    Soon after_keys(const RowView& row, int page) const {
      return {key_or_value(row, page + 2), key_or_value(row, page + 3), kv.side()};
    }
    Soon after_values(const RowView& row, int page) const {
      return {value(row, std::min(page + 2, last(row))), value(row, std::min(page + 3, last(row))), kv.side()};
    }
    const S* key_or_value(const RowView& row, int page) const {
      const int past = page - last(row) - 1;
      return past < 0 ? key(row, page) : value(row, std::min(past, last(row)));
    }
  };

  // Scores of pages `page` and, where the row has it, `page + 1`.
  void score(const RowView& row, int page, const Sight& sight, float* out) const {
    const int left = Sight::last(row) - page + 1;
    if (left < 1) return;
    const S* keys[2] = {sight.key(row, page), left > 1 ? sight.key(row, page + 1) : nullptr};
    const Soon soon = sight.after_keys(row, page);
    const int head = sight.head;
    const float* q = row.q + head * share_ * kv_.dim;
    for (int h = 0; h < share_;) {
      float* to = out + h * width_ + page * PAGE;
      const float* from = q + h * kv_.dim;
      switch (step(share_ - h)) {
        case 3: left > 1 ? score_tile<3, 2>(from, keys, soon, to) : score_tile<3, 1>(from, keys, soon, to); break;
        case 2: left > 1 ? score_tile<2, 2>(from, keys, soon, to) : score_tile<2, 1>(from, keys, soon, to); break;
        default: left > 1 ? score_tile<1, 2>(from, keys, soon, to) : score_tile<1, 1>(from, keys, soon, to);
      }
      h += step(share_ - h);
    }
  }

  // How many of `left` query heads go together: threes, but two twos for four.
  static int step(int left) { return left == 4 ? 2 : std::min(left, 3); }

  template <int R, int NB>
  KEV_ALL_REGISTERS void score_tile(const float* q, const S* const* keys, const Soon& soon, float* out) const {
    Accumulators<R, NB * VP> acc;
    clear(acc);
    dot_pairs<R, NB, VP>(acc, q, kv_.dim, keys, PAGE, kv_.dim / 2, soon.each<2 * PAGE * sizeof(S)>());
    // Unrolled like every loop over accumulators: or they live in memory all the time.
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
      for (int v = 0; v < NB * VP; v++) store(out + r * width_ + v * W, acc.v[r][v]);
  }

  // Scores to exponentials, in place; returns 1 / their sum. Positions past the
  // row's own count for nothing, whatever lies there. A NaN score is lost to the
  // maximum, but not to its own exponential, and so makes the sum NaN.
  float weigh(float* s, int count) const {
    const int padded = (count + PAGE - 1) / PAGE * PAGE;
    std::fill(s + count, s + padded, -__builtin_inff());
    vf top = load(s);
    for (int i = W; i < padded; i += W) top = max(top, load(s + i));
    const vf shift = set1(max_lanes(top));
    vf total = set1(0.0f);
    for (int i = 0; i < padded; i += W) {
      vf e = exp(sub(load(s + i), shift));
      store(s + i, e);
      total = add(total, e);
    }
    return 1.0f / sum_lanes(total);
  }

  // Adds the values of pages `page` and, where the row has it, `page + 1`, weighted. Never
  // touches positions past the row's own: zero times whatever lies there need not be zero.
  void gather(const RowView& row, int page, const Sight& sight, const float* weights) const {
    const int left = std::min(2, Sight::last(row) - page + 1), head = sight.head;
    if (left < 1) return;
    Part parts[2];
    for (int i = 0; i < left; i++)
      parts[i] = {sight.value(row, page + i), std::min(PAGE, row.position + 1 - (page + i) * PAGE)};
    const Soon soon = sight.after_values(row, page);
    for (int h = 0; h < share_;) {
      const float* w = weights + h * width_ + page * PAGE;
      float* out = row.out + (head * share_ + h) * kv_.dim;
      switch (step(share_ - h)) {
        case 3: gather_tile<3>(w, parts, left, soon, out); break;
        case 2: gather_tile<2>(w, parts, left, soon, out); break;
        default: gather_tile<1>(w, parts, left, soon, out);
      }
      h += step(share_ - h);
    }
  }

  // The values of a page, and how many of its positions the row sees.
  struct Part {
    const S* values;
    int count;
  };

  template <int R>
  void gather_tile(const float* w, const Part* parts, int pages, Soon soon, float* out) const {
    int d = 0;
    for (; d + 4 * W <= kv_.dim; d += 4 * W) gather_columns<R, 4>(w, parts, pages, soon, out, d);
    if (d + 2 * W <= kv_.dim) {
      gather_columns<R, 2>(w, parts, pages, soon, out, d);
      d += 2 * W;
    }
    if (d < kv_.dim) gather_columns<R, 1>(w, parts, pages, soon, out, d);
  }

  template <int R, int NV>
  KEV_ALL_REGISTERS void gather_columns(const float* w, const Part* parts, int pages, Soon& soon, float* out,
                                        int d) const {
    Accumulators<R, NV> acc;
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
      for (int v = 0; v < NV; v++) acc.v[r][v] = load(out + r * kv_.dim + d + v * W);
    for (const Part *part = parts, *end = parts + pages; part < end; part++, w += PAGE) {
      const S* at = pair_column(part->values, d);
      constexpr long ASKED = NV * W * sizeof(S);
      dot_pairs<R, 1, NV>(acc, w, width_, &at, kv_.dim, part->count / 2, soon.each<ASKED>());
      soon.pass(part->count / 2 * ASKED);
      if (part->count % 2) {
        at += long(part->count / 2) * 2 * kv_.dim;
#pragma GCC unroll 16
        for (int v = 0; v < NV; v++) {
          const vf even = load_even(pair_column(at, v * W));
#pragma GCC unroll 16
          for (int r = 0; r < R; r++) fma_into(acc.v[r][v], set1(w[r * width_ + part->count - 1]), even);
        }
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
      for (int v = 0; v < NV; v++) store(out + r * kv_.dim + d + v * W, acc.v[r][v]);
  }

  Pages<S> kv_;
  int share_, width_ = 0;
};

}  // namespace kev
