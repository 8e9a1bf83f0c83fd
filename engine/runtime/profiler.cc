// Measures the seconds of forward, input gradient and weight gradient of every distinct layer. As
// many threads (Copy) as the machine has ranks run the same work side by side, so that they share
// caches and memory as ranks do. Layers are measured in rounds of at most kRound layers. A
// repetition runs all layers of the round forward and then backward in reverse order, as a training
// step does, so that weights and activations have left the caches when they are needed. After
// kWarmUps, repetitions go on for a time limit; medians over repetitions and copies are returned.
// The last round also measures what is outside of layers: loss, optimizer, data.
#include "engine/runtime/profiler.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <time.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/median.h"
#include "engine/base/tensors/dtype.h"
#include "engine/base/tensors/threads.h"
#include "engine/comm/cuda/use_device.h"
#include "engine/job/job_fields.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/random/random.h"
#include "engine/runtime/batch_source.h"
#include "engine/runtime/stage/flat_parameters.h"
#include "engine/runtime/stage/torch_errors.h"
#include "engine/runtime/update/optimizer.h"
#include "engine/runtime/update/reductions.h"

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUps = 2;
constexpr int kLeastRepetitions = 5;
constexpr int kMostRepetitions = 30;
constexpr double kSeconds = 2;  // for all layers together; then repetitions stop
// Layers that take turns, enough that their weights leave the caches in between.
constexpr size_t kRound = 12;
constexpr auto kTick = std::chrono::milliseconds(100);
constexpr int64_t kElements = 8 << 20;  // of the buffers for measuring the optimizer
constexpr int64_t kSide = 512;          // of the matrix for optimizers that see whole parameters

/// Measured seconds of the three passes.
struct Samples {
  std::vector<double> forward, input_grad, weight_grad;

  PassSeconds Medians() const { return {Median(forward), Median(input_grad), Median(weight_grad)}; }
  void Append(const Samples& more) {
    forward.insert(forward.end(), more.forward.begin(), more.forward.end());
    input_grad.insert(input_grad.end(), more.input_grad.begin(), more.input_grad.end());
    weight_grad.insert(weight_grad.end(), more.weight_grad.begin(), more.weight_grad.end());
  }
};

