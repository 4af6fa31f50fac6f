// Rows carried onto a target that is known beforehand: reads x once, writes the result once.
// KNOWN_PSD: from a PSD per channel that is given, eps included, instead of each row's own.

struct Forward {
  static constexpr int SIGNALS = 1;
  static constexpr int COUNT = 3 + BINS;  // pivot; about it: Σx, Σ X_0, Σ |X_k|² over segments

  const Arguments& p;
  float origin;        // first sample of the next row
  float first_sample;  // of this row
  float pivot;         // near the mean of the warp's part
  float scale, bias, target[BINS];
  float offset, powers[BINS], taps[BINS];
  Mean mean;

  __forceinline__ explicit Forward(const Arguments& p) : p(p) {}

  template <class Part>
  __forceinline__ void fetch(const Part& part, int row) { origin = to_float(part.row_of(0, row)[0]); }

  __forceinline__ void open(int row) {
    const int channel = row % p.channels;
    first_sample = origin;
    pivot = 0.0f;
#pragma unroll
    for (int k = 0; k < BINS; ++k) {
      target[k] = p.target[channel * BINS + k];
      if (KNOWN_PSD) powers[k] = p.psd[channel * BINS + k];
    }
    scale = p.weight ? p.weight[channel] : 1.0f;
    bias = p.bias ? p.bias[channel] : 0.0f;
  }
  // the mean of some samples: exact, if all are equal
  template <int SHIFT, class Part>
  __forceinline__ void begin(const Part& part) {
    const Element* const samples = part.buffer(0) + HALO + SHIFT;
    const float first = to_float(samples[0]);
    float about[1] = {to_float(samples[part.lane * (min(part.own, CHUNK - HALO - V) / WARP)]) - first};
    add_up_warp(about);
    pivot = first + about[0] / WARP;
  }

  template <int SHIFT, bool EDGE, class Part>
  __forceinline__ void sum(float (&sums)[COUNT], const Part& part, const Place& place) {
    constexpr Table table{};
    float x[OWN + AFTER];
    load_window<SHIFT>(part.buffer(0) + (place.at + HALO), x);
#pragma unroll
    for (int i = 0; i < OWN + HALF; ++i) x[i] -= pivot;
#pragma unroll
    for (int j = 0; j < OWN; ++j)
      if (!EDGE || j < place.left) sums[1] += x[j];
    if (KNOWN_PSD) return;
#pragma unroll
    for (int start = 0; start < OWN; start += HOP) {
      if (EDGE && (start >= place.left || place.first / HOP + start / HOP >= place.segments)) continue;
#pragma unroll
      for (int k = 0; k < BINS; ++k) {
        // x_t and x_{f-t} have the same cosine and opposite sines: half the products
        float real = x[start], imaginary = 0.0f;
#pragma unroll
        for (int t = 1; t < HOP; ++t) {
          if (2 * t == FILTER) continue;
          const float a = x[start + t], b = x[start + FILTER - t];
          real = fmaf(a + b, table.cosine[k * t % FILTER], real);
          if (mirrored(k) == 2.0f) imaginary = fmaf(a - b, table.sine[k * t % FILTER], imaginary);
        }
        if (FILTER % 2 == 0) real = fmaf(x[start + HALF], k % 2 == 0 ? 1.0f : -1.0f, real);
        if (k == 0) sums[2] += real;
        sums[3 + k] = fmaf(real, real, sums[3 + k]);
        if (mirrored(k) == 2.0f) sums[3 + k] = fmaf(imaginary, imaginary, sums[3 + k]);
      }
    }
  }

  __forceinline__ void before_sending(float (&sums)[COUNT]) { sums[0] = pivot; }
  __forceinline__ void meanwhile() {}

  __forceinline__ void settle(const float* slot, int parts, int lane) {
    float row[1] = {};
#pragma unroll 1
    for (int s = lane; s < parts; s += WARP) {
      const int samples = max(0, min(p.slice, p.length - s * p.slice));
      if (samples > 0) row[0] += fmaf(static_cast<float>(samples), slot[s] - first_sample, slot[parts + s]);
    }
    add_up_warp(row);
    offset = row[0] / p.length;
    float energies[BINS] = {};
#pragma unroll 1
    for (int s = lane; s < parts; s += WARP) {
      const int segments = max(0, min(p.slice / HOP, p.segments - s * (p.slice / HOP)));
      if (segments == 0) continue;
#pragma unroll
      for (int k = 0; k < BINS; ++k) energies[k] += slot[(3 + k) * parts + s];
      // what the constant between the row's mean and the part's pivot adds to each segment
      const float leak = (offset - (slot[s] - first_sample)) * FILTER;
      energies[0] += leak * (segments * leak - 2.0f * slot[2 * parts + s]);
    }
    add_up_warp(energies);
    float gains[BINS];
#pragma unroll
    for (int k = 0; k < BINS; ++k) {
      // rounding must not make an empty bin negative; NaN stays NaN
      const float energy = energies[k] < 0.0f ? 0.0f : energies[k];
      if (!KNOWN_PSD) powers[k] = energy / FILTER / p.segments + p.eps;
    }
    set_gains(gains, target, powers);
    mean.set(first_sample, offset);
    const float at_zero = set_taps(taps, gains);
    bias = fmaf(scale * at_zero, mean.rest, bias);
#pragma unroll
    for (int m = 0; m < BINS; ++m) taps[m] *= scale;
  }
  __forceinline__ void tell(int row) const {
    p.offset[row] = offset;
    if (KNOWN_PSD) return;
#pragma unroll
    for (int k = 0; k < BINS; ++k) p.psd[static_cast<size_t>(row) * BINS + k] = powers[k];
  }

  template <int SHIFT, bool EDGE, class Part>
  __forceinline__ void result(float (&y)[OWN], const Part& part, const Place& place) const {
    float x[OWN + 2 * AFTER];
    load_window<SHIFT>(part.buffer(0) + (place.at + HALO - AFTER), x);
#pragma unroll
    for (int i = AFTER - HALF; i < OWN + AFTER + HALF; ++i) x[i] -= mean.value;
#pragma unroll
    for (int j = 0; j < OWN; ++j) {
      y[j] = fmaf(x[AFTER + j], taps[0], bias);
#pragma unroll
      for (int m = 1; m < BINS; ++m) y[j] = fmaf(x[AFTER + j - m] + x[AFTER + j + m], taps[m], y[j]);
    }
  }
};

extern "C" __global__ void __launch_bounds__(384) resident_kernel(const Arguments p) { walk_over_rows<Forward>(p); }
