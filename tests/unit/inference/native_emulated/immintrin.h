// The AVX-512 operations that the kernels use, in plain C++, so that the AVX-512
// builds of the same source can be tried on any machine. Slow, and only for tests.
#pragma once
// The system's header must not take the test's switches for its own.
#pragma push_macro("__AVX512F__")
#pragma push_macro("__AVX512VNNI__")
#pragma push_macro("__AVX512BF16__")
#undef __AVX512F__
#undef __AVX512VNNI__
#undef __AVX512BF16__
#include_next <immintrin.h>
#pragma pop_macro("__AVX512F__")
#pragma pop_macro("__AVX512VNNI__")
#pragma pop_macro("__AVX512BF16__")

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace emulated {
struct F {
  float v[16];
};
struct I {
  int32_t v[16];
};
template <class T, class G>
static inline T lanes(const G& g) {
  T out;
  for (int i = 0; i < 16; i++) out.v[i] = g(i);
  return out;
}
template <class To, class From>
static inline To cast(const From& from) {
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
static inline float bf16(uint16_t raw) { return cast<float>(uint32_t(raw) << 16); }
}  // namespace emulated

#define __m512 emulated::F
#define __m512i emulated::I
#define __m512bh emulated::I
#define __mmask16 uint16_t
// These differ from the system's in their result alone.
#define _mm512_loadu_ps emulated_loadu_ps
#define _mm512_loadu_si512 emulated_loadu_si512
#define _mm512_set1_ps emulated_set1_ps
#define _mm512_set1_epi32 emulated_set1_epi32
#define _mm512_cvtepi8_epi16 emulated_cvtepi8_epi16
#define _mm512_cvtepi8_epi32 emulated_cvtepi8_epi32
#define _mm512_cvtph_ps emulated_cvtph_ps

#define EMULATE_FF(name, expression)                                 \
  static inline __m512 name(const __m512& a, const __m512& b) {      \
    return emulated::lanes<__m512>([&](int i) { return expression; }); \
  }
EMULATE_FF(_mm512_add_ps, a.v[i] + b.v[i])
EMULATE_FF(_mm512_sub_ps, a.v[i] - b.v[i])
EMULATE_FF(_mm512_mul_ps, a.v[i] * b.v[i])
EMULATE_FF(_mm512_div_ps, a.v[i] / b.v[i])
EMULATE_FF(_mm512_max_ps, a.v[i] > b.v[i] ? a.v[i] : b.v[i])
EMULATE_FF(_mm512_min_ps, a.v[i] < b.v[i] ? a.v[i] : b.v[i])

static inline __m512 _mm512_fmadd_ps(const __m512& a, const __m512& b, const __m512& c) {
  return emulated::lanes<__m512>([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
}
static inline __m512 _mm512_fnmadd_ps(const __m512& a, const __m512& b, const __m512& c) {
  return emulated::lanes<__m512>([&](int i) { return std::fma(-a.v[i], b.v[i], c.v[i]); });
}
static inline __m512 _mm512_loadu_ps(const void* p) {
  __m512 out;
  std::memcpy(&out, p, 64);
  return out;
}
static inline __m512i _mm512_loadu_si512(const void* p) {
  __m512i out;
  std::memcpy(&out, p, 64);
  return out;
}
static inline void _mm512_storeu_ps(void* p, const __m512& a) { std::memcpy(p, &a, 64); }
static inline __m512 _mm512_set1_ps(float x) {
  return emulated::lanes<__m512>([&](int) { return x; });
}
static inline __m512i _mm512_set1_epi32(int32_t x) {
  return emulated::lanes<__m512i>([&](int) { return x; });
}
static inline __m512i _mm512_cvtps_epi32(const __m512& a) {
  return emulated::lanes<__m512i>(
      [&](int i) { return std::fabs(a.v[i]) < 2147483648.0f ? int32_t(std::nearbyint(a.v[i])) : INT32_MIN; });
}
static inline __m512 _mm512_cvtepi32_ps(const __m512i& a) {
  return emulated::lanes<__m512>([&](int i) { return float(a.v[i]); });
}
static inline __m512i _mm512_add_epi32(const __m512i& a, const __m512i& b) {
  return emulated::lanes<__m512i>([&](int i) { return int32_t(uint32_t(a.v[i]) + uint32_t(b.v[i])); });
}
static inline __m512i _mm512_max_epi32(const __m512i& a, const __m512i& b) {
  return emulated::lanes<__m512i>([&](int i) { return std::max(a.v[i], b.v[i]); });
}
static inline __m512i _mm512_and_si512(const __m512i& a, const __m512i& b) {
  return emulated::lanes<__m512i>([&](int i) { return a.v[i] & b.v[i]; });
}
static inline __m512i _mm512_slli_epi32(const __m512i& a, int n) {
  return emulated::lanes<__m512i>([&](int i) { return int32_t(uint32_t(a.v[i]) << n); });
}
static inline __m512i _mm512_srli_epi32(const __m512i& a, int n) {
  return emulated::lanes<__m512i>([&](int i) { return int32_t(uint32_t(a.v[i]) >> n); });
}
static inline __m512i _mm512_add_epi16(const __m512i& a, const __m512i& b) {
  int16_t x[32], y[32];
  std::memcpy(x, &a, 64);
  std::memcpy(y, &b, 64);
  for (int i = 0; i < 32; i++) x[i] = int16_t(uint16_t(x[i]) + uint16_t(y[i]));
  return emulated::cast<__m512i>(x);
}
static inline __m512i _mm512_maddubs_epi16(const __m512i& a, const __m512i& b) {  // saturates, as the machine does
  uint8_t x[64];
  int8_t y[64];
  int16_t to[32];
  std::memcpy(x, &a, 64);
  std::memcpy(y, &b, 64);
  for (int i = 0; i < 32; i++) {
    const int sum = x[2 * i] * y[2 * i] + x[2 * i + 1] * y[2 * i + 1];
    to[i] = int16_t(sum > 32767 ? 32767 : sum < -32768 ? -32768 : sum);
  }
  return emulated::cast<__m512i>(to);
}
static inline __m512 _mm512_cvtph_ps(__m256i a) {
  float lane[16];
  _mm256_storeu_ps(lane, _mm256_cvtph_ps(_mm256_castsi256_si128(a)));
  _mm256_storeu_ps(lane + 8, _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1)));
  return emulated::cast<__m512>(lane);
}
static inline __m512i _mm512_castps_si512(const __m512& a) { return emulated::cast<__m512i>(a); }
static inline __m512 _mm512_castsi512_ps(const __m512i& a) { return emulated::cast<__m512>(a); }
static inline __m512 _mm512_maskz_mov_ps(__mmask16 m, const __m512& a) {
  return emulated::lanes<__m512>([&](int i) { return m >> i & 1 ? a.v[i] : 0.0f; });
}
static inline __mmask16 _mm512_cmp_ps_mask(const __m512& a, const __m512& b, int) {  // less than
  __mmask16 m = 0;
  for (int i = 0; i < 16; i++) m |= __mmask16(a.v[i] < b.v[i]) << i;
  return m;
}
static inline __m512 _mm512_roundscale_ps(const __m512& a, int) {  // nearest, ties to even
  return emulated::lanes<__m512>([&](int i) { return std::nearbyint(a.v[i]); });
}
static inline __m512i _mm512_cvtepi8_epi32(__m128i a) {
  int8_t lane[16];
  std::memcpy(lane, &a, 16);
  return emulated::lanes<__m512i>([&](int i) { return int32_t(lane[i]); });
}
static inline __m512i _mm512_cvtepi8_epi16(__m256i a) {
  int8_t from[32];
  int16_t to[32];
  std::memcpy(from, &a, 32);
  for (int i = 0; i < 32; i++) to[i] = from[i];
  return emulated::cast<__m512i>(to);
}
static inline __m512i _mm512_madd_epi16(const __m512i& a, const __m512i& b) {
  int16_t x[32], y[32];
  std::memcpy(x, &a, 64);
  std::memcpy(y, &b, 64);
  return emulated::lanes<__m512i>([&](int i) { return x[2 * i] * y[2 * i] + x[2 * i + 1] * y[2 * i + 1]; });
}
static inline __m512i _mm512_dpbusd_epi32(const __m512i& acc, const __m512i& a, const __m512i& b) {
  uint8_t x[64];
  int8_t y[64];
  std::memcpy(x, &a, 64);
  std::memcpy(y, &b, 64);
  return emulated::lanes<__m512i>([&](int i) {
    int32_t sum = acc.v[i];
    for (int k = 0; k < 4; k++) sum += x[4 * i + k] * y[4 * i + k];
    return sum;
  });
}
static inline __m512 _mm512_dpbf16_ps(const __m512& acc, const __m512i& a, const __m512i& b) {
  uint16_t x[32], y[32];
  std::memcpy(x, &a, 64);
  std::memcpy(y, &b, 64);
  return emulated::lanes<__m512>([&](int i) {
    const float odd = acc.v[i] + emulated::bf16(x[2 * i + 1]) * emulated::bf16(y[2 * i + 1]);
    return odd + emulated::bf16(x[2 * i]) * emulated::bf16(y[2 * i]);
  });
}
