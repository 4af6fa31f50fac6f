// Runs the kernel cluster by cluster. Input: 12 integers and eps (see test_resident.py), then the
// arrays that the task reads, all float32; output: the arrays that it writes.

float* array(FILE* in, size_t count, bool read) {
  float* p = static_cast<float*>(std::aligned_alloc(16, (4 * count + 31) / 16 * 16));
  std::fill(p, p + count, NAN);
  if (read) CHECK(std::fread(p, 4, count, in) == count);
  return p;
}

Element* elements(FILE* in, size_t count, bool read) {
  float* const p = array(in, count, read);
  Element* const q = static_cast<Element*>(std::aligned_alloc(16, (ITEM * count + 31) / 16 * 16));
  for (size_t i = 0; i < count; ++i) from_float(p[i], q[i]);
  std::free(p);
  return q;
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
    program->loads = std::make_unique<Engine>(2 * rank + 1), program->stores = std::make_unique<Engine>(2 * rank + 2);
    cluster.programs.push_back(std::move(program));
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < a.cluster_size; ++rank)
    for (int t = 0; t < n_threads; ++t)
      threads.emplace_back([&, rank, t] {
        threadIdx.x = t, blockIdx.x = index * a.cluster_size + rank, blockDim.x = n_threads;
        the_cluster = &cluster, the_program = cluster.programs[rank].get(), the_lanes = the_program->warps[t / WARP].get();
        the_rank = rank, the_groups = std::make_shared<Groups>();
        resident_kernel(a);
      });
  for (auto& thread : threads) thread.join();
  for (auto& program : cluster.programs) program->loads.reset(), program->stores.reset(), std::free(program->shared);
}

int main(int, char** argv) {
  FILE *const in = std::fopen(argv[1], "rb"), *const out = std::fopen(argv[2], "wb");
  int h[12];
  CHECK(in && out && std::fread(h, 4, 12, in) == 12);
  const size_t rows = size_t(h[0]) * h[1], count = rows * h[2];
  const bool backward = h[3];
  Arguments a = {};
  CHECK(std::fread(&a.eps, 4, 1, in) == 1);
  a.rows = rows, a.channels = h[1], a.length = h[2], a.segments = (h[2] - FILTER) / HOP + 1;
  a.cluster_size = h[4], a.clusters = std::min(h[6], a.rows), a.slice = h[7], a.chunks = h[8], a.room = h[9];
  a.x = elements(in, count, true), a.grad = elements(in, count, backward);
  a.offset = array(in, rows, backward), a.psd = array(in, rows * BINS, backward);
  a.target = array(in, h[1] * BINS, true);
  a.weight = h[11] ? array(in, h[1], true) : nullptr;
  a.bias = h[11] && !backward ? array(in, h[1], true) : nullptr;
  a.result = elements(in, count, false), a.row_sums = array(in, 2 * rows, false);
  for (int index = 0; index < a.clusters; ++index) run_cluster(a, index, h[5], h[10]);
  std::vector<float> result(count);
  for (size_t i = 0; i < count; ++i) result[i] = to_float(a.result[i]);
  std::fwrite(result.data(), 4, count, out);
  if (backward) std::fwrite(a.row_sums, 4, 2 * rows, out);
  else std::fwrite(a.offset, 4, rows, out), std::fwrite(a.psd, 4, rows * BINS, out);
  std::fclose(out);
}
