// Rows that stay on the chip between the pass that sums and the pass that needs the sums.
//
// A cluster of thread blocks processes a row, and each of their warps a part of it, as its own
// pipeline: bulk copies load the part into shared memory, chunk by chunk; the warp sums (pass 1),
// synchronizes with the other warps of the cluster once per row, and computes the result chunk by
// chunk (pass 2). The result overwrites the last signal, HALO samples to the left, where the signal
// is no longer needed, and bulk stores write it to memory from there; a chunk that is used up is
// reloaded from the next row at once. Thread blocks share no other barrier but at start and end.
//
// Defined on the compiler's command line: FILTER, ELEMENT (float, Bfloat16 or Float16), ALIGN (the
// largest power of two up to V that divides the length of a row; at least 2).

using Element = ELEMENT;
constexpr int ITEM = sizeof(Element);
constexpr int V = 16 / ITEM;  // elements of a vector

constexpr int round_up(int value, int step) { return (value + step - 1) / step * step; }
constexpr int gcd_of(int a, int b) { return b == 0 ? a : gcd_of(b, a % b); }
constexpr int lcm_of(int a, int b) { return a / gcd_of(a, b) * b; }

constexpr int HALF = FILTER / 2;
constexpr int BINS = HALF + 1;
constexpr int HOP = FILTER - HALF;
// samples per thread: whole hops and whole vectors, an odd number of vectors where possible, so that
// neighbouring threads have no bank conflicts in shared memory
constexpr int UNIT = lcm_of(V, HOP);
constexpr int OWN = UNIT == V ? 3 * V : UNIT;
constexpr int TILE = OWN * WARP;
constexpr int CHUNK = 2 * TILE;
constexpr int AFTER = round_up(HALF, V);
constexpr int HALO = FILTER > 1 ? round_up(HOP, 2 * V) : 0;  // whole sectors

struct Arguments {
  const Element *x, *grad;
  Element* result;
  float *offset, *psd;  // of rows: the forward pass writes them, the backward pass reads them
  const float *target, *weight, *bias;
  float* row_sums;
  int* claims;  // counter of claimed rows: zero at the start and at the end
  int rows, channels, length, segments;
  int cluster_size, clusters;
  int slice;    // samples of a warp's part
  int chunks;   // of a full part
  int room;     // elements of one buffer
  int stagger;  // cycles by which the last cluster starts later than the first
  float eps;
};

template <int N>
struct Constant {
  static constexpr int value = N;
};

// call `run` with a row's offset in elements from a multiple of 16 bytes, as a constant
template <int SHIFT = 0, class Run>
__forceinline__ void with_shift(int skew, const Run& run) {
  if constexpr (SHIFT + ALIGN < V) {
    if (skew != SHIFT) return with_shift<SHIFT + ALIGN>(skew, run);
  }
  run(Constant<SHIFT>{});
}

struct alignas(16) Vector { Element item[V]; };
struct alignas(2 * ITEM) Pair { Element item[2]; };

// load N samples, starting SHIFT elements after an aligned address
template <int SHIFT, int N>
__forceinline__ void load_window(const Element* aligned, float (&w)[N]) {
  constexpr int VECTORS = (N + SHIFT + V - 1) / V;
  float t[V * VECTORS];
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    const Vector q = reinterpret_cast<const Vector*>(aligned)[v];
#pragma unroll
    for (int i = 0; i < V; ++i) t[V * v + i] = to_float(q.item[i]);
  }
#pragma unroll
  for (int i = 0; i < N; ++i) w[i] = t[i + SHIFT];
}

__forceinline__ void store_pair(Element* to, float first, float second) {
  Pair q;
  from_float(first, q.item[0]), from_float(second, q.item[1]);
  *reinterpret_cast<Pair*>(to) = q;
}

template <int SHIFT, int N>
__forceinline__ void store_window(Element* aligned, const float (&w)[N]) {
  constexpr int LEAD = (V - SHIFT) % V, VECTORS = (N - LEAD) / V;
  Element* const to = aligned + SHIFT;
#pragma unroll
  for (int i = 0; i < LEAD; i += 2) store_pair(to + i, w[i], w[i + 1]);
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    Vector q;
#pragma unroll
    for (int i = 0; i < V; ++i) from_float(w[LEAD + V * v + i], q.item[i]);
    *reinterpret_cast<Vector*>(to + LEAD + V * v) = q;
  }
