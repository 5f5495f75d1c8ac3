// The machine, in a few words: vectors of W floats and the dot steps of each precision.
//
// The same source is compiled once per instruction set; everything that differs
// between them is in this file. Sums are spelled out as fused multiply-adds, and
// the compiler may not contract or reorder anything else, so that one variant
// always rounds in the same places.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace kev {

#if defined(__AVX512F__)
using vf = __m512;
using vi = __m512i;
constexpr int W = 16;
#define KEV_OP(name) _mm512_##name
#define KEV_CAST_FI _mm512_castps_si512
#define KEV_CAST_IF _mm512_castsi512_ps
#define KEV_AND _mm512_and_si512
static inline vi loadi(const void* p) { return _mm512_loadu_si512(p); }
#else
using vf = __m256;
using vi = __m256i;
constexpr int W = 8;
#define KEV_OP(name) _mm256_##name
#define KEV_CAST_FI _mm256_castps_si256
#define KEV_CAST_IF _mm256_castsi256_ps
#define KEV_AND _mm256_and_si256
static inline vi loadi(const void* p) { return _mm256_loadu_si256(static_cast<const vi*>(p)); }
#endif

static inline vf load(const float* p) { return KEV_OP(loadu_ps)(p); }
static inline void store(float* p, vf v) { KEV_OP(storeu_ps)(p, v); }
static inline vf set1(float x) { return KEV_OP(set1_ps)(x); }
static inline vi set1i(int32_t x) { return KEV_OP(set1_epi32)(x); }
static inline vf add(vf a, vf b) { return KEV_OP(add_ps)(a, b); }
static inline vf sub(vf a, vf b) { return KEV_OP(sub_ps)(a, b); }
static inline vf mul(vf a, vf b) { return KEV_OP(mul_ps)(a, b); }
static inline vf div(vf a, vf b) { return KEV_OP(div_ps)(a, b); }
static inline vf fma(vf a, vf b, vf c) { return KEV_OP(fmadd_ps)(a, b, c); }
static inline vf fnma(vf a, vf b, vf c) { return KEV_OP(fnmadd_ps)(a, b, c); }
// The machine's max and min return the *second* operand when either is NaN:
// the value that may be NaN must stand second.
static inline vf max(vf a, vf maybe_nan) { return KEV_OP(max_ps)(a, maybe_nan); }
static inline vf min(vf a, vf maybe_nan) { return KEV_OP(min_ps)(a, maybe_nan); }
static inline vi to_int(vf v) { return KEV_OP(cvtps_epi32)(v); }  // nearest, ties to even
static inline vf to_float(vi v) { return KEV_OP(cvtepi32_ps)(v); }
static inline vi addi(vi a, vi b) { return KEV_OP(add_epi32)(a, b); }
static inline vi maxi(vi a, vi b) { return KEV_OP(max_epi32)(a, b); }
static inline vf bits(vi v) { return KEV_CAST_IF(v); }
static inline vi bits(vf v) { return KEV_CAST_FI(v); }
static inline vi shift_left16(vi v) { return KEV_OP(slli_epi32)(v, 16); }
static inline vi shift_left23(vi v) { return KEV_OP(slli_epi32)(v, 23); }
static inline vi high_half(vi v) { return KEV_AND(v, set1i(int32_t(0xffff0000))); }
static inline void storei(int32_t* p, vi v) { store(reinterpret_cast<float*>(p), bits(v)); }
static inline float bits(int32_t v) {
  float f;
  std::memcpy(&f, &v, 4);
  return f;
}
static inline vf abs(vf v) { return bits(KEV_AND(bits(v), set1i(0x7fffffff))); }

// Sums that stay in one register. Left to itself the compiler moves accumulators
// about, and spills them to the stack in the innermost loop. `plain` says the
// same in C++ (KEV_NO_ASM: for tests that emulate a wider machine).
#if !defined(KEV_NO_ASM)
#define KEV_INTO(text, acc, a, b, plain) asm(text : "+v"(acc) : "v"(a), "v"(b))
#else
#define KEV_INTO(text, acc, a, b, plain) acc = plain
#endif
static inline void fma_into(vf& acc, vf a, vf b) { KEV_INTO("vfmadd231ps %2, %1, %0", acc, a, b, fma(a, b, acc)); }
static inline void add_into(vi& acc, vi a) { KEV_INTO("vpaddd %1, %0, %0", acc, a, a, addi(acc, a)); }

