// The twin of psdnorm/ops/hopper/kernels/device.h for a processor. Every CUDA thread is a thread;
// the copy engines of a program are two more, one for loads and one for stores, which are late at
// random, so that nothing orders them but what the kernel asks for.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

constexpr int WARP = LANES;  // fewer than 32 make it faster
using Barrier = unsigned long long;
using std::max;
using std::min;

#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define INFINITE INFINITY
#define NOT_A_NUMBER NAN
#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) std::fprintf(stderr, "not true: %s, line %d\n", #condition, __LINE__), std::abort(); \
  } while (0)

struct Bfloat16 { uint16_t bits; };
inline float to_float(float v) { return v; }
inline float to_float(Bfloat16 v) {
  const uint32_t u = uint32_t(v.bits) << 16;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}
inline void from_float(float v, float& to) { to = v; }
inline void from_float(float v, Bfloat16& to) {
  uint32_t u;
  std::memcpy(&u, &v, 4);
  to.bits = std::isnan(v) ? 0x7fff : uint16_t((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

struct Meeting {  // of threads
  std::mutex mutex;
  std::condition_variable changed;
  int count, waiting = 0;
  unsigned phase = 0;
  explicit Meeting(int n) : count(n) {}
  void wait() {
    std::unique_lock lock(mutex);
    const unsigned mine = phase;
    if (++waiting == count) waiting = 0, ++phase, changed.notify_all();
    else changed.wait(lock, [&] { return phase != mine; });
  }
};

struct Transactions {  // an mbarrier with one arrival
  std::mutex mutex;
  std::condition_variable changed;
  int pending = 1;
  long bytes = 0;
  unsigned phase = 0;
  void update(int arrivals, long more) {
    std::lock_guard lock(mutex);
    pending -= arrivals, bytes += more;
    CHECK(pending >= 0);
    if (pending == 0 && bytes == 0) ++phase, pending = 1, changed.notify_all();
  }
  void wait(int parity) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return int(phase & 1) != parity; });
  }
};

struct Engine {  // does what it is given in order, some time later
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  bool stop = false;
  std::thread thread;
  explicit Engine(unsigned seed) {
    thread = std::thread([this, seed] {
      std::minstd_rand random(seed);
      for (;;) {
        std::function<void()> task;
        {
          std::unique_lock lock(mutex);
          changed.wait(lock, [&] { return stop || !queue.empty(); });
          if (queue.empty()) return;
          task = std::move(queue.front()), queue.pop_front();
        }
        if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
        task();
      }
    });
  }
  void push(std::function<void()> task) {
    { std::lock_guard lock(mutex); queue.push_back(std::move(task)); }
    changed.notify_one();
  }
  ~Engine() {
    { std::lock_guard lock(mutex); stop = true; }
    changed.notify_one(), thread.join();
  }
};

struct Lanes { Meeting meeting{WARP}; float exchange[WARP]; };
struct Program {
  unsigned char* shared;
  size_t bytes;
  std::vector<std::unique_ptr<Lanes>> warps;
  std::vector<std::unique_ptr<Transactions>> barriers;
  std::unique_ptr<Engine> loads, stores;
  std::atomic<int> threads_ended{0};
};
struct Cluster { std::vector<std::unique_ptr<Program>> programs; std::unique_ptr<Meeting> meeting; };
struct Groups {  // bulk stores of one thread
  std::mutex mutex;
  std::condition_variable changed;
  long issued = 0, read = 0;
  std::vector<long> ends;
};
struct Index { int x; };
inline thread_local Index threadIdx, blockIdx, blockDim;
inline thread_local Cluster* the_cluster;
inline thread_local Program* the_program;
inline thread_local Lanes* the_lanes;
inline thread_local std::shared_ptr<Groups> the_groups;
inline thread_local int the_rank;

#define SHARED_MEMORY(name) unsigned char* const name = the_program->shared

