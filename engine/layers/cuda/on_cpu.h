// Runs the CUDA kernels of this folder (*.cu) on the CPU, from the same source, so that tests can
// compare their numbers where there is no GPU. on_cpu.cc compiles them as C++ with the words that
// this header defines.
//
// Blocks run one after the other. Each thread of a block is a fiber, which runs until it has to
// wait at a barrier or for the lanes of its warp. Which of the threads that may run comes next is
// chosen in one of three orders. What a GPU may answer with wrong numbers is an error here:
//
// - an access outside of the memory that was given, or of a shared array;
// - a vector load or store whose address is no multiple of 16 bytes;
// - two accesses to one element, one of them a write, by threads between which there is no barrier,
//   or by two blocks;
// - shared memory that is read before this block has written it;
// - a barrier or an exchange between lanes that some of its threads do not reach, or reach at
//   another place of the source; a lane outside of the mask; a value of a lane that gave none;
// - arguments of other types than the kernel's, and overlapping memory.
//
// It has no atomics, since they add up in no fixed order, and it says nothing about speed.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/layers/cuda/kernel_call.h"

namespace strata::on_cpu {

/// In which order the threads of a block run: ascending, descending, or another random one between
/// any two barriers.
enum class Order { kUp, kDown, kRandom };

/// Memory that threads access, with who accessed each element last.
class Memory {
 public:
  Memory(std::string name, void* begin, size_t bytes, size_t size, bool shared);
  /// Records the access to `count` elements from `i` on by the running thread; `vector`: at once.
  void Access(long long i, int count, bool writes, bool vector);
  const char* begin() const { return begin_; }
  size_t bytes() const { return bytes_; }

 private:
  struct Visit {
    int block = -1, thread = -1, warp = -1;  ///< kMany: several
    int barriers = 0, warp_syncs = 0;        ///< that the thread had passed
  };
  struct Cell {
    Visit write, read;
  };
  bool IsOrdered(const Visit& before, const Visit& now) const;
  [[noreturn]] void FailRace(long long i, const char* now, const char* before,
                             const Visit& other) const;

  const std::string name_;
  const char* begin_;
  size_t bytes_, size_;  // size_: of an element
  bool shared_;
  std::vector<Cell> cells_;
};

/// A pointer into a Memory, which checks every access through it.
template <class T>
class Checked {
 public:
  using Plain = std::remove_const_t<T>;
  /// One element, which is read or written when it is used.
  class Reference {
   public:
    Reference(const Checked& p, long long i) : p_(p), i_(i) {}
    operator Plain() const {
      p_.memory_->Access(i_, 1, /*writes=*/false, /*vector=*/false);
      return p_.at_[i_];
    }
    void operator=(Plain value) const {
      p_.memory_->Access(i_, 1, /*writes=*/true, /*vector=*/false);
      p_.at_[i_] = value;
    }
    void operator=(const Reference& other) const { *this = static_cast<Plain>(other); }

   private:
    const Checked& p_;
    const long long i_;
  };

  Checked(T* at, Memory* memory) : at_(at), memory_(memory) {}
  auto operator[](long long i) const {
    if constexpr (std::is_const_v<T>) {
      return static_cast<Plain>(Checked<Plain>(const_cast<Plain*>(at_), memory_).At(i));
    } else {
      return At(i);
    }
  }
  bool operator==(std::nullptr_t) const { return at_ == nullptr; }
  T* Vector(long long i, int count, bool writes) const {
    memory_->Access(i, count, writes, /*vector=*/true);
    return at_ + i;
  }
  Reference At(long long i) const { return Reference(*this, i); }

 private:
  T* at_;
  Memory* memory_;
};

/// An array in the memory that the threads of a block share (CUDA's __shared__).
template <class T, int kCount>
class Shared {
 public:
  explicit Shared(const char* name) : memory_(name, values_, sizeof(values_), sizeof(T), true) {}
  typename Checked<T>::Reference operator[](long long i) { return pointer_.At(i); }

