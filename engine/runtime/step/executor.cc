// RowRun executes one row once: a switch over the actions, and for each incoming link the number of
// messages that were posted and received. Receives are posted in the order in which the sender
// sends, as far as a free slot allows (PostAhead). An action that needs a message takes messages
// off the link until its own is there and gives the others to the stages to which they belong.
#include "engine/runtime/step/executor.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/text.h"
#include "engine/forecast/step_costs.h"
#include "engine/runtime/check/step_record.h"
#include "engine/runtime/stage/examiner.h"
#include "engine/runtime/stage/feed.h"
#include "engine/runtime/stage/torch_errors.h"
#include "engine/runtime/watch/named_range.h"

namespace strata {

using schedule::Action;
using schedule::Kind;
using Clock = std::chrono::steady_clock;

/// One run of one row.
class RowRun {
 public:
  RowRun(Executor& executor, const Row& row, const RunSpec& run, ExecutorHost& host)
      : executor_(executor), row_(row), run_(run), host_(host), slots_(row.slots.size()) {
    for (size_t stage = 0; stage < slots_.size(); ++stage) {
      for (auto& slots : slots_[stage]) slots.assign(row.slots[stage], false);
    }
    for (const Inbound& inbound : row.inbound) {
      const int peer = executor_.pipe_ranks_[inbound.pipe_rank];
      inbox_.push_back({&inbound, peer, &executor_.links_.recv_link(peer, inbound.channel), 0, 0});
    }
  }

  void Execute() {
    PostAhead();
    BeginStages();
    for (; position_ < row_.instructions.size(); ++position_) {
      const Instruction& instruction = row_.instructions[position_];
      const NamedRange range(instruction.doing.what.c_str());
      executor_.progress_.Start(&instruction.doing);
      const auto begin = Clock::now();
      waited_ = {};
      TranslateErrors([&] { return instruction.doing.what; }, [&] { Execute(instruction); });
      Count(instruction.action, Clock::now() - begin - waited_);
      executor_.progress_.Complete();
    }
    for (SendLink* link : sends_) link->Flush();
  }

  /// Where the run stands, for the log after a failure: the rank's position and the row around it.
  std::string Place() const {
    std::vector<Action> actions;
    for (const Instruction& instruction : row_.instructions) actions.push_back(instruction.action);
    return Str(executor_.progress_.Position(), ", in ",
               schedule::ShowRow(actions, static_cast<int>(position_)));
  }

 private:
  /// A link to this rank, with the number of messages that were posted and that were received.
  struct Inbox {
    const Inbound* inbound;
    int peer;
    RecvLink* link;
    size_t posted;
    size_t received;
  };

  void BeginStages() {
    const auto begin = Clock::now();
    for (Stage* stage : executor_.stages_) {
      if (stage) stage->Begin(run_);
    }
    executor_.begin_seconds_ = std::chrono::duration<double>(Clock::now() - begin).count();
  }

  void Execute(const Instruction& instruction) {
    const int s = instruction.action.stage;
    const int m = instruction.action.micro_batch;
    switch (instruction.action.kind) {
      case Kind::kForward:
        Forward(instruction, s, m);
        break;
      case Kind::kRecompute:
        Recorded(instruction, [&] { stage(s).Recompute(m); });
        break;
      case Kind::kBackward:
        AwaitGradient(instruction, s, m);
        Recorded(instruction, [&] { Backward(instruction, s, m); });
        Free(s, m, kGradients);
        Free(s, m, kActivations);
        HandDown(s, m);
        break;
      case Kind::kInputGrad:
        AwaitGradient(instruction, s, m);
        Recorded(instruction, [&] { stage(s).BackwardInput(m); });
        Free(s, m, kGradients);
        HandDown(s, m);
        break;
      case Kind::kWeightGrad:
        Recorded(instruction, [&] { stage(s).BackwardWeights(m); });
        Free(s, m, kActivations);
        break;
      case Kind::kSendF:
        Send(s + 1, m, kActivations, stage(s).TakeOutput(m));
        break;
      case Kind::kSendB:
        Send(s - 1, m, kGradients, stage(s).TakeInputGradient(m));
        break;
      case Kind::kRecvF:
      case Kind::kRecvB:
        PostAhead();
        break;
      case Kind::kReduceGrad:
        host_.OnGradients(stage(s));
        break;
      case Kind::kStep:
        if (instruction.is_last_step) host_.Step();
        break;
      case Kind::kReduceTied:
        if (instruction.is_last_tied) host_.ReduceTies();
        break;
      case Kind::kIdle:
      case Kind::kOverlap:
      case Kind::kUnshard:
      case Kind::kReshard:
        STRATA_CHECK(false) << instruction.doing.what << " is not executed";
    }
    if (run_.examiner) Examine(instruction.action.kind, s, m);
  }

