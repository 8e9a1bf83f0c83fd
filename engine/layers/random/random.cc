#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/random/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/progress_line.h"
#include "engine/base/split_mix.h"
#include "engine/base/tensors/dry_run.h"
#include "engine/base/text.h"
#include "engine/layers/random/mersenne_twister.h"

namespace strata {
namespace {

constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

/// The generators of one scope: one for the CPU and one for an accelerator. The thread keeps them
/// for the next scope of the same depth.
class Generators {
 public:
  /// Notes the seed. A generator is seeded when it is first used, since most scopes draw nothing.
  void Seed(uint64_t seed) {
    seed_ = seed;
    cpu_is_seeded_ = other_is_seeded_ = false;
    seeds_ = 0;
  }

  uint64_t seed() const { return seed_; }
  bool have_drawn() const { return cpu_is_seeded_ || other_is_seeded_ || seeds_ > 0; }
  int64_t CountSeed() { return seeds_++; }
  const at::Generator& For(c10::Device device) { return device.is_cpu() ? Cpu() : On(device); }

 private:
  const at::Generator& Cpu() {
    if (!cpu_is_seeded_) Reseed(cpu_);
    cpu_is_seeded_ = true;
    return cpu_;
  }

  const at::Generator& On(c10::Device device) {
    const auto& hooks = at::globalContext().getAcceleratorHooksInterface(device.type());
    const auto index = device.has_index() ? device.index() : hooks.getCurrentDevice();
    if (!other_.defined() || other_.device().index() != index) {
      other_ = hooks.getNewGenerator(index);
      other_is_seeded_ = false;
    }
    if (!other_is_seeded_) Reseed(other_);
    other_is_seeded_ = true;
    return other_;
  }

  void Reseed(at::Generator& generator) {
    std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_current_seed(seed_);
  }

  uint64_t seed_ = 0;
  at::Generator cpu_ = at::make_generator<at::CPUGeneratorImpl>();
  at::Generator other_;
  bool cpu_is_seeded_ = false, other_is_seeded_ = false;
  int64_t seeds_ = 0;  // that DrawSeed() has drawn
};

/// The scopes that live on this thread, outermost first.
struct ScopeStack {
  std::vector<std::unique_ptr<Generators>> generators;  // those from `depth` on are spare
  size_t depth = 0;

