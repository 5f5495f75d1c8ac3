// What each precision computes with, and the decoder's plain C interface.
#include "decoder.h"
#include "nibbles.h"
#include "roofs.h"

namespace kev {

// KV in bfloat16 costs half the memory traffic, and no more top choices than bfloat16 weights do.
struct Fp32 {
  using Kernel = Dense<float>;
  using Head = Kernel;  // the last matrix may be packed otherwise
  using Rows = FloatRows;
  using HeadRows = Rows;
  using Stored = float;  // embedding, K and V
};
struct Fp32Coded : Fp32 {
  using Kernel = Coded;
  using Head = Kernel;
};
struct Bf16 {
#if defined(__AVX512BF16__)
  using Kernel = DotBf16;
  using Rows = Bf16Rows;
#else
  using Kernel = Dense<bf16>;
  using Rows = FloatRows;
#endif
  using Head = Kernel;
  using HeadRows = Rows;
  using Stored = bf16;
};
struct Int8Groups {
  using Kernel = Int8;
  using Head = Int8;
  using Rows = Int8Rows;
  using HeadRows = Int8Rows;
  using Stored = bf16;
};
struct Int8Nibbles : Int8Groups {
  using Kernel = Nibbles;
  using Rows = NibbleRows;
};

}  // namespace kev

// ---- C interface ------------------------------------------------------------
// One engine is used from one thread at a time. Arguments are checked by the caller.

extern "C" {
int32_t kev_block() { return kev::BLOCK; }
int32_t kev_int8_step() { return kev::KQ; }

void* kev_open(const kev::KevModel* m) {
  try {
    switch (m->form) {
      case 0: return new kev::Decoder<kev::Fp32>(*m);
      case 1: return new kev::Decoder<kev::Bf16>(*m);
      case 2: return new kev::Decoder<kev::Int8Groups>(*m);
      case 3: return new kev::Decoder<kev::Fp32Coded>(*m);
      case 4: return new kev::Decoder<kev::Int8Nibbles>(*m);
      default: return nullptr;
    }
  } catch (...) {
    return nullptr;
  }
}
void kev_close(void* e) { delete static_cast<kev::Engine*>(e); }

// Bytes per second (kind -1, reading `data`), instructions per second (kind -2), or operations per second
// of `kind` (operations_roof).
double kev_roof(int32_t kind, int32_t threads, const void* data, int64_t size) {
  kev::Pool pool(threads);
  if (kind == -2) return kev::instructions_roof(pool);
  return kind < 0 ? kev::read_roof(pool, static_cast<const float*>(data), size) : kev::operations_roof(pool, kind);
}

// 0, or 1 when memory ran out.
int32_t kev_forward(void* e, const kev::KevPack* pack, float* logits) {
  try {
    static_cast<kev::Engine*>(e)->forward(*pack, logits);
    return 0;
  } catch (...) {
    return 1;
  }
}
void kev_fill(void* e, const int32_t* pages, int32_t count, float x) {
  static_cast<kev::Engine*>(e)->fill(pages, count, x);
}
void kev_copy_page(void* e, int32_t source, int32_t target) {
  static_cast<kev::Engine*>(e)->copy_page(source, target);
}
void kev_plant_kv(void* e, int32_t value, int32_t layer, int32_t page, int32_t head, int32_t slot, int32_t d, float x) {
  static_cast<kev::Engine*>(e)->plant_kv(value, layer, page, head, slot, d, x);
}
void kev_plant_row(void* e, int32_t layer, int32_t row, int32_t element, float x) {
  static_cast<kev::Engine*>(e)->plant_row(layer, row, element, x);
}
}