// Numbers in memory stay there: the compiler would read them early, and spill sums to have room for them.
static inline void keep_in_memory() { asm volatile("" : : : "memory"); }

#if defined(__AVX512F__)
static inline vf zero_if_below(vf x, vf limit, vf y) {
  return _mm512_maskz_mov_ps(__mmask16(~_mm512_cmp_ps_mask(x, limit, _CMP_LT_OQ)), y);
}
static inline vf round_even(vf v) { return _mm512_roundscale_ps(v, 8); }
#else
static inline vf zero_if_below(vf x, vf limit, vf y) {
  return _mm256_andnot_ps(_mm256_cmp_ps(x, limit, _CMP_LT_OQ), y);
}
static inline vf round_even(vf v) { return _mm256_round_ps(v, 8); }
#endif

// Sum and maximum over lanes, always in lane order.
static inline float sum_lanes(vf v) {
  float lane[W], total = 0.0f;
  store(lane, v);
  for (int i = 0; i < W; i++) total += lane[i];
  return total;
}
static inline float max_lanes(vf v) {
  float lane[W];
  store(lane, v);
  float top = lane[0];
  for (int i = 1; i < W; i++) top = lane[i] > top ? lane[i] : top;
  return top;
}

static inline int32_t max_lanes(vi v) {
  int32_t lane[W];
  storei(lane, v);
  int32_t top = lane[0];
  for (int i = 1; i < W; i++) top = lane[i] > top ? lane[i] : top;
  return top;
}
static inline uint32_t sum_lanes(vi v) {  // wraps
  int32_t lane[W];
  storei(lane, v);
  uint32_t total = 0;
  for (int i = 0; i < W; i++) total += uint32_t(lane[i]);
  return total;
}

// e^x. NaN stays NaN; far below zero it is exactly 0. Error about one unit in the last place.
static inline vf exp(vf x) {
  const vf low = set1(-87.33f);
  vf c = min(set1(88.0f), max(low, x));
  vf n = round_even(mul(c, set1(1.44269504f)));
  vf r = fnma(n, set1(0.693359375f), c);
  r = fnma(n, set1(-2.12194440e-4f), r);
  vf p = set1(1.0f / 5040.0f);
  p = fma(p, r, set1(1.0f / 720.0f));
  p = fma(p, r, set1(1.0f / 120.0f));
  p = fma(p, r, set1(1.0f / 24.0f));
  p = fma(p, r, set1(1.0f / 6.0f));
  p = fma(p, r, set1(0.5f));
  p = fma(p, r, set1(1.0f));
  p = fma(p, r, set1(1.0f));
  vf power = bits(shift_left23(addi(to_int(n), set1i(127))));
  return zero_if_below(x, low, mul(p, power));
}

// ---- bfloat16 ---------------------------------------------------------------

struct bf16 {
  uint16_t raw;
};
static inline float widen(bf16 v) {
  uint32_t u = uint32_t(v.raw) << 16;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}
