// The instructions of compute capability 9 that the kernels need beyond plain CUDA.
// tests/ops/resident_emulation has a twin of this file for CPUs.

constexpr int WARP = 32;
using Barrier = unsigned long long;  // an mbarrier in shared memory

#define SHARED_MEMORY(name) extern __shared__ __align__(128) unsigned char name[]
#define INFINITE __int_as_float(0x7f800000)
#define NOT_A_NUMBER __int_as_float(0x7fffffff)

struct Bfloat16 { unsigned short bits; };
struct Float16 { unsigned short bits; };

__forceinline__ float to_float(float v) { return v; }
__forceinline__ float to_float(Bfloat16 v) { return __uint_as_float(static_cast<unsigned>(v.bits) << 16); }
__forceinline__ float to_float(Float16 v) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v.bits));
  return f;
}
__forceinline__ void from_float(float v, float& to) { to = v; }
__forceinline__ void from_float(float v, Bfloat16& to) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(v)); }
__forceinline__ void from_float(float v, Float16& to) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(v)); }

__forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
// wait until all writes of the previous kernel are complete
__forceinline__ void wait_for_former_kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__forceinline__ int cluster_rank() {
  unsigned r;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return static_cast<int>(r);
}
__forceinline__ void cluster_sync() {
  __syncwarp();  // the barrier is aligned: all threads of a warp must arrive together
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__forceinline__ void warp_sync() { __syncwarp(); }
__forceinline__ float shuffle_xor(float v, int m) { return __shfl_xor_sync(0xffffffffu, v, m); }
__forceinline__ float from_bits(int bits) { return __int_as_float(bits); }
__forceinline__ int to_bits(float value) { return __float_as_int(value); }
__forceinline__ int broadcast(int value) { return __shfl_sync(0xffffffffu, value, 0); }
// a unique number from 0 to `last`; claiming the last one resets the counter
__forceinline__ int claim(int* claims, int last) { return static_cast<int>(atomicInc(reinterpret_cast<unsigned*>(claims), last)); }
__forceinline__ void spin(long long cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) __nanosleep(64);
}

__forceinline__ void barrier_init(Barrier* bar) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(bar)) : "memory");
}
__forceinline__ void fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// the single arrival of a phase, with the number of bytes to wait for
__forceinline__ void barrier_expect(Barrier* bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)), "r"(bytes) : "memory");
}
#define WAIT_FOR(SCOPE)                                                                        \
  unsigned done = 0;                                                                           \
  while (!done)                                                                                \
    asm volatile(                                                                              \
        "{\n"                                                                                  \
        ".reg .pred p;\n"                                                                      \
        "mbarrier.try_wait.parity.acquire." SCOPE ".shared::cta.b64 p, [%1], %2;\n"            \
        "selp.u32 %0, 1, 0, p;\n"                                                              \
        "}"                                                                                    \
        : "=r"(done)                                                                           \
        : "r"(shared_address(bar)), "r"(parity)                                                \
        : "memory");
__forceinline__ void barrier_wait(Barrier* bar, int parity) { WAIT_FOR("cta") }
// the same for writes by other thread blocks of the cluster
__forceinline__ void barrier_wait_cluster(Barrier* bar, int parity) { WAIT_FOR("cluster") }

__forceinline__ void bulk_load(void* to, const void* from, int bytes, Barrier* bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(bar))
               : "memory");
}
__forceinline__ void bulk_store(void* to, const void* from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// wait until all but the last N groups of stores have left shared memory
template <int N>
__forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
// order this thread's accesses to shared memory before later ones by the copy engine
__forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// write to the same place in the shared memory of block `rank`, and count 4 bytes on its barrier
__forceinline__ void store_remote(float* to, float value, Barrier* bar, int rank) {
  unsigned a, b;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(a) : "r"(shared_address(to)), "r"(rank));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(b) : "r"(shared_address(bar)), "r"(rank));
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(a),
               "r"(__float_as_uint(value)), "r"(b)
               : "memory");
}
