// One decoder over rows: the forward.
//
// A row is one token of one channel at one position. Nothing here knows how
// many channels there are: every sum belongs to one row and reads that row, the
// weights, and the pages that the row's table names.
#pragma once
#include <sys/mman.h>

#include <memory>

#include "attention.h"
#include "coded.h"
#include "rowops.h"

namespace kev {

extern "C" {
// All layouts are fixed by the packer (packing.py); pointers stay the caller's.
struct KevLayer {
  const void *qkv, *o, *gate_up, *down;
  const float *attn_norm, *mlp_norm;
  const float* qkv_bias;           // or null
  const float *q_norm, *k_norm;    // or null
};
struct KevModel {
  int32_t hidden, layers, heads, kv_heads, head_dim, inter, vocab;
  int32_t form;  // of the weights: 0 float32, 1 bfloat16, 2 int8, 3 float32 as codes, 4 int8 as nibbles
  int32_t pages, threads;
  float eps;
  const KevLayer* layer;
  const void *embed, *head;  // embed: [vocab][hidden], float32 or (1, 2, 4) bfloat16; null (3): the head's columns
  const float *final_norm, *cos, *sin;
};
struct KevPack {
  int32_t rows, wanted;
  const int32_t *tokens, *positions;
  const int32_t *table_start;  // per row: where its channel's table begins in `tables`
  const int32_t *tables, *wanted_rows;
};
}

class Engine {
 public:
  virtual ~Engine() = default;
  virtual void forward(const KevPack& pack, float* logits) = 0;
  virtual void fill(const int32_t* pages, int count, float x) = 0;
  virtual void copy_page(int source, int target) = 0;
  virtual void plant_kv(int value, int layer, int page, int head, int slot, int d, float x) = 0;
  // The next forward adds x to one element of the hidden state before `layer`.
  void plant_row(int layer, int row, int element, float x) { plant_ = {layer, row, element, x}; }

 protected:
  struct Plant {
    int layer = -1, row = 0, element = 0;
    float x = 0;
  } plant_;
};

// P: what a precision computes with, see engine.cpp.
template <class P>
class Decoder final : public Engine {
  using Kernel = typename P::Kernel;
  using Head = typename P::Head;
  using S = typename P::Stored;

