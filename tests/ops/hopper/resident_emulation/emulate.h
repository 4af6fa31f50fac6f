// Runs the clusters of a kernel, all at once. Input: the kernel's arguments as the host lays them out, with
// pointers that only say what is there; warps and shared memory of a program; the arrays that the
// task reads, all float32. Output: the arrays that it writes.

constexpr int GUARD = 64;  // elements on both sides of the result that nobody may write

float* array(FILE* in, size_t count, bool read) {
  float* p = static_cast<float*>(std::aligned_alloc(16, (4 * count + 31) / 16 * 16));
  std::fill(p, p + count, NAN);
  if (read) CHECK(std::fread(p, 4, count, in) == count);
  return p;
}

Element* elements(FILE* in, size_t count, bool read) {
  float* const p = array(in, count, read);
  const size_t bytes = ITEM * (count + 2 * GUARD);
  Element* const q = static_cast<Element*>(std::aligned_alloc(16, (bytes + 15) / 16 * 16));
  std::memset(static_cast<void*>(q), 0xff, bytes);
  for (size_t i = 0; i < count; ++i) from_float(p[i], q[GUARD + i]);
  std::free(p);
  return q + GUARD;
}

bool is_untouched(const Element* first) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(first);
  return std::all_of(bytes, bytes + GUARD * ITEM, [](unsigned char b) { return b == 0xff; });
}

void run_cluster(const Arguments& a, int index, int warps, size_t bytes) {
  Cluster cluster;
  const int n_threads = warps * WARP;
  cluster.meeting = std::make_unique<Meeting>(a.cluster_size * n_threads);
  for (int rank = 0; rank < a.cluster_size; ++rank) {
    auto program = std::make_unique<Program>();
    program->shared = static_cast<unsigned char*>(std::aligned_alloc(128, (bytes + 127) / 128 * 128));
    program->bytes = bytes;
    std::memset(program->shared, 0xff, bytes);
    for (int w = 0; w < warps; ++w) program->warps.push_back(std::make_unique<Lanes>());
    const unsigned seed = 2 * (index * a.cluster_size + rank);
    program->loads = std::make_unique<Engine>(seed + 1), program->stores = std::make_unique<Engine>(seed + 2);
    cluster.programs.push_back(std::move(program));
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < a.cluster_size; ++rank)
    for (int t = 0; t < n_threads; ++t)
      threads.emplace_back([&, rank, t] {
        // one that comes late must find that the others have waited
        if (rank == a.cluster_size - 1) std::this_thread::sleep_for(std::chrono::milliseconds(3));
        threadIdx.x = t, blockIdx.x = index * a.cluster_size + rank, blockDim.x = n_threads;
        the_cluster = &cluster, the_program = cluster.programs[rank].get(), the_lanes = the_program->warps[t / WARP].get();
        the_rank = rank, the_groups = std::make_shared<Groups>();
        resident_kernel(a);
        ++the_program->threads_ended;
        std::lock_guard lock(the_groups->mutex);
        CHECK(the_groups->read == the_groups->issued);
      });
  for (auto& thread : threads) thread.join();
  for (auto& program : cluster.programs) program->loads.reset(), program->stores.reset(), std::free(program->shared);
}

void emulate(const char* source, const char* target) {
  FILE *const in = std::fopen(source, "rb"), *const out = std::fopen(target, "wb");
  Arguments a = {};
  int warps, bytes;
  CHECK(in && out && std::fread(&a, sizeof a, 1, in) == 1);
  CHECK(std::fread(&warps, 4, 1, in) == 1 && std::fread(&bytes, 4, 1, in) == 1);
  const int parts = a.cluster_size * warps;
  CHECK(a.slice % OWN == 0 && a.slice * parts >= a.length && a.chunks == (a.slice + CHUNK - 1) / CHUNK);
  CHECK(a.room >= a.slice + 2 * HALO + V && a.room * ITEM % 128 == 0);
  CHECK(bytes == shared_head(parts, warps, a.chunks, TASK::COUNT) + ITEM * TASK::SIGNALS * warps * a.room);
  const size_t rows = a.rows, count = rows * a.length;
  const bool backward = a.grad;
  a.x = elements(in, count, true), a.grad = elements(in, count, backward);
  a.offset = array(in, rows, backward), a.psd = array(in, rows * BINS, backward);
  a.target = array(in, a.channels * BINS, true);
  if (a.weight) a.weight = array(in, a.channels, true);
  if (a.bias) a.bias = array(in, a.channels, true);
  a.result = elements(in, count, false), a.row_sums = array(in, 2 * rows, false);
  int claims = 0;
  a.claims = &claims;
  std::vector<std::thread> clusters;
  for (int index = 0; index < a.clusters; ++index) clusters.emplace_back([&, index] { run_cluster(a, index, warps, bytes); });
  for (auto& cluster : clusters) cluster.join();
  CHECK(claims == 0);
  CHECK(is_untouched(a.result - GUARD) && is_untouched(a.result + count));
  std::vector<float> result(count);
  for (size_t i = 0; i < count; ++i) result[i] = to_float(a.result[i]);
  std::fwrite(result.data(), 4, count, out);
  if (backward) std::fwrite(a.row_sums, 4, 2 * rows, out);
  else std::fwrite(a.offset, 4, rows, out), std::fwrite(a.psd, 4, rows * BINS, out);
  std::fclose(out);
}
