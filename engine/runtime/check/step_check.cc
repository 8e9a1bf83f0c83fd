// Every phase ends in a gather of reports, from which all ranks draw the same conclusion.
#include "engine/runtime/check/step_check.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/machine/identity.h"
#include "engine/base/split_mix.h"
#include "engine/base/text.h"
#include "engine/layers/parts.h"
#include "engine/runtime/check/replay.h"
#include "engine/runtime/training_error.h"

namespace strata {
namespace {

constexpr int64_t kDigest = 32;
constexpr int64_t kHead = kDigest + static_cast<int64_t>(sizeof(int64_t));

/// While an object lives, the rank's actions are not those of a row, whose times are known.
class OutsideOfRow {
 public:
  explicit OutsideOfRow(Progress& progress) : progress_(progress) { progress_.set_in_row(false); }
  ~OutsideOfRow() { progress_.set_in_row(true); }
  OutsideOfRow(const OutsideOfRow&) = delete;
  OutsideOfRow& operator=(const OutsideOfRow&) = delete;

 private:
  Progress& progress_;
};

/// What the bits of kernels may depend on.
std::string Processor() {
  return Str(Plural(at::get_num_threads(), "thread"), " of ", ProcessorName(), ", ",
             at::get_cpu_capability());
}

CheckRanks Draw(SplitMixRandom& random, int ranks) {
  CheckRanks drawn;
  drawn.drawn = static_cast<int>(random.Below(ranks));
  const auto second = static_cast<int>(random.Below(ranks - 1));
  drawn.second = (drawn.drawn + 1 + second) % ranks;
  if (ranks == 2) return drawn;
  auto third = static_cast<int>(random.Below(ranks - 2));
  if (third >= second) ++third;
  drawn.third = (drawn.drawn + 1 + third) % ranks;
  return drawn;
}

at::Tensor HeadOf(const at::Tensor& packet) {
  at::Tensor head = at::empty({kHead}, at::kByte);
  auto* to = static_cast<char*>(head.mutable_data_ptr());
  const std::string bits = BitsOf(packet);
  const int64_t size = packet.numel();
  std::memcpy(to, bits.data(), kDigest);
  std::memcpy(to + kDigest, &size, sizeof(size));
  return head;
}

Value ToValue(const Repetition& repetition) {
  return Value::MakeMap({{"is_damaged", repetition.is_damaged},
                         {"differs", repetition.differs},
                         {"theirs", repetition.theirs},
                         {"mine", repetition.mine}});
}

Repetition RepetitionOf(const Value& value) {
  return {value["is_damaged"].as_bool(), value["differs"].as_string(), value["theirs"].as_string(),
          value["mine"].as_string()};
}

Value ToValue(const std::map<std::string, std::string>& texts) {
  Value value = Value::MakeMap();
  for (const auto& [key, text] : texts) value.Set(key, text);
  return value;
}

}  // namespace

std::vector<int> WrongRanks(const CheckRanks& ranks, const Repetition& first,
                            const std::vector<Repetition>& again) {
  const std::vector<int> undecided = {ranks.drawn, ranks.second};
  if (ranks.third >= 0) {
    if (again.at(0).mine == first.mine) return {ranks.drawn};
    return again[0].mine == first.theirs ? std::vector<int>{ranks.second} : undecided;
  }
  const bool drawn_is_sure = again.at(0).mine == first.theirs;
  const bool second_is_sure = again.at(1).mine == first.mine;
  if (drawn_is_sure == second_is_sure) return undecided;
  return {drawn_is_sure ? ranks.second : ranks.drawn};
}

StepCheck::StepCheck(const RankContext& context, RankStages& stages, int64_t every)
    : context_(context),
      stages_(stages),
      world_(*context.transport.FindGroup("world")),
      every_(every),
      flip_(FlipOf(context.rank())) {
  const std::vector<std::string> processors = context.transport.Gather(Processor());
  for (size_t i = 1; i < processors.size(); ++i) {
    if (processors[i] == processors[0]) continue;
    throw ConfigError(
        Str("check compares bits, which depend on processors and threads: rank 0 has ",
            processors[0], "; rank ", i, " has ", processors[i]));
  }
}

StepRecord* StepCheck::Begin(int64_t step, int micro_batches) {
  step_ = step;
  SplitMixRandom random(
      SplitMix(SplitMix(static_cast<uint64_t>(context_.job.seed)) + static_cast<uint64_t>(step)));
  ranks_ = Draw(random, context_.transport.world_size());
  std::optional<DrawnWork> work;
  if (is_drawn()) {
    const auto own = static_cast<size_t>(random.Below(std::ssize(stages_.own())));
    const auto m = static_cast<int>(random.Below(std::max(1, micro_batches)));
    work = {stages_.own()[own].stage->number(), m};
  }
  if (kept_.empty()) kept_ = MemoryBits();
  return &record_.emplace(work, flip_ ? &*flip_ : nullptr);
}

const OwnStage& StepCheck::drawn_stage() const {
  const auto found = std::ranges::find(stages_.own(), record_->drawn()->stage,
                                       [](const OwnStage& own) { return own.stage->number(); });
  STRATA_CHECK(found != stages_.own().end()) << record_->drawn()->stage;
  return *found;
}

/// The digests of parameters and optimizer state, by what they are of.
Digests StepCheck::MemoryBits() const {
  Digests digests;
  for (const OwnStage& own : stages_.own()) {
    const std::string stage = Str("stage ", own.stage->number());
    for (const at::Tensor& values : ValuesOf(*own.stage)) {
      digests.emplace_back(Str("the parameters of ", stage), BitsOf(values));
    }
    for (const OptimizerState& state : own.optimizer->state()) {
      for (const Moment& moment : state.moments) {
        digests.emplace_back(Str("the optimizer's ", moment.name, " of ", stage),
                             BitsOf(moment.values));
      }
      for (const Factor& factor : state.factors) {
        digests.emplace_back(Str("the optimizer's ", factor.name, " of ", factor.path),
                             BitsOf(factor.values));
      }
    }
  }
  return digests;
}

/// One digest of what all replicas of these stages have; "" if there is one replica.
std::string StepCheck::BitsOfReplica(const Digests& memory) const {
  if (context_.replicas == 1) return "";
  Digests common = memory;
  if (context_.job.zero > 0) {
    std::erase_if(common,
                  [](const auto& entry) { return !entry.first.starts_with("the parameters"); });
  }
  return BitsOf(common);
}

/// Sends the drawn rank's packet to rank `to`, which repeats the work. Returns what it says, on
/// that rank.
std::optional<Repetition> StepCheck::RepeatAt(int to, const at::Tensor& packet,
                                              const Repeat& repeat) {
  at::Tensor bytes = packet;
  Repetition result;
  if (is_drawn() && to != rank()) {
    world_.Send(HeadOf(bytes), to);
    if (flip_ && flip_->at == FlipAt::kPacket) {
      bytes = ExactCopy(bytes);
      flip_->Reach(FlipAt::kPacket, {bytes});
    }
    world_.Send(bytes, to);
    return std::nullopt;
  }
  if (to != rank()) return std::nullopt;
  if (!is_drawn()) {
    context_.progress.WaitFor(ranks_.drawn);
    at::Tensor head = at::empty({kHead}, at::kByte);
    world_.Recv(head, ranks_.drawn);
    int64_t size = 0;
    const auto* from = static_cast<const char*>(head.const_data_ptr());
    std::memcpy(&size, from + kDigest, sizeof(size));
    bytes = at::empty({size}, at::kByte);
    world_.Recv(bytes, ranks_.drawn);
    context_.progress.Compute();
    result.is_damaged = BitsOf(bytes) != std::string(from, kDigest);
    if (result.is_damaged) return result;
  }
  const TensorPacket record = FromBytes(bytes);
  const Digests theirs = DigestsOf(record.header["digests"]), mine = repeat(record);
  result.differs = FirstDifference(theirs, mine);
  result.theirs = BitsOf(theirs);
  result.mine = BitsOf(mine);
  return result;
}

/// Collective: the reports of all ranks.
std::vector<Value> StepCheck::Gather(Value mine) {
  context_.progress.WaitForAll();
  std::vector<Value> reports;
  for (const std::string& text : context_.transport.Gather(mine.ToJson())) {
    reports.push_back(Value::FromJson(text));
  }
  context_.progress.Compute();
  return reports;
}

/// Has the packet repeated, and gathers `report` with what the second rank says. `packet`: on the
/// drawn rank.
void StepCheck::Compare(TensorPacket packet, Value report, const Repeat& repeat) {
  const at::Tensor bytes = is_drawn() ? ToBytes(packet) : at::Tensor();
  packet = {};  // its copies are as large as `bytes`
  const auto repeat_at = [&](int to) { return RepeatAt(to, bytes, repeat); };
  if (const auto repetition = repeat_at(ranks_.second)) {
    report.Set("repetition", ToValue(*repetition));
  }
  report.Set("host", HostName());
  if (is_drawn()) report.Set("stage", record_->drawn()->stage);
  const std::vector<Value> reports = Gather(std::move(report));
  CheckMemory(reports);
  const auto drawn = static_cast<size_t>(ranks_.drawn), second = static_cast<size_t>(ranks_.second);
  const Repetition first = RepetitionOf(reports[second]["repetition"]);
  if (first.is_damaged) {
    Refuse(Str("what ", NameOf(ranks_.drawn, reports), " sent to ", NameOf(ranks_.second, reports),
               " to be repeated arrived damaged"));
  }
  if (!first.differs.empty()) {
    Value again;
    std::vector<int> whom = {ranks_.third};
    if (ranks_.third < 0) whom = {ranks_.drawn, ranks_.second};
    for (const int to : whom) {
      if (const auto repetition = repeat_at(to)) again = ToValue(*repetition);
    }
    const std::vector<Value> others = Gather(std::move(again));
    std::vector<Repetition> repetitions;
    for (const int to : whom) repetitions.push_back(RepetitionOf(others[static_cast<size_t>(to)]));
    const auto stage = static_cast<int>(reports[drawn]["stage"].as_int());
    const Value& m = reports[drawn]["micro_batch"];
    const std::string what =
        Str(first.differs, m.is_null() ? "" : Str(" of micro-batch ", m.as_int()));
    const std::vector<int> wrong = WrongRanks(ranks_, first, repetitions);
    if (wrong.size() == 1) {
      const bool is_drawn = wrong[0] == ranks_.drawn;
      Refuse(Str(NameOf(wrong[0], reports, is_drawn ? stage : -1), " gave wrong bits",
                 is_drawn ? "" : Str(" when it repeated stage ", stage), ": ", what,
                 ranks_.third < 0 ? "; it gave others when it repeated its work"
                                  : "; two other ranks agree on others",
                 !m.is_null() && is_drawn ? FunctionsHint(stage) : ""));
    }
    Refuse(Str(NameOf(ranks_.drawn, reports, stage), " and ", NameOf(ranks_.second, reports),
               " give different bits: ", what,
               ranks_.third < 0
                   ? "; each repeats its own, and there is no third rank to decide"
                   : "; so does a third rank: is there a function of the script that does not give "
                     "the same each time?"));
  }
  CheckMessages(reports);
  CheckReplicas(reports);
}

/// A function of the script that keeps values between its calls begins anew on every rank that
/// repeats it, so these agree with each other. Returns what says so; "" if the stage has none.
std::string StepCheck::FunctionsHint(int stage) const {
  const std::vector<LayerSpec>& layers = context_.job.layers;
  const auto hint = [](const std::string& where, const std::string& what) {
    return Str(". If its machine is fine: does ", what, " (", where,
               ") keep something from one call to the next?");
  };
  const StagePlan& place = context_.plan.stages[static_cast<size_t>(stage)];
  for (int i = place.begin; i < place.end; ++i) {
    const LayerSpec& layer = layers[static_cast<size_t>(i)];
    if (HasScripted(layer)) return hint(layer.where, Str("layer ", LayerNumber(layers, i)));
  }
  const LayerSpec& loss = context_.job.loss;
  const bool is_last = stage + 1 == static_cast<int>(context_.plan.stages.size());
  return is_last && HasScripted(loss) ? hint(loss.where, "the loss") : "";
}

void StepCheck::CheckMemory(const std::vector<Value>& reports) const {
  for (size_t i = 0; i < reports.size(); ++i) {
    const Value& changed = reports[i]["changed"];
    if (changed.is_null()) continue;
    Refuse(Str(NameOf(static_cast<int>(i), reports), " has wrong bits in memory: ",
               changed.as_string(), " changed after the update that wrote them"));
  }
}

void StepCheck::CheckMessages(const std::vector<Value>& reports) const {
  std::map<std::string, std::pair<int, std::string>> sent;  // by replica and message
  const auto name = [&](size_t i, const std::string& message) {
    return Str(context_.plan.topology.Has(kDataAxis)
                   ? context_.plan.topology.Index(static_cast<int64_t>(i), kDataAxis)
                   : 0,
               " ", message);
  };
  for (size_t i = 0; i < reports.size(); ++i) {
    if (reports[i]["sent"].is_null()) return;
    for (const auto& [message, bits] : reports[i]["sent"].as_map()) {
      sent[name(i, message)] = {static_cast<int>(i), bits.as_string()};
    }
  }
  for (size_t i = 0; i < reports.size(); ++i) {
    for (const auto& [message, bits] : reports[i]["used"].as_map()) {
      const auto& [from, was] = sent.at(name(i, message));
      if (was == bits.as_string()) continue;
      const size_t kind = message.find_first_of("FB");
      Refuse(Str("the message from ", NameOf(from, reports), " to ",
                 NameOf(static_cast<int>(i), reports), " changed on its way: the ",
                 message[kind] == 'F' ? "input" : "output gradient", " of stage ",
                 message.substr(0, kind), ", micro-batch ", message.substr(kind + 1)));
    }
  }
}

void StepCheck::CheckReplicas(const std::vector<Value>& reports) const {
  if (context_.replicas == 1 || reports[0]["replica"].is_null()) return;
  std::map<int, std::map<std::string, std::vector<int>>> ranks;  // by pipe rank and bits
  for (size_t i = 0; i < reports.size(); ++i) {
    const int pipe = context_.plan.topology.Index(static_cast<int64_t>(i), kPipeAxis);
    ranks[pipe][reports[i]["replica"].as_string()].push_back(static_cast<int>(i));
  }
  for (const auto& [pipe, by_bits] : ranks) {
    if (by_bits.size() == 1) continue;
    const auto size = [](const auto& entry) { return entry.second.size(); };
    const auto most = std::ranges::max_element(by_bits, {}, size);
    const bool is_decided = 2 * most->second.size() > static_cast<size_t>(context_.replicas);
    std::set<int> others;
    for (const auto& [bits, some] : by_bits) {
      if (!is_decided || bits != most->first) others.insert(some.begin(), some.end());
    }
    std::vector<std::string> names;
    for (const int other : others) names.push_back(NameOf(other, reports));
    Refuse(Str(Join(names, " and "), names.size() == 1 ? " has" : " have",
               is_decided ? " other parameters or optimizer states than the other replicas"
                          : " are replicas, but have different parameters or optimizer states"));
  }
}

void StepCheck::Refuse(const std::string& what) const {
  throw CorruptionError(Str("step ", step_ + 1, " was not taken: ", what));
}

/// "rank 1 on node7 (stage 1, layers 3 to 5)"; the stages of the rank if `stage` is below 0.
std::string StepCheck::NameOf(int rank, const std::vector<Value>& reports, int stage) const {
  const Plan& plan = context_.plan;
  std::vector<std::string> stages;
  for (const StagePlan& place : plan.stages) {
    const bool is_its = place.rank == plan.topology.Index(rank, kPipeAxis);
    if (stage >= 0 ? place.stage != stage : !is_its) continue;
    stages.push_back(Str("stage ", place.stage, ", layers ",
                         LayerNumber(context_.job.layers, place.begin), " to ",
                         LayerNumber(context_.job.layers, std::max(place.begin, place.end - 1))));
  }
  return Str("rank ", rank, " on ", reports[static_cast<size_t>(rank)]["host"].as_string(), " (",
             Join(stages, "; "), ")");
}

void StepCheck::CheckRow(const RunSpec& run) {
  const OutsideOfRow outside(context_.progress);
  const Digests memory = MemoryBits();
  Value report = Value::MakeMap({{"sent", ToValue(record_->sent())},
                                 {"used", ToValue(record_->used())},
                                 {"replica", BitsOfReplica(memory)}});
  const std::string changed = FirstDifference(kept_, memory);
  if (!changed.empty()) report.Set("changed", changed);
  TensorPacket packet;
  if (is_drawn()) {
    packet = record_->ToPacket(*drawn_stage().stage, run);
    report.Set("micro_batch", record_->drawn()->micro_batch);
  }
  Compare(std::move(packet), std::move(report), [&](const TensorPacket& record) {
    return record.header.Has("actions") ? ReplayActions(record, context_, flip_ ? &*flip_ : nullptr)
                                        : Digests();
  });
}

void StepCheck::CheckUpdate(double lr_factor, double divisor, const std::function<void()>& update) {
  const at::NoGradGuard no_grad;
  const OutsideOfRow outside(context_.progress);
  TensorPacket packet;
  if (is_drawn()) {
    const OwnStage& own = drawn_stage();
    packet = UpdatePacket(*own.stage, *own.optimizer, lr_factor, divisor);
  }
  update();
  if (is_drawn()) {
    const Optimizer& optimizer = *drawn_stage().optimizer;
    const std::vector<OptimizerState> states = optimizer.state();
    if (flip_ && !states.empty()) flip_->Reach(FlipAt::kUpdate, {states[0].buffer.values});
    packet.header.Set("digests", ToValue(UpdatedBits(optimizer)));
  }
  Compare(std::move(packet), Value::MakeMap(), [&](const TensorPacket& record) {
    return ReplayUpdate(record, context_, flip_ ? &*flip_ : nullptr);
  });
}

void StepCheck::AfterUpdate(int64_t step) {
  const bool is_next = IsChecked(step + 1);
  kept_ = is_next ? MemoryBits() : Digests();
  if (!flip_) return;
  for (const OwnStage& own : stages_.own()) {
    flip_->Reach(is_next ? FlipAt::kParameter : FlipAt::kUnchecked, ValuesOf(*own.stage));
    if (!is_next) continue;
    for (const OptimizerState& state : own.optimizer->state()) {
      Tensors moments;
      for (const Moment& moment : state.moments) moments.push_back(moment.values);
      flip_->Reach(FlipAt::kState, moments);
    }
  }
}

}  // namespace strata