double SecondsOf(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Measures time on a device, waiting for its queued work before the clock is read. If a single
/// thread computes on the CPU, its own processor time is used, which excludes the time of other
/// programs.
class Stopwatch {
 public:
  Stopwatch(at::Device device, int threads)
      : device_(device),
        clock_(device.is_cpu() && threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC) {}

  template <class Body>
  double Time(const Body& body) const {
    Wait();
    const double start = SecondsOf(clock_);
    body();
    Wait();
    return SecondsOf(clock_) - start;
  }

 private:
  void Wait() const {
    if (device_.is_cpu()) return;
    c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
  }
  at::Device device_;
  const clockid_t clock_;
};

/// What one copy measures.
struct Bench {
  const MeasureTask& task;
  EngineScript& script;
  at::Device device;
  int copy = 0;
};

/// A tensor of random numbers with the given spec; integers are below `classes`.
at::Tensor Synthetic(const TensorSpec& spec, int64_t classes, at::Device device) {
  const auto options = at::TensorOptions(ToScalarType(spec.dtype));
  if (IsFloating(spec.dtype)) return at::rand(spec.shape, options).to(device);
  return at::randint(std::max<int64_t>(classes, 1), spec.shape, options).to(device);
}

/// One distinct layer that is run repeatedly.
class LayerBench {
 public:
  LayerBench(const Bench& bench, size_t index, const TensorSpecs& inputs)
      : index_(static_cast<int>(index)), watch_(bench.device, bench.task.threads) {
    const LayerSpec& spec = bench.task.job->layers[index];
    const RandomScope scope(static_cast<uint64_t>(bench.task.job->seed) + index);
    StageLayer& built = layer_.emplace_back();
    built.index = index_;
    built.path = LayerPath(spec, index_);
    built.layer = BuildLayer(spec, &bench.script);
    for (Parameter& parameter : built.layer->parameters())
      parameter.frozen |= spec.IsFrozen(parameter.name);
    const Precision& precision = bench.task.job->precision;
    flat_ = std::make_unique<FlatParameters>(
        layer_, [](int, const std::string&) { return -1; }, bench.device,
        ParameterTypes{ToScalarType(precision.params), ToScalarType(precision.compute)});
    flat_->RefreshCopies();
    const Value* classes = spec.args.Find("num_embeddings");
    for (const TensorSpec& input : inputs) {
      inputs_.push_back(Synthetic(input, classes ? classes->as_int() : 2, bench.device));
    }
  }

  Layer& layer() { return *layer_[0].layer; }
  /// The output of the last forward, without its graph.
  const Tensors& output() const { return output_; }

  /// Runs the layer forward. `samples`: null in a warm-up.
  void Forward(Samples* samples) {
    Tensors inputs;
    for (const at::Tensor& input : inputs_) {
      at::Tensor leaf = input.detach();
      if (input.is_floating_point()) leaf.requires_grad_(true);
      inputs.push_back(leaf.clone());  // not leaves: layers may work in place
    }
    pass_.weight_gradients = std::make_shared<WeightGradients>();
    pass_.weight_gradients->set_deferred(true);
    Tensors outputs;
    const double forward = watch_.Time([&] {
      const RandomScope scope(ForwardSeed(1, 0, index_));
      outputs = layer().Forward(inputs, pass_);
    });
    output_.clear();
    for (const at::Tensor& output : outputs) {
      output_.push_back(output.detach());
      // A part of a layer may pass its input on unchanged; it then has no root. Layers that work in
      // place change the version of the tensor, so they are not confused with it.
      const bool is_passed =
          output._version() == 0 && std::ranges::any_of(inputs, [&](const at::Tensor& input) {
            return input.is_same(output);
          });
      if (!output.requires_grad() || is_passed) continue;
      roots_.push_back(torch::autograd::impl::gradient_edge(output));
      shapes_of_roots_.push_back(output_.back());
    }
    if (samples) samples->forward.push_back(forward);
  }

  /// Runs the backward of the last forward, once.
  void Backward(Samples* samples) {
    torch::autograd::variable_list gradients;
    for (const at::Tensor& output : shapes_of_roots_) {
      gradients.push_back(at::full_like(output, 1e-3));
    }
    const torch::autograd::edge_list roots = std::exchange(roots_, {});
    shapes_of_roots_.clear();
    const double input_grad = watch_.Time([&] {
      if (roots.empty()) return;
      torch::autograd::Engine::get_default_engine().execute(roots, gradients, false, false, true);
    });
    const double weight_grad = watch_.Time([&] { pass_.weight_gradients->Run(); });
    if (!samples) return;
    samples->input_grad.push_back(input_grad);
    samples->weight_grad.push_back(weight_grad);
  }

 private:
  const int index_;
  const Stopwatch watch_;
  std::vector<StageLayer> layer_;  // one element
  std::unique_ptr<FlatParameters> flat_;
  Tensors inputs_, output_;
  // Between forward and backward.
  Pass pass_;
  torch::autograd::edge_list roots_;
  Tensors shapes_of_roots_;
};

/// Seconds of the work outside of layers: per element (update, norm, clear) or per micro-batch.
struct Others {
  Samples loss;
  std::vector<double> update, norm, clear, input, target;
};

/// The optimizer to measure, on the whole buffer, or on a matrix at its beginning if its rule sees
/// whole parameters. Sets `elements` to the number of elements.
std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerSpec& spec, const FlatBuffer& buffer,
                                         int64_t& elements) {
  elements = buffer.values.numel();
  if (FindOptimizerType(spec.type).sees == OptionTable::Sees::kElements) {
    return MakeOptimizer(spec, {buffer});
  }
  elements = kSide * kSide;
  const FlatBuffer part = {buffer.group, buffer.values.narrow(0, 0, elements),
                           buffer.gradients.narrow(0, 0, elements)};
  PlacedParameter matrix;
  matrix.path = "weight";
  matrix.value = part.values.view({kSide, kSide});
  matrix.leaf = matrix.value;
  matrix.gradient = part.gradients.view({kSide, kSide});
  matrix.buffer = 0;
  return MakeOptimizer(spec, {part}, {&matrix, 1});
}