 public:
  explicit Decoder(const KevModel& m)
      : m_(m), layers_(m.layer, m.layer + m.layers), pool_(m.threads) {
    kv_.pages = m.pages;
    kv_.heads = m.kv_heads;
    kv_.dim = m.head_dim;
    kv_bytes_ = sizeof(S) * m.layers * kv_.layer_size();
    void* memory = mmap(nullptr, kv_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    // Contexts lie all over it, and each of the system's small pages would cost a walk through its tables.
    madvise(memory, kv_bytes_, MADV_HUGEPAGE);
    kv_.data = static_cast<S*>(memory);
    attention_ = std::make_unique<Attention<S>>(kv_, m.heads);
    scratch_.resize(pool_.threads());
  }
  ~Decoder() override { munmap(kv_.data, kv_bytes_); }

  void forward(const KevPack& pack, float* logits) override {
    reserve(pack.rows);
    const long floats = attention_->reach(*std::max_element(pack.positions, pack.positions + pack.rows));
    for (auto& scratch : scratch_)
      if (long(scratch.size()) < floats) scratch.resize(floats);
    each_row(pack.rows, [&](int r) { embed(pack, r); });
    int rows = pack.rows;
    for (int l = 0; l < m_.layers; l++) {
      if (plant_.layer == l) x_row(plant_.row)[plant_.element] += plant_.x;
      const KevLayer& layer = layers_[l];
      project(layer, rows);
      each_row(rows, [&](int r) { place(layer, l, r, pack.positions[r]); });
      if (l == m_.layers - 1) rows = keep_wanted(pack);
      if (rows == 0) break;
      attend(l, rows);
      linear<Kernel>(pool_, o(layer), ready(att_, q_width(), rows), rows, gate_up(layer), AddToX{this});
      feed_forward(layer, rows);
    }
    plant_.layer = -1;
    if (rows == 0) return;
    normalise(m_.final_norm, rows, head_in_);
    linear<Head>(pool_, head(), head_in_.operand(m_.hidden), rows, qkv(layers_.front()),
                   [&](int r, int block, const float* sums) {
                     const int from = block * BLOCK, n = std::min(BLOCK, m_.vocab - from);
                     std::copy(sums, sums + n, logits + long(r) * m_.vocab + from);
                   });
  }

  void fill(const int32_t* pages, int count, float x) override {
    // By words of 32 bits, which hold one value or two.
    S value[4 / sizeof(S)];
    for (S& v : value) narrow(x, v);
    float word;
    std::memcpy(&word, value, 4);
    const long words = kv_.side() * long(sizeof(S)) / 4;
    each_side([&](int l, int side) {
      for (int i = 0; i < count; i++) {
        auto* to = reinterpret_cast<float*>(kv_.at_side(l, pages[i], side));
        for (long w = 0; w < words; w += W) store(to + w, set1(word));
      }
    });
  }
  void copy_page(int source, int target) override {
    each_side([&](int l, int side) {
      std::copy_n(kv_.at_side(l, source, side), kv_.side(), kv_.at_side(l, target, side));
    });
  }
  void plant_kv(int value, int layer, int page, int head, int slot, int d, float x) override {
    narrow(x, value ? kv_.value_at(layer, page, head, slot, d) : kv_.key_at(layer, page, head, slot, d));
  }

 private:
  struct AddToX {
    Decoder* d;
    void operator()(int r, int block, const float* sums) const {
      float* x = d->x_row(r) + block * BLOCK;
      for (int v = 0; v < BLOCK; v += W) store(x + v, add(load(x + v), load(sums + v)));
    }
  };

  int q_width() const { return m_.heads * m_.head_dim; }
  int qkv_width() const { return (m_.heads + 2 * m_.kv_heads) * m_.head_dim; }
  float* x_row(int r) { return x_.data() + r * x_stride_; }
  float* qkv_row(int r) { return qkv_.data() + r * qkv_stride_; }

  template <class K = Kernel>
  static Matrix matrix(const void* data, int depth, int columns) {
    return {static_cast<const uint8_t*>(data), K::block_bytes(depth), (columns + BLOCK - 1) / BLOCK, depth};
  }

  Matrix qkv(const KevLayer& layer) const { return matrix(layer.qkv, m_.hidden, qkv_width()); }
  Matrix o(const KevLayer& layer) const { return matrix(layer.o, q_width(), m_.hidden); }
  Matrix gate_up(const KevLayer& layer) const { return matrix(layer.gate_up, m_.hidden, 2 * m_.inter); }
  Matrix down(const KevLayer& layer) const { return matrix(layer.down, m_.inter, m_.hidden); }
  Matrix head() const { return matrix<Head>(m_.head, m_.hidden, m_.vocab); }

  // K and V of every head in every layer.
  template <class F>
  void each_side(const F& f) {
    const int sides = 2 * m_.kv_heads;
    pool_.run(m_.layers * sides, [&](int task, int) { f(task / sides, task % sides); });
  }

  template <class F>
  void each_row(int rows, const F& f) {
    const int per_task = std::max(1, rows / (pool_.threads() * 4));
    if (rows < 4) {
      for (int r = 0; r < rows; r++) f(r);
      return;
    }
    pool_.run((rows + per_task - 1) / per_task, [&](int task, int) {
      for (int r = task * per_task; r < std::min(rows, (task + 1) * per_task); r++) f(r);
    });
  }

  // Buffers grow to the largest pack seen; rows end on whole blocks. Where memory runs out midway
  // the pack was not seen: the next one finds out anew what is there.
  void reserve(int rows) {
    if (rows <= reserved_) return;
    const auto whole = [](long n) { return (n + BLOCK - 1) / BLOCK * BLOCK; };
    x_stride_ = padded(whole(m_.hidden));
    qkv_stride_ = padded(whole(qkv_width()));
    x_.resize(rows * x_stride_);
    qkv_.resize(rows * qkv_stride_);
    att_.resize(rows * padded(q_width()));
    hid_.resize(rows * padded(m_.inter));
    views_.resize(rows);
    in_.reserve(rows, std::max({m_.hidden, m_.inter, q_width()}));
    head_in_.reserve(rows, m_.hidden);
    reserved_ = rows;
  }

  void embed(const KevPack& pack, int r) {
    float* x = x_row(r);
    if (m_.embed) {
      const auto* row = static_cast<const S*>(m_.embed) + long(pack.tokens[r]) * m_.hidden;
      for (int i = 0; i < m_.hidden; i++) x[i] = widen(row[i]);
    } else if constexpr (std::is_same_v<Head, Coded>) {
      coded_column(head(), pack.tokens[r], x);
    }
    views_[r] = {qkv_row(r), att_.data() + r * padded(q_width()), pack.tables + pack.table_start[r], pack.positions[r]};
  }

  // The normed hidden state, as a linear layer's left side.
  template <class Rows>
  void normalise(const float* weight, int rows, Rows& in) {
    each_row(rows, [&](int r) {
      if constexpr (Rows::in_place) {
        rms_norm(x_row(r), weight, m_.eps, m_.hidden, in.row(r, m_.hidden));
      } else {
        alignas(64) thread_local std::vector<float> normed;
        normed.resize(m_.hidden);
        rms_norm(x_row(r), weight, m_.eps, m_.hidden, normed.data());
        in.put(r, normed.data(), m_.hidden);
      }
    });
  }

  // Rows of a float buffer, as a linear layer's left side.
  Operand ready(const std::vector<float>& rows_of, int depth, int rows) {
    if constexpr (P::Rows::in_place) return {rows_of.data(), padded(depth) * 4};
    each_row(rows, [&](int r) { in_.put(r, rows_of.data() + r * padded(depth), depth); });
    return in_.operand(depth);
  }

  void project(const KevLayer& layer, int rows) {
    normalise(layer.attn_norm, rows, in_);
    linear<Kernel>(pool_, qkv(layer), in_.operand(m_.hidden), rows, o(layer),
                   [&](int r, int block, const float* sums) {
                     std::copy(sums, sums + BLOCK, qkv_row(r) + block * BLOCK);
                   });
  }

  // Bias, head norms and rotation of a row; its K and V go into its page.
  void place(const KevLayer& layer, int l, int r, int position) {
    float* q = qkv_row(r);
    const int dim = m_.head_dim;
    const float *cos = m_.cos + long(position) * (dim / 2), *sin = m_.sin + long(position) * (dim / 2);
    if (layer.qkv_bias) add_to(q, layer.qkv_bias, qkv_width());
    for (int h = 0; h < m_.heads + m_.kv_heads; h++) {
      const bool query = h < m_.heads;
      const float* norm = query ? layer.q_norm : layer.k_norm;
      if (norm) rms_norm(q + h * dim, norm, m_.eps, dim, q + h * dim);
      rotate(q + h * dim, cos, sin, dim, query ? 1.0f / std::sqrt(float(dim)) : 1.0f);
    }
    const float *k = q + q_width(), *v = k + m_.kv_heads * dim;
    const int page = views_[r].table[position / PAGE], slot = position % PAGE;
    for (int h = 0; h < m_.kv_heads; h++) kv_.put(l, page, h, slot, k + h * dim, v + h * dim);
  }

  // Only wanted rows go on past the last layer's K and V; they move to the front.
  int keep_wanted(const KevPack& pack) {
    for (int i = 0; i < pack.wanted; i++) {
      const int r = pack.wanted_rows[i];
      views_[i] = views_[r];
      views_[i].out = att_.data() + i * padded(q_width());
      if (r != i) std::copy(x_row(r), x_row(r) + m_.hidden, x_row(i));
    }
    return pack.wanted;
  }

  // Tasks go by KV head, so that pages shared by many rows stay in cache;
  // the longest rows of a prompt go first, so that no thread ends alone.
  void attend(int l, int rows) {
    group(rows);
    const int groups = int(groups_.size()) - 1;
    pool_.run(groups * m_.kv_heads, [&](int task, int thread) {
      const int g = groups - 1 - task % groups, first = groups_[g];
      attention_->run(views_.data() + first, groups_[g + 1] - first, l, task / groups, scratch_[thread].data());
    });
  }

  // Where each group of rows begins, and where the last one ends. Rows that begin with the same page go
  // together; one that shares nothing goes alone, and reads its context as a stream that nothing disturbs.
  void group(int rows) {
    const int most = std::clamp(rows * m_.kv_heads / (pool_.threads() * 4), 1, ROWS_PER_TASK);
    groups_.assign(1, 0);
    for (int r = 1; r < rows; r++)
      if (r - groups_.back() == most || *views_[r].table != *views_[r - 1].table) groups_.push_back(r);
    groups_.push_back(rows);
  }

  // A gate_up block holds W gate columns and the W up columns that belong to them.
  void feed_forward(const KevLayer& layer, int rows) {
    normalise(layer.mlp_norm, rows, in_);
    linear<Kernel>(pool_, gate_up(layer), in_.operand(m_.hidden), rows, down(layer),
                   [&](int r, int block, const float* sums) {
                     store(hid_.data() + r * padded(m_.inter) + block * W, silu_times(load(sums), load(sums + W)));
                   });
    const Matrix then = &layer == &layers_.back() ? head() : qkv((&layer)[1]);
    linear<Kernel>(pool_, down(layer), ready(hid_, m_.inter, rows), rows, then, AddToX{this});
  }

  KevModel m_;
  std::vector<KevLayer> layers_;
  Pool pool_;
  Pages<S> kv_;
  size_t kv_bytes_ = 0;
  std::unique_ptr<Attention<S>> attention_;
  std::vector<std::vector<float>> scratch_;
  std::vector<RowView> views_;
  std::vector<int> groups_;
  std::vector<float> x_, qkv_, att_, hid_;
  typename P::Rows in_;
  typename P::HeadRows head_in_;
  long x_stride_ = 0, qkv_stride_ = 0;
  int reserved_ = 0;
};

}  // namespace kev