  void Count(const Action& action, std::chrono::duration<double> took) {
    const double layers = std::max(0.0, took.count() - kActionSeconds);
    switch (action.kind) {
      case Kind::kForward:
      case Kind::kRecompute:
        executor_.seconds_[action.stage].forward += layers;
        break;
      case Kind::kBackward:
      case Kind::kInputGrad:
      case Kind::kWeightGrad:
        executor_.seconds_[action.stage].backward += layers;
        break;
      case Kind::kReduceGrad:
        executor_.reduce_seconds_ += took.count();
        break;
      default:
        break;
    }
  }

  /// Examines the stage's weight gradients after an action that adds to them.
  void Examine(Kind kind, int s, int m) {
    if (kind != Kind::kBackward && kind != Kind::kWeightGrad) return;
    run_.examiner->Accumulated(stage(s).parameters(), stage(s).layers(), s, m);
  }

  /// Runs an action. In a checked step it is recorded, which does not count as its time.
  template <class Run>
  void Recorded(const Instruction& instruction, const Run& run, Keep keep = Keep::kActivations) {
    if (!run_.record) return run();
    const auto& [kind, s, m] = std::tuple(instruction.action.kind, instruction.action.stage,
                                          instruction.action.micro_batch);
    const auto begin = Clock::now();
    run_.record->Before(stage(s), kind, m, instruction.inbound >= 0);
    const auto ready = Clock::now();
    run();
    const auto done = Clock::now();
    run_.record->After(stage(s), kind, m, keep);
    waited_ += (ready - begin) + (Clock::now() - done);
  }

  void Send(int to, int m, int channel, Tensors tensors) {
    if (run_.record) tensors = run_.record->Sends(to, m, channel == kGradients, std::move(tensors));
    SendLinkTo(to, channel).Send(tensors);
  }

  void Forward(const Instruction& instruction, int s, int m) {
    if (!stage(s).is_first() && instruction.inbound >= 0) {
      Await(instruction.inbound, [&] { return stage(s).has_input(m); });
    }
    ReadData(s, m);
    const Keep keep = instruction.is_recomputed ? Keep::kInput : Keep::kActivations;
    Recorded(
        instruction, [&] { stage(s).Forward(m, keep); }, keep);
    if (run_.reads_ahead && m + 1 < run_.micro_batches()) ReadData(s, m + 1);
    if (!run_.training) Free(s, m, kActivations);
    if (Stage* next = Neighbour(s + 1)) next->SetInput(m, stage(s).TakeOutput(m));
  }

  /// Gives the stage its data of the micro-batch, if it needs data and does not have them yet.
  void ReadData(int s, int m) {
    if (stage(s).is_first() && inputs_read_.insert(m).second) {
      stage(s).SetInput(m, ReadData([&] { return run_.feed->Input(m); }));
    }
    if (stage(s).is_last() && run_.has_targets && targets_read_.insert(m).second) {
      stage(s).SetTarget(m, ReadData([&] { return run_.feed->Target(m); }));
    }
  }

  void Backward(const Instruction& instruction, int s, int m) {
    if (!run_.reports_passing || !instruction.completes) return stage(s).Backward(m);
    const int64_t before = executor_.progress_.flight().waited();
    stage(s).Backward(m, [&](int layer) { host_.OnPassed(stage(s), layer); });
    // With zero = 2 it waits for sums of earlier layers.
    waited_ += std::chrono::nanoseconds(executor_.progress_.flight().waited() - before);
  }

  void AwaitGradient(const Instruction& instruction, int s, int m) {
    if (instruction.inbound < 0) return;
    Await(instruction.inbound, [&] { return stage(s).has_output_gradient(m); });
  }

  /// After a backward: hands the input's gradient to the previous stage if it is on this rank.
  void HandDown(int s, int m) {
    if (Stage* before = Neighbour(s - 1)) {
      before->SetOutputGradient(m, stage(s).TakeInputGradient(m));
    }
  }

