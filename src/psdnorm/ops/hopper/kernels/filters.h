// Gains, taps and their compile-time constants.

constexpr double cosine_of(int turns, int period) {
  // Taylor series about 0 of an angle of at most half a turn
  turns %= period;
  if (2 * turns > period) turns = period - turns;
  const double angle = 2 * 3.14159265358979323846 * turns / period;
  double term = 1, sum = 1;
  for (int i = 1; i < 20; ++i) {
    term *= -angle * angle / ((2 * i - 1) * (2 * i));
    sum += term;
  }
  return sum;
}

struct Table {
  float cosine[FILTER], sine[FILTER];
  constexpr Table() : cosine{}, sine{} {
    for (int t = 0; t < FILTER; ++t) {
      cosine[t] = static_cast<float>(cosine_of(t, FILTER));
      sine[t] = static_cast<float>(cosine_of(4 * t + 3 * FILTER, 4 * FILTER));  // a quarter turn back
    }
  }
};

// how many bins of the full spectrum a kept bin stands for
constexpr float mirrored(int k) { return k == 0 || 2 * k == FILTER ? 1.0f : 2.0f; }
// share of a lag on either side: the tap at half an even filter is split in two
constexpr float split(int m) { return 2 * m == FILTER ? 0.5f : 1.0f; }
constexpr float both_sides(int m) { return m == 0 ? 1.0f : 2.0f; }

// A mean rounded to float32, and its rounding error: one subtraction centres a sample.
struct Mean {
  float value, rest;
  __forceinline__ void set(float pivot, float offset) {
    value = pivot + offset;
    const float added = value - pivot;
    // the true mean is value - rest
    rest = (value - added - pivot) + (added - offset);
  }
};

// the gains D_k that carry a row's PSD onto the target
__forceinline__ void set_gains(float (&gains)[BINS], const float (&target)[BINS], const float (&powers)[BINS]) {
#pragma unroll
  for (int k = 0; k < BINS; ++k) {
    gains[k] = target[k] / sqrtf(powers[k]);
    // an overflowed PSD would give a gain of 0 and an innocent-looking result
    if (!(powers[k] < INFINITE)) gains[k] = NOT_A_NUMBER;
  }
}

// taps at lags 0 … f / 2; returns the filter's gain for a constant
__forceinline__ float set_taps(float (&taps)[BINS], const float (&gains)[BINS]) {
  constexpr Table table{};
  float at_zero = 0.0f;
#pragma unroll
  for (int m = 0; m < BINS; ++m) {
    float tap = 0.0f;
#pragma unroll
    for (int k = 0; k < BINS; ++k) tap = fmaf(gains[k], mirrored(k) / FILTER * table.cosine[k * m % FILTER], tap);
    taps[m] = tap * split(m);
    at_zero += taps[m] * both_sides(m);
  }
  return at_zero;
}