void MeasureUpdate(const Bench& bench, Others& others) {
  const Stopwatch watch(bench.device, bench.task.threads);
  FlatBuffer buffer;
  const auto type = at::dtype(ToScalarType(bench.task.job->precision.params));
  buffer.values = at::full({kElements}, 0.1, type.device(bench.device));
  buffer.gradients = at::full_like(buffer.values, 1e-3);
  int64_t updated = 0;
  const auto optimizer = MakeOptimizer(bench.task.job->optimizer, buffer, updated);
  const double elements = static_cast<double>(kElements);
  for (int i = 0; i < kLeastRepetitions + 1; ++i) {
    const double norm = watch.Time([&] { SumOfSquares(buffer.gradients); });
    const double update = watch.Time([&] { optimizer->Step(1, 1); });
    const double clear = watch.Time([&] { buffer.gradients.zero_(); });
    if (i == 0) continue;
    others.norm.push_back(norm / elements);
    others.update.push_back(update / static_cast<double>(updated));
    others.clear.push_back(clear / elements);
  }
}

/// A micro-batch that was read: the specs of its input, and its target.
struct Read {
  TensorSpecs input;
  Tensors target;
};

/// Measures reading the job's own data, if it has some. Returns the first micro-batch, for the
/// loss.
Read MeasureData(const Bench& bench, Others& others) {
  const Job& job = *bench.task.job;
  if (job.train_data.kind.empty()) return {};
  const auto source = OpenSource(
      job, job.train_data,
      {.batch = bench.task.batch, .replica = 0, .replicas = 1, .wants_both = true}, bench.script);
  const auto feed = source->Next(0);
  if (feed->inputs().empty()) feed->set_inputs(feed->ReadInputs());
  const Stopwatch watch(at::kCPU, /*threads=*/0);  // 0: wall time, because other threads read, too
  Read first = {feed->inputs().at(0), {}};
  for (int m = 0; m < std::min(feed->most(), 4); ++m) {
    Tensors read;
    others.input.push_back(watch.Time([&] { feed->Input(m); }));
    others.target.push_back(watch.Time([&] { read = feed->Target(m); }));
    if (m == 0) first.target = std::move(read);
  }
  return first;
}

/// The specs of the last layer's output for that micro-batch, which may have fewer rows than
/// planned.
TensorSpecs OutputFor(const Bench& bench, const TensorSpecs& input) {
  const MeasureTask& task = bench.task;
  if (input == task.input) return task.outputs.back();
  return InferLayers(task.job->layers, input, &bench.script, task.job->precision.compute).back();
}

void MeasureLoss(const Bench& bench, const Tensors& output, const Tensors& target, Others& others) {
  const Stopwatch watch(bench.device, bench.task.threads);
  const auto loss = BuildLoss(bench.task.job->loss, &bench.script);
  Tensors on_device;
  for (const at::Tensor& tensor : target) on_device.push_back(tensor.to(bench.device));
  for (int i = 0; i < kLeastRepetitions + 1; ++i) {
    Tensors leaves;
    for (const at::Tensor& tensor : output) {
      leaves.push_back(tensor.detach().requires_grad_(tensor.is_floating_point()));
    }
    LossValue value;
    const double forward = watch.Time([&] {
      const RandomScope scope(1);
      value = loss->Compute(leaves, on_device);
    });
    const double backward = watch.Time([&] {
      torch::autograd::Engine::get_default_engine().execute(
          {torch::autograd::impl::gradient_edge(value.sum)}, {at::ones_like(value.sum)}, false,
          false, true);
    });
    if (i == 0) continue;
    others.loss.forward.push_back(forward);
    others.loss.input_grad.push_back(backward);
  }
}

/// A group of layers that take turns in being measured.
struct Round {
  std::vector<size_t> layers;
  size_t begin = 0, all = 0;

  double share() const { return static_cast<double>(layers.size()) / all; }
  bool is_last() const { return begin + layers.size() == all; }
};

/// One of the threads that measure side by side.
class Copy {
 public:
  Copy(const Bench& bench, const Round& round, std::atomic<double>& done)
      : bench_(bench), round_(round), samples_(round.layers.size()), done_(done) {}