  /// Receives messages of a link, in its order, until `there()` is true. Messages of other
  /// micro-batches and stages are given to their stages.
  template <class There>
  void Await(int inbound, const There& there) {
    if (there()) return;
    Inbox& inbox = inbox_[inbound];
    executor_.progress_.WaitFor(inbox.peer);
    const auto begin = Clock::now();
    while (!there()) {
      STRATA_CHECK(inbox.received < inbox.posted) << "waiting for what was not posted";
      const Inbound::Message& message = inbox.inbound->messages[inbox.received++];
      Tensors tensors = inbox.link->Wait();
      if (inbox.inbound->channel == kActivations) {
        stage(message.stage).SetInput(message.micro_batch, std::move(tensors));
      } else {
        stage(message.stage).SetOutputGradient(message.micro_batch, std::move(tensors));
      }
    }
    waited_ += Clock::now() - begin;
    executor_.progress_.Compute();
  }

  template <class Read>
  Tensors ReadData(const Read& read) {
    executor_.progress_.ReadData(&run_.feed->origin().name);
    const auto begin = Clock::now();
    Tensors tensors = read();
    const std::chrono::duration<double> took = Clock::now() - begin;
    waited_ += took;
    executor_.data_seconds_ += took.count();
    executor_.progress_.Compute();
    return tensors;
  }

  /// Posts receives for which a buffer is free.
  void PostAhead() {
    for (Inbox& inbox : inbox_) {
      while (inbox.posted < inbox.inbound->messages.size()) {
        const Inbound::Message& message = inbox.inbound->messages[inbox.posted];
        char& in_use = Slot(message.stage, message.micro_batch, inbox.inbound->channel);
        if (in_use) break;
        in_use = true;
        inbox.link->Post(Specs(message, inbox.inbound->channel));
        ++inbox.posted;
      }
    }
  }

  void Free(int s, int m, int channel) {
    Slot(s, m, channel) = false;
    PostAhead();
  }

  char& Slot(int s, int m, int channel) {
    std::vector<char>& slots = slots_[s][channel];
    return slots[m % slots.size()];
  }

  /// The specs of a message. Only floating-point tensors have gradients.
  TensorSpecs Specs(const Inbound::Message& message, int channel) const {
    const Boundaries& boundaries = *run_.boundaries[message.micro_batch];
    if (channel == kActivations) return boundaries[message.stage];
    TensorSpecs specs;
    std::ranges::copy_if(boundaries[message.stage + 1], std::back_inserter(specs),
                         [](const TensorSpec& spec) { return IsFloating(spec.dtype); });
    return specs;
  }

  Stage& stage(int s) const { return *executor_.stages_[s]; }

  /// The stage `s` if it exists and is on this rank, else null.
  Stage* Neighbour(int s) const {
    const bool exists = s >= 0 && s < static_cast<int>(executor_.stages_.size());
    return exists ? executor_.stages_[s] : nullptr;
  }

  SendLink& SendLinkTo(int s, int channel) {
    const int peer = executor_.pipe_ranks_[row_.stage_ranks[s]];
    SendLink& link = executor_.links_.send_link(peer, channel);
    sends_.insert(&link);
    return link;
  }

  Executor& executor_;
  const Row& row_;
  const RunSpec& run_;
  ExecutorHost& host_;
  size_t position_ = 0;                        // index in the row
  std::chrono::duration<double> waited_ = {};  // of the current action
  std::vector<Inbox> inbox_;
  std::set<SendLink*> sends_;                 // used by this run
  std::set<int> inputs_read_, targets_read_;  // micro-batches
  // For each stage and channel, by m modulo the number of slots: true if the slot is in use.
  std::vector<std::array<std::vector<char>, 2>> slots_;
};

Executor::Executor(Links& links, std::vector<Stage*> stages, std::vector<int> pipe_ranks,
                   Progress& progress)
    : links_(links),
      stages_(std::move(stages)),
      pipe_ranks_(std::move(pipe_ranks)),
      progress_(progress) {}

void Executor::Run(const Row& row, const RunSpec& run, ExecutorHost& host) {
  data_seconds_ = begin_seconds_ = reduce_seconds_ = 0;
  seconds_.assign(stages_.size(), {});
  RowRun row_run(*this, row, run, host);
  try {
    row_run.Execute();
  } catch (const WorldError&) {
    STRATA_LOG(kInfo) << row_run.Place();
    throw;
  }
}

}  // namespace strata
