// The machine that on_cpu.h describes, and all kernels compiled for it.
#include "engine/layers/cuda/on_cpu.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <numeric>
#include <random>
#include <sstream>
#include <stdexcept>

namespace strata::on_cpu {
namespace {

constexpr int kMany = -2;
constexpr int kLanes = 32;
constexpr size_t kStackBytes = 64 << 10;

template <class... Args>
std::string Text(const Args&... args) {
  std::ostringstream text;
  (text << ... << args);
  return text.str();
}

enum class Waits { kNot, kForBlock, kForWarp, kOver };

struct Fiber {
  ucontext_t begin;  // where it starts
  jmp_buf at;        // where it goes on
  bool has_begun = false;
  Waits waits = Waits::kNot;
  int place = 0;      // the line at which it waits
  unsigned mask = 0;  // the lanes for which it waits
  int from = 0;       // the lane whose value it wants
  uint64_t gives = 0, got = 0;
  int barriers = 0, warp_syncs = 0;  // that it has passed
};

/// The grid that runs. Fibers keep their stacks from launch to launch.
struct Machine {
  std::vector<Fiber> fibers;
  std::vector<std::unique_ptr<char[]>> stacks;
  const KernelCall* call = nullptr;
  const std::function<void()>* body = nullptr;
  int block = 0;  // counted over all launches, so that each block has another number
  int block_x = 0, block_y = 0;
  int now = 0;  // the thread that runs
  jmp_buf scheduler;
  std::string error;
};
Machine machine;
std::mutex in_use;

Fiber& Now() { return machine.fibers[machine.now]; }

std::string Place() {
  return Text(machine.call->name, ": block ", machine.block_x, ",", machine.block_y, ", thread ",
              machine.now);
}

/// Ends the launch. Fibers are left where they are; a fiber must not throw beyond its own stack.
[[noreturn]] void Fail(const std::string& what) {
  machine.error = Text(Place(), ": ", what);
  _longjmp(machine.scheduler, 1);
}

/// Gives the processor back until the scheduler lets this fiber go on.
void Wait(Waits why, int place) {
  Fiber& fiber = Now();
  fiber.waits = why;
  fiber.place = place;
  if (_setjmp(fiber.at) == 0) _longjmp(machine.scheduler, 1);
}

void Begin() {
  (*machine.body)();
  Now().waits = Waits::kOver;
  _longjmp(machine.scheduler, 1);
}

void RunFiber(int thread) {
  machine.now = thread;
  Fiber& fiber = machine.fibers[thread];
  if (_setjmp(machine.scheduler) != 0) return;
  if (fiber.has_begun) _longjmp(fiber.at, 1);
  fiber.has_begun = true;
  setcontext(&fiber.begin);
}

void PrepareFibers(int count) {
  machine.fibers = std::vector<Fiber>(count);
  while (static_cast<int>(machine.stacks.size()) < count) {
    machine.stacks.emplace_back(new char[kStackBytes]);
  }
  for (int thread = 0; thread < count; ++thread) {
    ucontext_t& begin = machine.fibers[thread].begin;
    getcontext(&begin);
    begin.uc_stack.ss_sp = machine.stacks[thread].get();
    begin.uc_stack.ss_size = kStackBytes;
    begin.uc_link = nullptr;
    makecontext(&begin, Begin, 0);
  }
}

/// Lets the lanes go on that wait for each other, if all lanes of their mask have come. Returns
/// false if nobody in the warp waits so.
bool ReleaseWarp(int first) {
  std::vector<Fiber>& fibers = machine.fibers;
  bool any = false;
  for (int lane = 0; lane < kLanes; ++lane) {
    const Fiber& fiber = fibers[first + lane];
    if (fiber.waits != Waits::kForWarp) continue;
    any = true;
    machine.now = first + lane;
    for (int other = 0; other < kLanes; ++other) {
      if ((fiber.mask >> other & 1) == 0) continue;
      const Fiber& its = fibers[first + other];
      if (its.waits != Waits::kForWarp || its.place != fiber.place || its.mask != fiber.mask) {
        machine.error = Text(Place(), ": waits in line ", fiber.place, " for lane ", other,
                             ", which does not come there with the same mask");
        return false;
      }
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    Fiber& fiber = fibers[first + lane];
    if (fiber.waits == Waits::kForWarp) fiber.got = fibers[first + fiber.from].gives;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    Fiber& fiber = fibers[first + lane];
    if (fiber.waits == Waits::kForWarp) fiber.waits = Waits::kNot;
  }
  return any;
}

/// Lets all threads pass the barrier. Returns false if they are over, or after an error.
bool ReleaseBlock() {
  const auto is_over = [](const Fiber& fiber) { return fiber.waits == Waits::kOver; };
  if (std::ranges::all_of(machine.fibers, is_over)) return false;
  const auto waiting =
      std::ranges::find(machine.fibers, Waits::kForBlock, &Fiber::waits) - machine.fibers.begin();
  machine.now = static_cast<int>(waiting);
  const int place = Now().place;
  for (size_t thread = 0; thread < machine.fibers.size(); ++thread) {
    Fiber& fiber = machine.fibers[thread];
    if (fiber.waits == Waits::kForBlock && fiber.place == place) continue;
    machine.error = Text(Place(), ": waits at the barrier in line ", place, ", thread ", thread,
                         is_over(fiber) ? " has ended" : Text(" at one in line ", fiber.place));
    return false;
  }
  for (Fiber& fiber : machine.fibers) {
    fiber.waits = Waits::kNot;
    ++fiber.barriers;
  }
  return true;
}

void RunBlock(std::vector<int>& turns, Order order, std::mt19937& random) {
  const int count = static_cast<int>(turns.size());
  PrepareFibers(count);
  for (;;) {
    if (order == Order::kRandom) std::shuffle(turns.begin(), turns.end(), random);
    for (const int thread : turns) {
      if (machine.fibers[thread].waits == Waits::kNot) RunFiber(thread);
      if (!machine.error.empty()) return;
    }
    bool goes_on = false;
    for (int first = 0; first < count; first += kLanes) goes_on |= ReleaseWarp(first);
    if (!machine.error.empty() || (!goes_on && !ReleaseBlock())) return;
  }
}

}  // namespace

// ---- Memory

Memory::Memory(std::string name, void* begin, size_t bytes, size_t size, bool shared)
    : name_(std::move(name)),
      begin_(static_cast<const char*>(begin)),
      bytes_(bytes),
      size_(size),
      shared_(shared),
      cells_(bytes / size) {}

bool Memory::IsOrdered(const Visit& before, const Visit& now) const {
  if (before.block != now.block) return before.block == -1 || shared_;
  return before.thread == now.thread || before.barriers < now.barriers ||
         (before.warp == now.warp && before.warp_syncs < now.warp_syncs);
}

void Memory::FailRace(long long i, const char* now, const char* before, const Visit& other) const {
  Fail(Text(now, " element ", i, " of ", name_, ", which ",
            other.block != machine.block ? std::string("another block")
            : other.thread == kMany      ? std::string("other threads")
                                         : Text("thread ", other.thread),
            " ", before, " with no barrier between"));
}

void Memory::Access(long long i, int count, bool writes, bool vector) {
  constexpr size_t kVector = 16;
  const char* const does = writes ? "writes" : "reads";
  const auto all = static_cast<long long>(cells_.size());
  if (i < 0 || i + count > all) {
    Fail(Text(does, " elements ", i, " to ", i + count - 1, " of ", name_, ", which has ", all));
  }
  const char* const place = begin_ + static_cast<size_t>(i) * size_;
  if (vector && reinterpret_cast<uintptr_t>(place) % kVector != 0) {
    Fail(Text(does, " a vector at element ", i, " of ", name_, ", which is not at a multiple of ",
              kVector, " bytes"));
  }
  const Fiber& fiber = Now();
  const Visit now = {machine.block, machine.now, machine.now / kLanes, fiber.barriers,
                     fiber.warp_syncs};
  for (long long at = i; at < i + count; ++at) {
    Cell& cell = cells_[static_cast<size_t>(at)];
    if (shared_ && !writes && cell.write.block != machine.block) {
      Fail(Text("reads element ", at, " of ", name_, ", which this block has not written"));
    }
    if (!IsOrdered(cell.write, now)) FailRace(at, does, "wrote", cell.write);
    if (writes) {
      if (!IsOrdered(cell.read, now)) FailRace(at, does, "read", cell.read);
      cell.write = now;
      continue;
    }
    // Several readers are kept as one that no thread, and perhaps no warp or block, equals.
    const Visit before = cell.read;
    cell.read = now;
    if (before.block == -1 || (shared_ && before.block != now.block)) continue;
    if (before.block != now.block) {
      cell.read.block = kMany;
    } else if (before.barriers == now.barriers && before.thread != now.thread) {
      cell.read.thread = kMany;
      if (before.warp != now.warp) cell.read.warp = kMany;
    }
  }
}

// ---- Threads

Dim ThreadIndex() { return {static_cast<unsigned>(machine.now), 0, 0}; }
Dim BlockIndex() {
  return {static_cast<unsigned>(machine.block_x), static_cast<unsigned>(machine.block_y), 0};
}
Dim BlockSize() { return {machine.call->block, 1, 1}; }

void Barrier(int place) { Wait(Waits::kForBlock, place); }

uint64_t Exchange(uint64_t gives, int from, unsigned mask, int place) {
  Fiber& fiber = Now();
  const int lane = machine.now % kLanes;
  if ((mask >> lane & 1) == 0) Fail(Text("lane ", lane, " is not in the mask of line ", place));
  if (from < 0 || from >= kLanes || (mask >> from & 1) == 0) {
    Fail(Text("wants a value of lane ", from, ", which is not in the mask of line ", place));
  }
  fiber.gives = gives;
  fiber.from = from;
  fiber.mask = mask;
  Wait(Waits::kForWarp, place);
  return fiber.got;
}

void SyncWarp(unsigned mask, int place) {
  Exchange(0, machine.now % kLanes, mask, place);
  ++Now().warp_syncs;
}

void Run(const KernelCall& call, const std::function<void()>& body, Order order) {
  constexpr unsigned kMostThreads = 1024;
  if (call.block == 0 || call.block > kMostThreads || call.block % kLanes != 0) {
    throw std::runtime_error(Text(call.name, ": a block has a multiple of 32 threads, up to ",
                                  kMostThreads, "; got ", call.block));
  }
  const std::lock_guard lock(in_use);
  machine.call = &call;
  machine.body = &body;
  machine.error.clear();
  std::mt19937 random(1);
  std::vector<int> turns(call.block);
  std::iota(turns.begin(), turns.end(), 0);
  if (order == Order::kDown) std::ranges::reverse(turns);
  const auto blocks = static_cast<int64_t>(call.grid_x) * call.grid_y;
  for (int64_t i = 0; i < blocks && machine.error.empty(); ++i) {
    const int64_t block = order == Order::kDown ? blocks - 1 - i : i;
    ++machine.block;
    machine.block_x = static_cast<int>(block % call.grid_x);
    machine.block_y = static_cast<int>(block / call.grid_x);
    RunBlock(turns, order, random);
  }
  if (!machine.error.empty()) throw std::runtime_error(machine.error);
}

// ---- Kernels by name

namespace internal {

std::vector<std::unique_ptr<Memory>> MemoryOf(const KernelCall& call,
                                              std::span<const KernelArgument::Type> types,
                                              std::span<const size_t> sizes,
                                              const std::vector<bool>& writes) {
  if (call.arguments.size() != types.size()) {
    throw std::runtime_error(
        Text(call.name, " takes ", types.size(), " arguments, got ", call.arguments.size()));
  }
  std::vector<std::unique_ptr<Memory>> all;
  for (size_t i = 0; i < types.size(); ++i) {
    const KernelArgument& argument = call.arguments[i];
    if (argument.type != types[i]) {
      throw std::runtime_error(Text(call.name, ": argument ", i, " has another type"));
    }
    const bool is_memory = argument.type == KernelArgument::Type::kMemory;
    char* const begin = is_memory ? static_cast<char*>(argument.number.as_memory) : nullptr;
    const size_t bytes = begin ? argument.bytes : 0;
    for (size_t j = 0; j < i && begin; ++j) {
      const bool apart =
          begin + bytes <= all[j]->begin() || all[j]->begin() + all[j]->bytes() <= begin;
      if (!apart && all[j]->bytes() > 0 && (writes[i] || writes[j])) {
        throw std::runtime_error(Text(call.name, ": arguments ", j, " and ", i, " overlap"));
      }
    }
    all.push_back(
        std::make_unique<Memory>(Text("argument ", i), begin, bytes, sizes[i], /*shared=*/false));
  }
  return all;
}

}  // namespace internal

const Kernel& FindKernel(const std::vector<Kernel>& kernels, const std::string& name,
                         KernelElement element) {
  for (const Kernel& kernel : kernels) {
    if (kernel.name == name && kernel.element == element) return kernel;
  }
  throw std::runtime_error(Text("there is no kernel ", name));
}

#include "engine/layers/cuda/common.cuh"

float ToFloat(float x) { return x; }
float ToFloat(Bf16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
float ToFloat(Fp16 x) { return std::bit_cast<_Float16>(x.bits); }
void Round(float x, float& to) { to = x; }
void Round(float x, Bf16& to) {  // to nearest, ties to even
  const auto bits = std::bit_cast<uint32_t>(x);
  to.bits =
      std::isnan(x) ? 0x7fff : static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
void Round(float x, Fp16& to) { to.bits = std::bit_cast<uint16_t>(static_cast<_Float16>(x)); }
[[gnu::noinline]] float Plus(float a, float b) { return a + b; }

namespace fp32 {
using Element = float;
#include "engine/layers/cuda/kernels.inc"
}  // namespace fp32
namespace bf16 {
using Element = Bf16;
#include "engine/layers/cuda/kernels.inc"
}  // namespace bf16
namespace fp16 {
using Element = Fp16;
#include "engine/layers/cuda/kernels.inc"
}  // namespace fp16

extern "C" const std::vector<Kernel>* strata_kernels_on_cpu() {
#define STRATA_KERNEL(name, file)                          \
  MakeKernel(#name, KernelElement::kFp32, fp32::name),     \
      MakeKernel(#name, KernelElement::kBf16, bf16::name), \
      MakeKernel(#name, KernelElement::kFp16, fp16::name),
  static const std::vector<Kernel> kernels = {
#include "engine/layers/cuda/kernels.inc"
  };
  return &kernels;
}

}  // namespace strata::on_cpu