  void Run() {
    SetThreads(bench_.task.threads);
    UseDevice(bench_.task.device, 0);
    RunBackwardHere();
    BuildLayers();
    const double wall = SecondsOf(CLOCK_MONOTONIC), own = SecondsOf(CLOCK_THREAD_CPUTIME_ID);
    RunLayers();
    const double passed = SecondsOf(CLOCK_MONOTONIC) - wall;
    // On a device the host sleeps while it waits, so its processor time says nothing.
    if (bench_.device.is_cpu() && passed > 0 && !round_.layers.empty()) {
      processor_share_ = (SecondsOf(CLOCK_THREAD_CPUTIME_ID) - own) / passed;
    }
    if (round_.is_last()) MeasureOthers();
  }

  const std::vector<Samples>& samples() const { return samples_; }
  /// The share of the time of its layers in which the thread had a core.
  double processor_share() const { return processor_share_; }
  const Others& others() const { return others_; }

 private:
  /// Runs all layers of the round forward before the first runs backward, as in a step, where the
  /// forward was long before the backward. A backward right after its forward finds its data in the
  /// caches and takes a tenth less time.
  void RunLayers() {
    if (round_.layers.empty()) return;
    const double share = round_.share(), limit = bench_.task.most_seconds * share;
    const double most = limit > 0 ? std::min(kSeconds * share, limit / 2) : kSeconds * share;
    const auto start = Clock::now();
    const auto seconds = [&] {
      return std::chrono::duration<double>(Clock::now() - start).count();
    };
    for (int i = 0; i < kWarmUps + kMostRepetitions; ++i) {
      const bool is_enough = i >= kWarmUps + kLeastRepetitions && seconds() > most;
      const bool is_late = limit > 0 && i > kWarmUps && seconds() > limit;
      if (is_enough || is_late) break;
      const size_t passes = 2 * layers_.size();
      for (size_t pass = 0; pass < passes; ++pass) {
        const bool is_forward = pass < layers_.size();
        const size_t k = is_forward ? pass : passes - 1 - pass;
        Samples* const samples = i < kWarmUps ? nullptr : &samples_[k];
        is_forward ? layers_[k]->Forward(samples) : layers_[k]->Backward(samples);
        if (bench_.copy > 0) continue;
        const double repetitions = i + static_cast<double>(pass + 1) / static_cast<double>(passes);
        const double by_count = repetitions / (kWarmUps + kMostRepetitions);
        const double least = repetitions / (kWarmUps + kLeastRepetitions);
        const double of_round = std::max(by_count, std::min(least, seconds() / most));
        done_ = 0.9 * (static_cast<double>(round_.begin) / round_.all + share * of_round);
      }
    }
  }

  void BuildLayers() {
    const MeasureTask& task = bench_.task;
    const std::vector<TensorSpecs> inputs = LayerInputs(task.job->layers, task.input, task.outputs);
    const DType compute = task.job->precision.compute;
    for (const size_t i : round_.layers) {
      layers_.push_back(
          std::make_unique<LayerBench>(bench_, i, WithType(inputs[i], DType::kFloat32, compute)));
      // Here the layer's input is always its own copy. Whether the layer may overwrite it in the
      // job depends on the layer before.
      layers_.back()->layer().set_may_overwrite_input(i > 0 && GivesFresh(task.job->layers[i - 1]));
    }
  }

  bool GivesFresh(const LayerSpec& before) const {
    const RandomScope scope(0);
    const bool is_large = CountParameters(before) > 0 || before.has_scripted_forward();
    if (is_large) return !before.has_scripted_forward();
    return BuildLayer(before, &bench_.script)->output_memory() != OutputMemory::kKept;
  }

  void MeasureOthers() {
    const RandomScope scope(1);
    MeasureUpdate(bench_, others_);
    Read read;
    if (bench_.copy == 0) read = MeasureData(bench_, others_);
    const bool has_loss = !bench_.task.job->loss.type.empty() && !read.target.empty();
    if (!has_loss) return;
    Tensors output;
    for (const TensorSpec& spec : OutputFor(bench_, read.input)) {
      output.push_back(Synthetic(spec, 2, bench_.device));
    }
    MeasureLoss(bench_, output, read.target, others_);
  }