  Generators& Push() {
    if (depth == generators.size()) generators.push_back(std::make_unique<Generators>());
    return *generators[depth++];
  }
  Generators* top() { return depth == 0 ? nullptr : generators[depth - 1].get(); }
};
thread_local ScopeStack scopes;

bool IsGenerator(const c10::Argument& argument) {
  const auto* optional = argument.type()->castRaw<c10::OptionalType>();
  return optional && optional->getElementType()->kind() == c10::TypeKind::GeneratorType;
}

/// The device on which an operator will draw: that of its first tensor, else of its `device`.
c10::Device DrawingDevice(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& argument : arguments) {
    if (argument.isTensor() && argument.toTensor().defined()) return argument.toTensor().device();
  }
  const std::optional<int> device = schema.argumentIndexWithName("device");
  if (device && arguments[*device].isDevice()) return arguments[*device].toDevice();
  return c10::kCPU;
}

/// The boxed kernel: replaces a generator argument None by the scope's generator and calls the
/// operator.
void DrawFromScope(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard below(kKey);
  const c10::FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size();
  c10::IValue* arguments = stack->data() + stack->size() - count;
  for (size_t i = 0; i < count; ++i) {
    // On autograd's device threads this kernel runs too, but there is no scope: they inherit the
    // dispatch keys of the thread that started the backward, and not its ScopeStack.
    if (arguments[i].isNone() && IsGenerator(schema.arguments()[i]) && scopes.top()) {
      arguments[i] =
          scopes.top()->For(DrawingDevice(schema, c10::ArrayRef<c10::IValue>(arguments, count)));
    }
  }
  op.callBoxed(stack);
}

/// True when ATen's bernoulli_ draws from ATen's generator on this machine. On some processors MKL
/// draws instead, from its own generator, which ATen's seeds.
bool AtenDrawsItself() {
  const at::Tensor quick = at::empty({100}), aten = at::empty({100});
  at::mt19937 engine(1);
  if (!DrawBernoulli(engine, 0.5, quick.mutable_data_ptr<float>(), 100)) return false;
  aten.bernoulli_(0.5, at::make_generator<at::CPUGeneratorImpl>(1));
  return quick.equal(aten);
}

/// Sets the elements to 0 and 1 as aten::bernoulli_ does, by DrawBernoulli(). Returns false and
/// does nothing when that is not possible.
bool DrawQuickly(const at::Tensor& self, double p) {
  const bool plain = self.device().is_cpu() && self.scalar_type() == at::kFloat &&
                     self.is_non_overlapping_and_dense() && !self.requires_grad();
  if (DryRun::IsOn()) return false;
  static const bool possible = AtenDrawsItself();
  if (!possible || !plain || !scopes.top() || !(p >= 0 && p <= 1)) return false;
  auto& generator = *scopes.top()->For(c10::kCPU).get<at::CPUGeneratorImpl>();
  const std::lock_guard<std::mutex> lock(generator.mutex_);
  at::mt19937 engine = generator.engine();
  if (!DrawBernoulli(engine, p, self.mutable_data_ptr<float>(), self.numel())) return false;
  generator.set_engine(engine);
  self.unsafeGetTensorImpl()->bump_version();
  return true;
}

/// The boxed kernel of bernoulli_(self, p, generator), which dropout uses.
void DrawBernoulliFromScope(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                            torch::jit::Stack* stack) {
  const c10::IValue* arguments = stack->data() + stack->size() - 3;
  const at::Tensor self = arguments[0].toTensor();
  if (!arguments[2].isNone() || !DrawQuickly(self, arguments[1].toDouble())) {
    return DrawFromScope(op, keys, stack);
  }
  torch::jit::drop(*stack, 3);
  torch::jit::push(*stack, self);
}

// Large tensors are drawn in parallel, with the bits of one ATen call. ATen draws a word of 32 bits
// for each element, in order, and computes the values of normal_ in groups of 16. So a tensor is
// cut into chunks of a multiple of 16 elements. Skip() gives the state of the generator at the
// beginning of each chunk, and threads call ATen for the chunks, each with a generator in that
// state:
//
//   words      0 ......... c | c ........ 2c | 2c ..... n (+ 16)
//   generator  the scope's   | + c words     | + 2c words
//
// If n is no multiple of 16, normal_ draws the last 16 values once more, from 16 further words. The
// last chunk has at least 16 elements, so ATen does this in its call for that chunk.

constexpr int64_t kGroup = 16;  // elements that normal_ computes together
constexpr int64_t kChunk = int64_t{1} << 18;
static_assert(kChunk % kGroup == 0);
/// Below this, starting threads costs more than it saves.
constexpr int64_t kLeastParallel = 2 * kChunk;

/// Draws `self` in chunks by `draw`(chunk, generator). `again`: the words that are drawn in
/// addition at the end. Returns false and does nothing if the tensor is not a large one on the CPU.
template <class Draw>
bool DrawInChunks(const at::Tensor& self, int64_t again, const Draw& draw) {
  const int64_t count = self.numel();
  const bool plain = self.device().is_cpu() && self.scalar_type() == at::kFloat &&
                     self.is_contiguous() && !self.requires_grad();
  if (!plain || count < kLeastParallel || !scopes.top() || DryRun::IsOn()) return false;
  auto& generator = *scopes.top()->For(c10::kCPU).get<at::CPUGeneratorImpl>();
  const std::lock_guard<std::mutex> lock(generator.mutex_);
  const int64_t chunks = count / kChunk;  // the last one also has the rest
  std::vector<at::mt19937> engines;
  at::mt19937 engine = generator.engine();
  for (int64_t i = 0; i < chunks; ++i) {
    engines.push_back(engine);
    Skip(engine, i + 1 < chunks ? kChunk : count - i * kChunk + again);
  }
  generator.set_engine(engine);
  const at::Tensor flat = self.view(-1);
  ProgressLine line(Str("drawing ", FormatCount(count), " random values"), count);
  at::parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
    at::Generator own = at::make_generator<at::CPUGeneratorImpl>();
    for (int64_t i = begin; i < end; ++i) {
      const int64_t size = i + 1 < chunks ? kChunk : count - i * kChunk;
      own.get<at::CPUGeneratorImpl>()->set_engine(engines[static_cast<size_t>(i)]);
      draw(flat.narrow(0, i * kChunk, size), own);
      line.Advance(size);
    }
  });
  return true;
}

/// The boxed kernel of normal_(self, mean, std, generator) and uniform_(self, from, to, generator).
template <bool kNormal>
void DrawLargeFromScope(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                        torch::jit::Stack* stack) {
  const c10::IValue* arguments = stack->data() + stack->size() - 4;
  const at::Tensor self = arguments[0].toTensor();
  const double first = arguments[1].toDouble(), second = arguments[2].toDouble();
  const int64_t again = kNormal && self.numel() % kGroup != 0 ? kGroup : 0;
  const bool is_valid = kNormal ? second >= 0 : first <= second;  // ATen reports other arguments
  const auto draw = [&](at::Tensor chunk, const at::Generator& generator) {
    kNormal ? chunk.normal_(first, second, generator) : chunk.uniform_(first, second, generator);
  };
  if (!arguments[3].isNone() || !is_valid || !DrawInChunks(self, again, draw)) {
    return DrawFromScope(op, keys, stack);
  }
  torch::jit::drop(*stack, 4);
  torch::jit::push(*stack, self);
}

/// While an object lives, the device's default generator has the state of the scope's generator. At
/// the end the scope's generator is moved past the numbers that were drawn. A lock makes the
/// threads of a process take turns.
class DeviceDraws {
 public:
  explicit DeviceDraws(c10::Device device)
      : lock_(mutex_),
        of_scope_(scopes.top()->For(device)),
        of_device_(at::globalContext().defaultGenerator(device)) {
    of_device_.set_current_seed(of_scope_.current_seed());
    of_device_.set_offset(of_scope_.get_offset());
  }
  ~DeviceDraws() { of_scope_.set_offset(of_device_.get_offset()); }
  DeviceDraws(const DeviceDraws&) = delete;
  DeviceDraws& operator=(const DeviceDraws&) = delete;