inline thread_local bool the_former_has_ended = false;
inline void wait_for_former_kernel() { the_former_has_ended = true; }
inline int cluster_rank() { return the_rank; }
inline void cluster_sync() { the_cluster->meeting->wait(); }
inline void warp_sync() { the_lanes->meeting.wait(); }
inline void spin(long long) {}
inline float shuffle_xor(float v, int m) {
  const int lane = threadIdx.x % WARP;
  the_lanes->exchange[lane] = v;
  warp_sync();
  const float other = the_lanes->exchange[lane ^ m];
  warp_sync();
  return other;
}

inline float from_bits(int bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline int to_bits(float value) {
  int bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
inline int broadcast(int value) {
  the_lanes->exchange[threadIdx.x % WARP] = from_bits(value);
  warp_sync();
  const int first = to_bits(the_lanes->exchange[0]);
  warp_sync();
  return first;
}
inline int claim(int* claims, int last) {
  CHECK(the_former_has_ended);
  const int claimed = __atomic_fetch_add(claims, 1, __ATOMIC_RELAXED);
  CHECK(claimed <= last);
  if (claimed == last) __atomic_store_n(claims, 0, __ATOMIC_RELAXED);
  return claimed;
}

inline Transactions* transactions(Barrier* bar) { return reinterpret_cast<Transactions*>(*bar); }
inline void barrier_init(Barrier* bar) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  the_program->barriers.push_back(std::make_unique<Transactions>());
  *bar = reinterpret_cast<Barrier>(the_program->barriers.back().get());
}
inline void fence_barrier_init() {}
inline void barrier_expect(Barrier* bar, int bytes) { transactions(bar)->update(1, bytes); }
inline void barrier_wait(Barrier* bar, int parity) { transactions(bar)->wait(parity); }
inline void barrier_wait_cluster(Barrier* bar, int parity) { transactions(bar)->wait(parity); }

inline void check_bulk(const void* inside, const void* outside, int bytes) {
  const auto* first = static_cast<const unsigned char*>(inside);
  CHECK(bytes > 0 && bytes % 16 == 0);
  CHECK(reinterpret_cast<uintptr_t>(inside) % 16 == 0 && reinterpret_cast<uintptr_t>(outside) % 16 == 0);
  CHECK(first >= the_program->shared && first + bytes <= the_program->shared + the_program->bytes);
}
inline void bulk_load(void* to, const void* from, int bytes, Barrier* bar) {
  CHECK(the_former_has_ended);
  check_bulk(to, from, bytes);
  the_program->loads->push([=, b = transactions(bar)] { std::memcpy(to, from, bytes), b->update(0, -bytes); });
}
inline void bulk_store(void* to, const void* from, int bytes) {
  check_bulk(from, to, bytes);
  auto groups = the_groups;
  ++groups->issued;
  the_program->stores->push([=] {
    std::vector<char> held(bytes);
    std::memcpy(held.data(), from, bytes);
    { std::lock_guard lock(groups->mutex); ++groups->read; }
    groups->changed.notify_all();
    std::memcpy(to, held.data(), bytes);
  });
}
inline void bulk_commit() { the_groups->ends.push_back(the_groups->issued); }
template <int N>
inline void bulk_wait_read() {
  Groups& g = *the_groups;
  if (g.ends.size() <= N) return;
  const long end = g.ends[g.ends.size() - 1 - N];
  std::unique_lock lock(g.mutex);
  g.changed.wait(lock, [&] { return g.read >= end; });
}
inline void fence_async() {}
inline void store_remote(float* to, float value, Barrier* bar, int rank) {
  Program& other = *the_cluster->programs[rank];
  CHECK(other.threads_ended == 0);
  const auto there = [&](void* p) { return other.shared + (static_cast<unsigned char*>(p) - the_program->shared); };
  *reinterpret_cast<float*>(there(to)) = value;
  transactions(reinterpret_cast<Barrier*>(there(bar)))->update(0, -4);
}