  const Bench bench_;
  const Round& round_;
  std::vector<std::unique_ptr<LayerBench>> layers_;
  std::vector<Samples> samples_;
  Others others_;
  double processor_share_ = 1;
  std::atomic<double>& done_;
};

/// The indices of the first layer of each key that is not known yet.
std::vector<size_t> DistinctLayers(const MeasureTask& task, const KnownSeconds& known) {
  std::vector<size_t> distinct;
  std::map<std::string, size_t> first;
  for (size_t i = 0; i < task.job->layers.size(); ++i) {
    const std::string key = LayerKey(task, i);
    if (!known.contains(key) && first.emplace(key, i).second) distinct.push_back(i);
  }
  return distinct;
}

/// Divides the layers into rounds. There is at least one, possibly empty, because the last round
/// measures what is outside of layers.
std::vector<Round> Rounds(const std::vector<size_t>& distinct) {
  std::vector<Round> rounds;
  size_t begin = 0;
  do {
    const size_t end = std::min(begin + kRound, distinct.size());
    rounds.push_back({{distinct.begin() + static_cast<std::ptrdiff_t>(begin),
                       distinct.begin() + static_cast<std::ptrdiff_t>(end)},
                      begin,
                      distinct.size()});
    begin = end;
  } while (begin < distinct.size());
  return rounds;
}

/// True if the round will probably end within the task's time, judging by the rounds before it.
bool HasTimeFor(const Round& round, const MeasureTask& task, Clock::time_point start) {
  if (task.most_seconds == 0 || round.begin == 0) return true;
  const double spent = std::chrono::duration<double>(Clock::now() - start).count();
  const double done = static_cast<double>(round.begin) / round.all;
  return spent * (done + round.share()) / done <= task.most_seconds;
}

/// Runs all copies, each in a thread, and reports progress; rethrows the first exception.
void RunAll(const std::vector<std::unique_ptr<Copy>>& copies, const std::atomic<double>& done,
            const ProfileProgress& progress) {
  std::vector<std::future<void>> running;
  for (const auto& copy : copies) {
    running.push_back(std::async(std::launch::async, [&copy] {
      TranslateErrors([] { return std::string("measuring the layers"); }, [&copy] { copy->Run(); });
    }));
  }
  for (const auto& one : running) {
    while (one.wait_for(kTick) != std::future_status::ready) progress(done);
  }
  for (auto& one : running) one.get();
}

}  // namespace

Profile MeasureLayers(const MeasureTask& task, const KnownSeconds& known, EngineScript& script,
                      const ProfileProgress& progress, const LayersMeasured& measured) {
  const at::Device device = UseDevice(task.device, 0);
  std::atomic<double> done = 0;
  KnownSeconds all = known;
  Others others;
  const auto start = Clock::now();
  for (const Round& round : Rounds(DistinctLayers(task, known))) {
    if (!HasTimeFor(round, task, start)) break;
    std::vector<std::unique_ptr<Copy>> copies;
    for (int c = 0; c < std::max(task.copies, 1); ++c) {
      copies.push_back(std::make_unique<Copy>(Bench{task, script, device, c}, round, done));
    }
    RunAll(copies, done, progress);
    double share = 1;
    for (const auto& copy : copies) share = std::min(share, copy->processor_share());
    KnownSeconds found;
    for (size_t k = 0; k < round.layers.size(); ++k) {
      Samples samples;
      for (const auto& copy : copies) samples.Append(copy->samples()[k]);
      found[LayerKey(task, round.layers[k])] = samples.Medians();
    }
    if (!found.empty()) measured(found, share);
    all.merge(found);
    others = copies.front()->others();
  }
  Profile profile;
  for (size_t i = 0; i < task.job->layers.size(); ++i) {
    const auto found = all.find(LayerKey(task, i));
    STRATA_CHECK(found != all.end() || task.most_seconds > 0) << i;
    profile.layers.push_back(found == all.end() ? PassSeconds() : found->second);
  }
  profile.loss = others.loss.Medians();
  profile.update = Median(others.update);
  profile.norm = Median(others.norm);
  profile.clear = Median(others.clear);
  profile.input = Median(others.input);
  profile.target = Median(others.target);
  return profile;
}

}  // namespace strata