 private:
  inline static std::mutex mutex_;
  const std::lock_guard<std::mutex> lock_;
  at::Generator of_scope_, of_device_;
};

/// Operators that draw from the device's generator and take no other.
constexpr const char* kDrawOnDevices[] = {
    "native_dropout",
    "_efficient_attention_forward",
    "_flash_attention_forward",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention",
};

/// The probability with which such an operator drops an element.
double ProbabilityOf(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  std::optional<int> place = schema.argumentIndexWithName("dropout_p");
  if (!place) place = schema.argumentIndexWithName("p");
  STRATA_CHECK(place) << schema;
  return stack[stack.size() - schema.arguments().size() + *place].toDouble();
}

/// The boxed kernel of these operators. On the CPU they are composed of others, which draw from the
/// scope.
void DrawOnDevice(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const c10::Device device =
      (*stack)[stack->size() - schema.arguments().size()].toTensor().device();
  const bool draws = !device.is_cpu() && scopes.top() && ProbabilityOf(schema, *stack) > 0;
  if (!draws) {
    return op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey),
                              stack);
  }
  const c10::impl::ExcludeDispatchKeyGuard below(kKey);
  const DeviceDraws device_draws(device);
  op.callBoxed(stack);
}

bool TakesGenerator(const c10::OperatorName& name) {
  const auto op = c10::Dispatcher::singleton().findSchema(name);
  if (!op) return false;
  const auto& arguments = op->schema().arguments();
  return std::any_of(arguments.begin(), arguments.end(), IsGenerator);
}

std::string QualifiedName(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

/// Registers DrawFromScope for every operator that takes a generator, and DrawOnDevice; other
/// operators fall through. The registrations live as long as the process, since other threads may
/// draw until its end.
void RegisterKernels() {
  using torch::Library;
  static Library* fallthrough = new Library(Library::IMPL, "_", kKey, __FILE__, __LINE__);
  fallthrough->fallback(torch::CppFunction::makeFallthrough());
  static Library* kernels = new Library(Library::IMPL, "aten", kKey, __FILE__, __LINE__);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.getNamespace() != "aten" || !TakesGenerator(name)) continue;
    const std::string qualified = QualifiedName(name);
    using Function = torch::CppFunction;
    kernels->impl(qualified.c_str(),
                  qualified == "aten::bernoulli_.float"
                      ? Function::makeFromBoxedFunction<&DrawBernoulliFromScope>()
                  : qualified == "aten::normal_"
                      ? Function::makeFromBoxedFunction<&DrawLargeFromScope<true>>()
                  : qualified == "aten::uniform_"
                      ? Function::makeFromBoxedFunction<&DrawLargeFromScope<false>>()
                      : Function::makeFromBoxedFunction<&DrawFromScope>());
  }
  for (const char* name : kDrawOnDevices) {
    kernels->impl(name, torch::CppFunction::makeFromBoxedFunction<&DrawOnDevice>());
  }
}

}  // namespace

RandomScope::RandomScope(uint64_t seed) {
  static std::once_flag registered;
  std::call_once(registered, RegisterKernels);
  scopes.Push().Seed(seed);
  c10::impl::tls_set_dispatch_key_included(kKey, true);
}

RandomScope::~RandomScope() {
  STRATA_CHECK(scopes.depth > 0) << "a RandomScope ended on another thread";
  if (--scopes.depth == 0) c10::impl::tls_set_dispatch_key_included(kKey, false);
}

uint64_t SplitSeed(c10::Device device) {
  constexpr uint64_t kOneDraw = 4;  // CUDA's offsets must be multiples of this
  STRATA_CHECK(scopes.top()) << "a seed is split outside of any scope";
  at::Generator generator = scopes.top()->For(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  const uint64_t offset = generator.get_offset();
  generator.set_offset(offset + kOneDraw);
  return ForwardSeed(static_cast<int64_t>(generator.current_seed()), static_cast<int64_t>(offset),
                     /*layer=*/-1);
}

uint64_t DrawSeed() {
  STRATA_CHECK(scopes.top()) << "a seed is drawn outside of any scope";
  Generators& scope = *scopes.top();
  return ForwardSeed(static_cast<int64_t>(scope.seed()), scope.CountSeed(), /*layer=*/-2);
}

uint64_t ScopeSeed() {
  STRATA_CHECK(scopes.top()) << "a seed is asked for outside of any scope";
  return scopes.top()->seed();
}

bool HasDrawn() { return scopes.top() && scopes.top()->have_drawn(); }

uint64_t ForwardSeed(int64_t job_seed, int64_t micro_batch, int layer) {
  uint64_t seed = SplitMix(static_cast<uint64_t>(job_seed));
  seed = SplitMix(seed ^ static_cast<uint64_t>(micro_batch));
  return SplitMix(seed ^ static_cast<uint64_t>(layer));
}

}  // namespace strata