#pragma unroll
  for (int i = LEAD + V * VECTORS; i < N; i += 2) store_pair(to + i, w[i], w[i + 1]);
}

// in the same order in every warp: results are bitwise reproducible
template <int N>
__forceinline__ void add_up_warp(float (&sums)[N]) {
#pragma unroll
  for (int m = WARP / 2; m > 0; m /= 2)
#pragma unroll
    for (int c = 0; c < N; ++c) sums[c] += shuffle_xor(sums[c], m);
}

// A warp's part of a row of each of the SIGNALS, in shared memory. Sample n of a row that starts
// `skew` elements after a multiple of 16 bytes is element n - begin + HALO + skew of a buffer, so
// that both sides of a bulk copy have the same alignment.
template <int SIGNALS>
struct Part {
  const Arguments& p;
  const int lane, begin, own, tiles, chunks;
  Element* const data;
  Barrier* const landed;
  // samples that bulk copies cannot load: kept in registers from one row to the next
  static constexpr int BY_HAND = (HALO + V + WARP - 1) / WARP;
  Element left_end[SIGNALS][BY_HAND], right_end[SIGNALS][BY_HAND];

  __forceinline__ Part(const Arguments& p, int part, Element* data, Barrier* landed)
      : p(p), lane(threadIdx.x % WARP), begin(part * p.slice),
        own(max(0, min(p.slice, p.length - begin))), tiles((own + TILE - 1) / TILE),
        chunks((own + CHUNK - 1) / CHUNK), data(data), landed(landed) {}

  __forceinline__ Element* buffer(int signal) const { return data + signal * p.room; }
  __forceinline__ const Element* row_of(int signal, int row) const {
    return (signal == 0 ? p.x : p.grad) + static_cast<size_t>(row) * p.length;
  }
  __forceinline__ int skew_of(int row) const { return ((row & (V - 1)) * (p.length & (V - 1))) & (V - 1); }

  // bulk copies load what lies between: whole vectors within the row
  __forceinline__ int low_of(int skew) const { return begin == 0 ? round_up(skew, V) + HALO : 0; }
  __forceinline__ int high_of(int skew) const {
    return min(round_up(skew + 2 * HALO + own, V), (skew + p.length) / V * V + HALO - begin);
  }

  // by one lane: load a chunk of a signal; signal 0 also sets how many bytes the barrier expects
  __forceinline__ void load(int signal, int row, int chunk) const {
    const int skew = skew_of(row);
    const int low = max(chunk * CHUNK, low_of(skew));
    const int high = chunk == chunks - 1 ? high_of(skew) : min((chunk + 1) * CHUNK, high_of(skew));
    const int bytes = ITEM * max(high - low, 0);
    if (signal == 0) barrier_expect(landed + chunk, SIGNALS * bytes);
    const Element* const from = row_of(signal, row) + (begin - HALO - skew);
    if (bytes > 0) bulk_load(buffer(signal) + low, from + low, bytes, landed + chunk);
  }

  __forceinline__ int circular(int n) const {
    while (n < 0) n += p.length;
    while (n >= p.length) n -= p.length;
    return n;
  }
  template <class Run>
  __forceinline__ void for_ends(int row, const Run& run) {
    const int skew = skew_of(row), low = low_of(skew), high = high_of(skew), stop = skew + 2 * HALO + own;
#pragma unroll
    for (int b = 0; b < BY_HAND; ++b) {
      const int left = skew + b * WARP + lane, right = high + b * WARP + lane;
#pragma unroll
      for (int s = 0; s < SIGNALS; ++s) {
        if (left < low) run(s, left, left - skew - HALO + begin, left_end[s][b]);
        if (right < stop) run(s, right, right - skew - HALO + begin, right_end[s][b]);
      }
    }
  }
  __forceinline__ void fetch_ends(int row) {
    for_ends(row, [&](int s, int, int n, Element& held) { held = row_of(s, row)[circular(n)]; });
  }
  __forceinline__ void place_ends(int row) {
    for_ends(row, [&](int s, int at, int, Element& held) { buffer(s)[at] = held; });
  }

