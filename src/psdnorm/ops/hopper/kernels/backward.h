// Gradient of the normalized rows with respect to x: reads x and the gradient once, writes dx once.

constexpr int distance_of(int t, int s) {
  const int d = t > s ? t - s : s - t;
  return d < FILTER - d ? d : FILTER - d;
}

constexpr int BEFORE = FILTER > 1 ? round_up(HOP, V) : 0;

struct Backward {
  static constexpr int SIGNALS = 2;
  static constexpr int COUNT = 2 + BINS;  // Σg, Σ over segments of x, Σ g_n (x_{n-m} + x_{n+m})

  const Arguments& p;
  float pivot, offset;  // of the next row
  Mean mean;
  float scale, gains[BINS], powers[BINS];
  float taps[BINS], gain_at_zero;
  float a[BINS];  // entries of the circulant matrix that multiplies a segment
  float drift;    // to be subtracted everywhere
  float shift;    // for each segment that holds a sample: corrects the rounding of the mean
  float response, total;

  __forceinline__ explicit Backward(const Arguments& p) : p(p) {}

  template <class Part>
  __forceinline__ void fetch(const Part& part, int row) {
    pivot = to_float(part.row_of(0, row)[0]), offset = p.offset[row];
  }
  __forceinline__ void open(int row) {
    const int channel = row % p.channels;
    float target[BINS];
#pragma unroll
    for (int k = 0; k < BINS; ++k) {
      powers[k] = p.psd[static_cast<size_t>(row) * BINS + k];
      target[k] = p.target[channel * BINS + k];
    }
    scale = p.weight ? p.weight[channel] : 1.0f;
    mean.set(pivot, offset);
    set_gains(gains, target, powers);
  }
  template <int SHIFT, class Part>
  __forceinline__ void begin(const Part&) {}

  template <int SHIFT, bool EDGE, class Part>
  __forceinline__ void sum(float (&sums)[COUNT], const Part& part, const Place& place) {
    float x[OWN + 2 * AFTER], g[OWN];
    load_window<SHIFT>(part.buffer(0) + (place.at + HALO - AFTER), x);
    load_window<SHIFT>(part.buffer(1) + (place.at + HALO), g);
#pragma unroll
    for (int i = AFTER - HALF; i < OWN + AFTER + HALF; ++i) x[i] -= mean.value;
#pragma unroll
    for (int j = 0; j < OWN; ++j) {
      const bool inside = !EDGE || j < place.left, twice = j % HOP + HOP < FILTER;
      const int segment = place.first / HOP + j / HOP;
      // beyond the row's end there may be anything, even NaN
      const float here = x[AFTER + j], gradient = inside ? g[j] : 0.0f;
      sums[0] += gradient;
      if (!EDGE) {
        sums[1] = twice ? fmaf(2.0f, here, sums[1]) : sums[1] + here;
      } else {
        if (inside && segment < place.segments) sums[1] += here;
        if (inside && twice && segment > 0 && segment <= place.segments) sums[1] += here;
      }
#pragma unroll
      for (int m = 0; m < BINS; ++m) {
        const float pair = m == 0 ? here : x[AFTER + j - m] + x[AFTER + j + m];
        sums[2 + m] = fmaf(gradient, inside ? pair : 0.0f, sums[2 + m]);
      }
    }
  }

  __forceinline__ void before_sending(float (&)[COUNT]) {}
  __forceinline__ void meanwhile() {
    gain_at_zero = set_taps(taps, gains);
#pragma unroll
    for (int k = 0; k < BINS; ++k)
      // dL/dP_k per dL/dD_k, with the 2 / L of the PSD
      gains[k] *= scale * (-mirrored(k) / FILTER) / (powers[k] * p.segments);
  }