static inline float widen(float v) { return v; }
static inline void narrow(float x, float& out) { out = x; }
// Nearest, ties to even. A NaN is kept one: rounding could carry its payload away.
static inline void narrow(float x, bf16& out) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  if (x != x)
    out.raw = uint16_t(u >> 16) | 0x40;
  else
    out.raw = uint16_t((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

// Two steps of the sum for W columns: `even` is index 2i, `odd` 2i + 1.
// float32 stores the two as two runs of `width` columns; bfloat16 stores each
// column's two values side by side in 32 bits.
static inline vf load_even(const float* p) { return load(p); }
static inline vf load_odd(const float* p, long width) { return load(p + width); }
static inline vf load_even(const bf16* p) { return bits(shift_left16(loadi(p))); }
static inline vf load_odd(const bf16* p, long) { return bits(high_half(loadi(p))); }
// The same where sums and rows leave no register for a mask: it stays in memory.
static inline vf load_odd_tight(const float* p, long width) { return load_odd(p, width); }
#if !defined(KEV_NO_ASM) && !defined(__AVX512F__)
alignas(sizeof(vi)) static const int32_t HIGH_HALVES[] = {-65536, -65536, -65536, -65536, -65536, -65536, -65536, -65536};
static inline vf load_odd_tight(const bf16* p, long) {
  vi v = loadi(p);
  asm("vpand %1, %0, %0" : "+x"(v) : "m"(*reinterpret_cast<const vi*>(HIGH_HALVES)));
  return bits(v);
}
#else
static inline vf load_odd_tight(const bf16* p, long width) { return load_odd(p, width); }
#endif
// Where column `c` of a pair of `width` columns begins.
static inline const float* pair_column(const float* p, long c) { return p + c; }
static inline const bf16* pair_column(const bf16* p, long c) { return p + 2 * c; }

// ---- codes of a file: signed bytes -------------------------------------------
#if defined(__AVX512F__)
static inline vi load_codes(const uint8_t* p) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
#else
static inline vi load_codes(const uint8_t* p) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
#endif

// ---- int8, groups of 32 -----------------------------------------------------
// A 32-bit lane holds KQ neighbouring values of one column. idot adds their
// products with the KQ values of the row that `x` repeats in every lane.

#if defined(__AVX512VNNI__)
// Weights are stored with 128 added (the instruction wants one side unsigned);
// the row carries -128 times its group's sum to begin with.
using xint = int8_t;
constexpr int KQ = 4;
constexpr float X_LEVELS = 127.0f;
static inline vi load_weights(const uint8_t* p) { return loadi(p); }
static inline void idot_into(vi& acc, vi w, vi x) {
  KEV_INTO("vpdpbusd %2, %1, %0", acc, w, x, _mm512_dpbusd_epi32(acc, w, x));
}
#else
// Eight-bit multiplies saturate here (two 8-bit products overflow 16 bits), so
// weights are widened to 16 bits on load. The row may then keep 16 bits as
// well, at no cost: 32 x 127 x 32767 still fits the 32-bit sum.
using xint = int16_t;
constexpr int KQ = 2;
constexpr float X_LEVELS = 32767.0f;
#if defined(__AVX512F__)
static inline vi load_weights(const uint8_t* p) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
#else
static inline vi load_weights(const uint8_t* p) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
#endif
static inline void idot_into(vi& acc, vi w, vi x) { add_into(acc, KEV_OP(madd_epi16)(w, x)); }
#endif

// ---- nibbles: codes of four bits ---------------------------------------------
// A 32-bit lane holds four bytes of one column, and each byte two codes. The dot adds
// the products of four codes with four signed bytes of the row, which `x` repeats.
static inline vi low_nibbles(vi v) { return KEV_AND(v, set1i(0x0f0f0f0f)); }
static inline vi high_nibbles(vi v) { return KEV_AND(KEV_OP(srli_epi32)(v, 4), set1i(0x0f0f0f0f)); }

#if defined(__AVX512VNNI__)
static inline void nibble_dot_into(vi& acc, vi w, vi x) {
  KEV_INTO("vpdpbusd %2, %1, %0", acc, w, x, _mm512_dpbusd_epi32(acc, w, x));
}
static inline vi nibble_dot(vi w, vi x) { return _mm512_dpbusd_epi32(set1i(0), w, x); }
static inline vi nibble_sums(vi acc) { return acc; }
#else
// Sums of 16 bits, two for a column: a group's are at most 16 x 15 x 127, and never saturate.
static inline vi nibble_dot(vi w, vi x) { return KEV_OP(maddubs_epi16)(w, x); }
static inline void nibble_dot_into(vi& acc, vi w, vi x) {
  const vi products = nibble_dot(w, x);
  KEV_INTO("vpaddw %1, %0, %0", acc, products, products, KEV_OP(add_epi16)(acc, products));
}
static inline vi nibble_sums(vi acc) { return KEV_OP(madd_epi16)(acc, set1i(0x00010001)); }
#endif

// W half-precision numbers.
#if defined(__AVX512F__)
static inline vf load_halves(const void* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
#else
static inline vf load_halves(const void* p) { return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p))); }
#endif

#if defined(__AVX512BF16__)
static inline void dot_bf16_into(vf& acc, vi w, vi x) {
  KEV_INTO("vdpbf16ps %2, %1, %0", acc, w, x, _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)x));
}
#endif

// Repeats 32 bits from anywhere in every lane.
static inline vi repeat32(const void* p) {
  int32_t v;
  std::memcpy(&v, p, 4);
  return set1i(v);
}

}  // namespace kev