  // store a chunk's result from the last buffer to memory, and load the next row in its place
  template <int SHIFT>
  __forceinline__ void pass_on(Element* out, int chunk, bool last, int next) const {
    const Element* const from = buffer(SIGNALS - 1);
    const int low = chunk == 0 ? round_up(SHIFT, V) : chunk * CHUNK;
    const int high = last ? (SHIFT + own) / V * V : (chunk + 1) * CHUNK;
    // single samples before the first and after the last whole vector
    if (chunk == 0 && SHIFT + lane < min(low, SHIFT + own)) out[SHIFT + lane] = from[SHIFT + lane];
    if (last && high >= low && high + lane < SHIFT + own) out[high + lane] = from[high + lane];
    if (lane != 0) return;
    if (high > low) bulk_store(out + low, from + low, ITEM * (high - low));
    bulk_commit();
    if (next >= 0 && SIGNALS > 1) load(0, next, chunk);
    if (chunk == 0) return;
    bulk_wait_read<1>();
    if (next >= 0) load(SIGNALS - 1, next, chunk - 1);
  }
  __forceinline__ void pass_on_the_rest(int next) const {
    fence_async();
    warp_sync();
    if (lane == 0 && tiles > 0) {
      bulk_wait_read<0>();
      if (next >= 0) load(SIGNALS - 1, next, chunks - 1);
    }
    warp_sync();
  }
};

// where a thread works: at sample `first` of the row; `left` samples of its warp's part remain
struct Place {
  int at, first, left, segments;
};

__forceinline__ int slot_floats(int parts, int count) { return count * parts + 1; }
__forceinline__ int shared_head(int parts, int warps, int chunks, int count) {
  return round_up(8 * (2 + warps * chunks) + 8 * slot_floats(parts, count), 128);
}

// A task has SIGNALS and COUNT (sums of a warp) and defines the two passes; see backward.h.
//
// Multiprocessors get unequal shares of memory bandwidth, so only a cluster's first row is assigned
// beforehand: its first warp claims the next row while working on this one, and sends the row's
// number along with its sums.
template <class Task>
struct Walk {
  static constexpr int COUNT = Task::COUNT, SIGNALS = Task::SIGNALS;
  const Arguments& p;
  const int lane, warp, warps, index, parts;  // index among the warps of the cluster
  Barrier* const sums_ready;                  // for even rows, for odd rows
  float* const slots;                         // likewise: sums of all parts, and the next row
  Part<SIGNALS> part;
  int first_inner, last_inner;
  Task task;

  __forceinline__ Walk(const Arguments& p, unsigned char* shared)
      : p(p), lane(threadIdx.x % WARP), warp(threadIdx.x / WARP), warps(blockDim.x / WARP),
        index(cluster_rank() * warps + warp), parts(p.cluster_size * warps),
        sums_ready(reinterpret_cast<Barrier*>(shared)), slots(reinterpret_cast<float*>(sums_ready + 2 + warps * p.chunks)),
        part(p, index,
             reinterpret_cast<Element*>(shared + shared_head(parts, warps, p.chunks, COUNT)) + static_cast<size_t>(warp) * SIGNALS * p.room,
             sums_ready + 2 + warp * p.chunks),
        task(p) {
    // tiles that neither touch an end of the row nor have a partly filled thread
    first_inner = part.begin == 0 ? 1 : 0;
    for (last_inner = part.tiles; last_inner > 0; --last_inner) {
      const int from = (last_inner - 1) * TILE, last = min(from + TILE, part.own);
      if ((last - from) % OWN == 0 && (part.begin + last - 1) / HOP < p.segments) break;
    }
  }
  __forceinline__ Place place_in(int tile) const {
    const int at = tile * TILE + lane * OWN;
    return Place{at, part.begin + at, part.own - at, p.segments};
  }
  __forceinline__ bool is_inner(int tile) const { return tile >= first_inner && tile < last_inner; }
  __forceinline__ int slot_bytes() const { return slot_floats(parts, COUNT) * static_cast<int>(sizeof(float)); }

  __forceinline__ void prepare_barriers() const {
    if (lane == 0)
      for (int b = 0; b < p.chunks; ++b) barrier_init(part.landed + b);
    if (threadIdx.x == 0) {
      for (int b = 0; b < 2; ++b) barrier_init(sums_ready + b);
      fence_barrier_init();
      for (int b = 0; b < 2; ++b) barrier_expect(sums_ready + b, slot_bytes());
    }
    fence_barrier_init();
    fence_async();
    warp_sync();
  }

  __forceinline__ void fetch(int row) {
    task.fetch(part, row);
    if (part.own > 0) part.fetch_ends(row);
  }
  __forceinline__ void start(int row) {
    if (lane == 0)
      for (int chunk = 0; chunk < part.chunks; ++chunk)
        for (int s = 0; s < SIGNALS; ++s) part.load(s, row, chunk);
    fetch(row);
  }