 private:
  T values_[kCount] = {};
  Memory memory_;
  const Checked<T> pointer_{values_, &memory_};
};

// ---- What the running thread is, and what it may wait for

struct Dim {
  unsigned x = 1, y = 1, z = 1;
};
Dim ThreadIndex();
Dim BlockIndex();
Dim BlockSize();
/// The calling thread waits until all threads of its block have called Barrier(). `place`: the line
/// of the kernel's source that calls it.
void Barrier(int place);
/// Waits for the lanes of `mask`, then returns what lane `from` has given.
uint64_t Exchange(uint64_t gives, int from, unsigned mask, int place);
void SyncWarp(unsigned mask, int place);

/// Runs body() on all threads. Throws std::runtime_error with the first error.
void Run(const KernelCall& call, const std::function<void()>& body, Order order);

// ---- Kernels by name

/// A kernel with the types of its arguments.
struct Kernel {
  std::string name;
  KernelElement element;
  std::vector<bool> writes;  ///< by argument; false for numbers
  std::function<void(const KernelCall&, Order)> run;
};

namespace internal {

template <class T>
struct Passed;
template <>
struct Passed<int> {
  static constexpr auto kType = KernelArgument::Type::kInt;
  static int Of(const KernelArgument& a, Memory*) { return a.number.as_int; }
};
template <>
struct Passed<long long> {
  static constexpr auto kType = KernelArgument::Type::kLong;
  static long long Of(const KernelArgument& a, Memory*) { return a.number.as_long; }
};
template <>
struct Passed<float> {
  static constexpr auto kType = KernelArgument::Type::kFloat;
  static float Of(const KernelArgument& a, Memory*) { return a.number.as_float; }
};
template <class T>
struct Passed<Checked<T>> {
  static constexpr auto kType = KernelArgument::Type::kMemory;
  static Checked<T> Of(const KernelArgument& a, Memory* memory) {
    return {static_cast<T*>(a.number.as_memory), memory};
  }
};

template <class T>
struct Traits {
  static constexpr bool kWrites = false;
  static constexpr size_t kSize = 1;
};
template <class T>
struct Traits<Checked<T>> {
  static constexpr bool kWrites = !std::is_const_v<T>;
  static constexpr size_t kSize = sizeof(T);
};

/// Checks the arguments against the kernel's and returns the memory of each.
std::vector<std::unique_ptr<Memory>> MemoryOf(const KernelCall& call,
                                              std::span<const KernelArgument::Type> types,
                                              std::span<const size_t> sizes,
                                              const std::vector<bool>& writes);

template <class... Args, size_t... I>
void Call(void (*kernel)(Args...), const KernelCall& call,
          const std::vector<std::unique_ptr<Memory>>& memory, std::index_sequence<I...>) {
  kernel(Passed<Args>::Of(call.arguments[I], memory[I].get())...);
}

}  // namespace internal

template <class... Args>
Kernel MakeKernel(const char* name, KernelElement element, void (*kernel)(Args...)) {
  const std::vector<bool> writes = {internal::Traits<Args>::kWrites...};
  const auto run = [kernel, writes](const KernelCall& call, Order order) {
    constexpr KernelArgument::Type kTypes[] = {internal::Passed<Args>::kType...};
    constexpr size_t kSizes[] = {internal::Traits<Args>::kSize...};
    const auto memory = internal::MemoryOf(call, kTypes, kSizes, writes);
    Run(
        call, [&] { internal::Call(kernel, call, memory, std::index_sequence_for<Args...>()); },
        order);
  };
  return {name, element, writes, run};
}

/// All kernels (on_cpu.cc), each for each type of element. extern "C", so that a test can find it
/// in a library that it compiles of changed kernels.
extern "C" const std::vector<Kernel>* strata_kernels_on_cpu();

/// The kernel of this name among `kernels`. Throws std::runtime_error if there is none.
const Kernel& FindKernel(const std::vector<Kernel>& kernels, const std::string& name,
                         KernelElement element);

class Launcher : public KernelLauncher {
 public:
  explicit Launcher(Order order = Order::kUp, const std::vector<Kernel>* kernels = nullptr)
      : order_(order), kernels_(kernels ? *kernels : *strata_kernels_on_cpu()) {}
  void Launch(const KernelCall& call, int, void*) override {
    FindKernel(kernels_, call.name, call.element).run(call, order_);
    ++launches_;
  }
  int launches() const { return launches_; }

 private:
  const Order order_;
  const std::vector<Kernel>& kernels_;
  int launches_ = 0;
};

// ---- The words of CUDA that kernels use. They are in this namespace, as the kernels are.

struct Bf16;
struct Fp16;
template <class T>
struct Pack;

template <class T>
using Global = Checked<T>;

template <class T>
Pack<std::remove_const_t<T>> LoadVector(Global<T> p, long long i) {
  Pack<std::remove_const_t<T>> pack;
  std::memcpy(&pack, p.Vector(i, sizeof(pack) / sizeof(T), false), sizeof(pack));
  return pack;
}
template <class T>
void StoreVector(Global<T> p, long long i, const Pack<T>& pack) {
  std::memcpy(p.Vector(i, sizeof(pack) / sizeof(T), true), &pack, sizeof(pack));
}

float ToFloat(float x);
float ToFloat(Bf16 x);
float ToFloat(Fp16 x);
void Round(float x, float& to);
void Round(float x, Bf16& to);
void Round(float x, Fp16& to);
float Plus(float a, float b);

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int place = __builtin_LINE()) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = Exchange(bits, static_cast<int>(ThreadIndex().x % 32) ^ lanes, mask, place);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
inline void __syncthreads(int place = __builtin_LINE()) { Barrier(place); }
inline void __syncwarp(unsigned mask = 0xffffffffu, int place = __builtin_LINE()) {
  SyncWarp(mask, place);
}

}  // namespace strata::on_cpu

#define KERNEL inline void
#define DEVICE inline
#define SHARED(type, name, count) static ::strata::on_cpu::Shared<type, count> name(#name)
#define threadIdx (::strata::on_cpu::ThreadIndex())
#define blockIdx (::strata::on_cpu::BlockIndex())
#define blockDim (::strata::on_cpu::BlockSize())