  __forceinline__ void settle(const float* slot, int parts, int lane) {
    constexpr Table table{};
    float sums[COUNT] = {};
#pragma unroll 1
    for (int s = lane; s < parts; s += WARP)
#pragma unroll
      for (int n = 0; n < COUNT; ++n) sums[n] += slot[n * parts + s];
    add_up_warp(sums);
    total = sums[0];
    const float in_segments = fmaf(mean.rest * FILTER, static_cast<float>(p.segments), sums[1]);
    response = 0.0f;
#pragma unroll
    for (int m = 0; m < BINS; ++m) {
      sums[2 + m] = fmaf(both_sides(m) * mean.rest, total, sums[2 + m]);
      response = fmaf(taps[m], sums[2 + m], response);
    }
    float slopes[BINS];
#pragma unroll
    for (int k = 0; k < BINS; ++k) {
      slopes[k] = 0.0f;
#pragma unroll
      for (int m = 0; m < BINS; ++m)
        slopes[k] = fmaf(sums[2 + m], split(m) * table.cosine[k * m % FILTER], slopes[k]);
      slopes[k] *= gains[k];
    }
    drift = fmaf(slopes[0], in_segments, gain_at_zero * total * scale) / p.length;
    shift = 0.0f;
#pragma unroll
    for (int m = 0; m < BINS; ++m) {
      a[m] = 0.0f;
#pragma unroll
      for (int k = 0; k < BINS; ++k) a[m] = fmaf(slopes[k], table.cosine[k * m % FILTER] / FILTER, a[m]);
      taps[m] *= scale;
      shift += a[m] * (2 * m == FILTER ? 1.0f : both_sides(m));
    }
    shift *= mean.rest;
  }
  __forceinline__ void tell(int row) const {
    p.row_sums[2 * static_cast<size_t>(row)] = response;
    p.row_sums[2 * static_cast<size_t>(row) + 1] = total;
  }

  template <int SHIFT, bool EDGE, class Part>
  __forceinline__ void result(float (&dx)[OWN], const Part& part, const Place& place) const {
    from_segments<SHIFT, EDGE>(dx, part.buffer(0), place);
    float g[OWN + 2 * AFTER];
    load_window<SHIFT>(part.buffer(1) + (place.at + HALO - AFTER), g);
#pragma unroll
    for (int j = 0; j < OWN; ++j) {
      dx[j] = fmaf(g[AFTER + j], taps[0], dx[j]);
#pragma unroll
      for (int m = 1; m < BINS; ++m) dx[j] = fmaf(g[AFTER + j - m] + g[AFTER + j + m], taps[m], dx[j]);
    }
  }

  // the gradient through the PSD: each segment, centred, times a circulant matrix
  template <int SHIFT, bool EDGE>
  __forceinline__ void from_segments(float (&dx)[OWN], const Element* buffer, const Place& place) const {
    float x[BEFORE + OWN + AFTER];
    load_window<SHIFT>(buffer + (place.at + HALO - BEFORE), x);
#pragma unroll
    for (int i = 0; i < BEFORE + OWN + AFTER; ++i) x[i] -= mean.value;
#pragma unroll
    for (int j = 0; j < OWN; ++j) {
      const int t = j % HOP, start = BEFORE + j - t;
      const bool overlaps = t + HOP < FILTER;
      if (!EDGE) {
        // both segments together: what lies in both counts twice
        float value = (overlaps ? 2.0f * shift : shift) - drift;
#pragma unroll
        for (int i = overlaps ? -HOP : 0; i < FILTER; ++i) {
          const float weight = a[distance_of(t, i)];
          const bool in_both = overlaps && i >= 0 && i + HOP < FILTER;
          value = fmaf(x[start + i], in_both ? 2.0f * weight : weight, value);
        }
        dx[j] = value;
        continue;
      }
      float own = shift, before = shift;
#pragma unroll
      for (int s = 0; s < FILTER; ++s) {
        own = fmaf(x[start + s], a[distance_of(t, s)], own);
        if (overlaps) before = fmaf(x[start - HOP + s], a[distance_of(t + HOP, s)], before);
      }
      const int segment = place.first / HOP + j / HOP;
      dx[j] = -drift;
      if (segment < place.segments) dx[j] += own;
      if (overlaps && segment > 0 && segment <= place.segments) dx[j] += before;
    }
  }
};

// long filters get fewer warps and more registers
extern "C" __global__ void __launch_bounds__(FILTER > 8 ? 256 : 384) resident_kernel(const Arguments p) { walk_over_rows<Backward>(p); }