  __forceinline__ void sum_up(float (&sums)[COUNT], int row, int turn) {
    task.open(row);
    if (part.own > 0) {
      part.place_ends(row);
      warp_sync();
    }
    with_shift(part.skew_of(row), [&](auto shift) {
      constexpr int SHIFT = decltype(shift)::value;
      int waited = 0;
      for (int tile = 0; tile < part.tiles; ++tile) {
        const int reach = (tile + 1) * TILE + HALO + AFTER + V - 1;
        for (; waited < part.chunks && waited * CHUNK <= reach; ++waited) barrier_wait(part.landed + waited, turn);
        if (tile == 0) task.template begin<SHIFT>(part);
        const Place place = place_in(tile);
        if (place.left <= 0) continue;
        if (is_inner(tile))
          task.template sum<SHIFT, false>(sums, part, place);
        else
          task.template sum<SHIFT, true>(sums, part, place);
      }
    });
  }

  // send the sums to every thread block of the cluster and receive theirs; returns the next row. No
  // warp can send the sums of the row after the next before all have read these
  __forceinline__ int exchange(float (&sums)[COUNT], int claimed, int step) {
    const int turn = step & 1;
    float* const slot = slots + turn * slot_floats(parts, COUNT);
    add_up_warp(sums);
    task.before_sending(sums);
    const int next = p.clusters + broadcast(claimed);
    if (lane < p.cluster_size) {
#pragma unroll
      for (int c = 0; c < COUNT; ++c) store_remote(slot + c * parts + index, sums[c], sums_ready + turn, lane);
      if (index == 0) store_remote(slot + COUNT * parts, from_bits(next), sums_ready + turn, lane);
    }
    task.meanwhile();
    barrier_wait_cluster(sums_ready + turn, (step >> 1) & 1);
    if (threadIdx.x == 0) barrier_expect(sums_ready + turn, slot_bytes());
    task.settle(slot, parts, lane);
    const int row = to_bits(slot[COUNT * parts]);
    return row < p.rows ? row : -1;
  }

  __forceinline__ void write_out(int row, int next) const {
    const int skew = part.skew_of(row);
    Element* const out = p.result + static_cast<size_t>(row) * p.length + part.begin - skew;
    with_shift(skew, [&](auto shift) {
      constexpr int SHIFT = decltype(shift)::value;
      Element* const buffer = part.buffer(SIGNALS - 1);
      for (int tile = 0; tile < part.tiles; ++tile) {
        const Place place = place_in(tile);
        float result[OWN];
        if (place.left > 0) {
          if (is_inner(tile))
            task.template result<SHIFT, false>(result, part, place);
          else
            task.template result<SHIFT, true>(result, part, place);
        }
        warp_sync();  // all lanes have read what they need
        if (place.left > 0) store_window<SHIFT>(buffer + place.at, result);
        fence_async();
        warp_sync();
        const bool last = tile == part.tiles - 1;
        if (last || (tile + 1) % (CHUNK / TILE) == 0) part.template pass_on<SHIFT>(out, tile / (CHUNK / TILE), last, next);
      }
    });
    part.pass_on_the_rest(next);
  }

  __forceinline__ void over_rows(int cluster) {
    prepare_barriers();
    cluster_sync();
    // The next kernel is not launched as early: its thread blocks would occupy resources beside these
    // for their whole lifetime (measured: docs/performance.md)
    wait_for_former_kernel();
    // clusters that start together would all read, sum and write at the same time
    if (p.stagger > 0) spin(static_cast<long long>(p.stagger) * cluster / p.clusters);
    start(cluster);
    int step = 0;
    for (int row = cluster; row >= 0; ++step) {
      // one claim per row
      const int claimed = index == 0 && lane == 0 ? claim(p.claims, p.rows - 1) : 0;
      float sums[COUNT] = {};
      sum_up(sums, row, step & 1);
      const int next = exchange(sums, claimed, step);
      if (index == 0 && lane == 0) task.tell(row);
      if (next >= 0) fetch(next);
      write_out(row, next);
      row = next;
    }
    // Stores that have left shared memory complete before the next kernel proceeds, so there is no wait
    // for them here. All warps have their sums by now; exiting together is a precaution.
    cluster_sync();
  }
};

template <class Task>
__forceinline__ void walk_over_rows(const Arguments& p) {
  SHARED_MEMORY(shared);
  Walk<Task>(p, shared).over_rows(blockIdx.x / p.cluster_size);
}
