#include "engine/runtime/step/executor.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "engine/base/text.h"
#include "engine/comm/specs.h"
#include "engine/forecast/planned_program.h"
#include "engine/runtime/stage/feed.h"
#include "engine/runtime/testing.h"
#include "engine/schedule/generators/generators.h"
#include "engine/schedule/lowering.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using testing::FunctionLayer;
using ::testing::IsEmpty;
using Events = std::vector<std::string>;

const TensorSpecs kMessage = {{{2}, DType::kFloat32}};

/// A transport that records its calls. A message is its number on the link.
class ScriptedTransport : public Transport {
 public:
  explicit ScriptedTransport(Events& events) : events_(events) {}

  int rank() const override { return 0; }
  int world_size() const override { return 8; }
  const char* name() const override { return "scripted"; }
  SendLink& send_link(int peer, int channel) override {
    sends_.push_back(std::make_unique<ScriptedSend>(events_, unflushed_, Name(peer, channel)));
    return *sends_.back();
  }
  RecvLink& recv_link(int peer, int channel) override {
    receives_.push_back(std::make_unique<ScriptedRecv>(events_, Name(peer, channel)));
    return *receives_.back();
  }
  std::vector<double> AllReduceSum(const std::vector<double>& values) override { return values; }
  std::string Broadcast(const std::string& text, int) override { return text; }
  std::vector<std::string> Gather(const std::string& text) override { return {text}; }
  void Barrier() override {}
  void Abort(const std::string&) override {}

  /// The links that have sent since their last flush.
  const std::set<std::string>& unflushed() const { return unflushed_; }

 private:
  static std::string Name(int peer, int channel) {
    return Str(channel == kActivations ? "F" : "B", peer);
  }

  struct ScriptedSend : SendLink {
    ScriptedSend(Events& events, std::set<std::string>& unflushed, std::string name)
        : events(events), unflushed(unflushed), name(std::move(name)) {}
    void Send(const std::vector<at::Tensor>& tensors) override {
      EXPECT_EQ(SpecsOf(tensors), kMessage);
      events.push_back(Str("send ", name));
      unflushed.insert(name);
    }
    void Flush() override { unflushed.erase(name); }
    Events& events;
    std::set<std::string>& unflushed;
    const std::string name;
  };
  struct ScriptedRecv : RecvLink {
    ScriptedRecv(Events& events, std::string name) : events(events), name(std::move(name)) {}
    void Post(const TensorSpecs& specs) override {
      EXPECT_EQ(specs, kMessage);
      events.push_back("post " + name);
    }
    std::vector<at::Tensor> Wait() override {
      events.push_back("wait " + name);
      return {at::full({2}, next++, at::kFloat)};
    }
    Events& events;
    const std::string name;
    int next = 0;
  };

  Events& events_;
  std::set<std::string> unflushed_;
  std::vector<std::unique_ptr<ScriptedSend>> sends_;
  std::vector<std::unique_ptr<ScriptedRecv>> receives_;
};

/// One rank of a pipeline whose stages record their calls and pass on their input.
class ExecutorTest : public ::testing::Test, private ExecutorHost {
 protected:
  /// Runs `rank`'s row and returns the events.
  Events Run(const schedule::Program& program, int rank, bool reads_ahead = false) {
    const schedule::Program lowered = schedule::LowerAndCheck(program);
    MakeStages(lowered, rank);
    const Boundaries boundaries(lowered.stages() + 1, kMessage);
    RunSpec run;
    run.training = lowered.is_training;
    run.feed = &feed_;
    run.reads_ahead = reads_ahead;
    run.boundaries.assign(lowered.micro_batches, &boundaries);
    std::vector<Stage*> stages;
    for (const auto& stage : stages_) stages.push_back(stage.get());
    std::vector<int> pipe_ranks;
    for (int r = 0; r < lowered.ranks(); ++r) pipe_ranks.push_back(r);
    Executor executor(transport_, stages, pipe_ranks, progress_);
    executor.Run(CompileRow(lowered, rank), run, *this);
    EXPECT_THAT(transport_.unflushed(), IsEmpty());  // all sends were flushed
    return std::exchange(events_, {});
  }

  Events Run(const std::vector<std::vector<std::string>>& rows, std::vector<int> stage_ranks,
             int rank) {
    schedule::ParseOptions options;
    options.stage_ranks = std::move(stage_ranks);
    return Run(schedule::ParseProgram(rows, options), rank);
  }

  uint64_t completed() const { return progress_.completed(); }

 private:
  void MakeStages(const schedule::Program& program, int rank) {
    stages_.clear();
    for (int s = 0; s < program.stages(); ++s) {
      stages_.push_back(program.stage_ranks[s] == rank ? MakeStage(s, program) : nullptr);
    }
  }

  std::unique_ptr<Stage> MakeStage(int s, const schedule::Program& program) {
    StageParts parts;
    parts.stage = s;
    parts.is_first = s == 0;
    const auto forward = [this, s](FunctionLayer& layer, const Tensors& x, const Pass& pass) {
      events_.push_back(Str(s, pass.recomputing ? "R" : "F"));
      const at::Tensor y = x[0] * layer.weight();
      if (y.requires_grad()) {
        y.register_hook([this, s, weights = pass.weight_gradients](const at::Tensor&) {
          events_.push_back(Str(s, "B"));
          weights->Add([this, s] { events_.push_back(Str(s, "W")); });
        });
      }
      return Tensors{y};
    };
    parts.layers.push_back(
        {s, std::to_string(s), "layer", std::make_unique<FunctionLayer>(forward, at::ones({2}))});
    if (s == program.last_stage()) {
      parts.loss = BuildLoss(testing::Make("MSELoss"), nullptr);
    }
    return std::make_unique<Stage>(std::move(parts), [](int, const std::string&) { return -1; });
  }

  class NumberFeed : public Feed {
   public:
    NumberFeed(const DataOrigin& origin, Events& events) : Feed(origin, 0), events_(events) {}
    Tensors Input(int m) override { return Read("input ", m); }
    Tensors Target(int m) override { return Read("target ", m); }

   private:
    Tensors Read(const char* what, int m) {
      events_.push_back(Str(what, m));
      return {at::full({2}, m, at::kFloat)};
    }
    Events& events_;
  };

  void ReduceTies() override { events_.push_back("ties"); }
  void OnPassed(Stage&, int) override {}
  void OnGradients(Stage& stage) override { events_.push_back(Str("reduce ", stage.number())); }
  void Step() override { events_.push_back("step"); }

  Events events_;
  ScriptedTransport transport_{events_};
  Progress progress_{0};
  std::vector<std::unique_ptr<Stage>> stages_;
  const DataOrigin origin_ = {"test", ""};
  NumberFeed feed_{origin_, events_};
};

TEST_F(ExecutorTest, TheMiddleOf1F1B) {
  // There are two slots, so two activations and two gradients are posted before anything else, and
  // the next one as soon as a backward has freed its slot. Every send follows its action directly.
  EXPECT_THAT(Run(schedule::OneFOneB({.ranks = 3, .stages_per_rank = 1, .micro_batches = 3}), 1),
              ElementsAre("post F0", "post F0", "post B2", "post B2",              //
                          "wait F0", "1F", "send F2",                              //
                          "wait F0", "1F", "send F2",                              //
                          "wait B2", "1B", "1W", "post B2", "post F0", "send B0",  //
                          "wait F0", "1F", "send F2",                              //
                          "wait B2", "1B", "1W", "send B0",                        //
                          "wait B2", "1B", "1W", "send B0",                        //
                          "reduce 1", "step"));
}

TEST_F(ExecutorTest, TheFirstStageReadsInputs) {
  EXPECT_THAT(Run(schedule::GPipe({.ranks = 2, .stages_per_rank = 1, .micro_batches = 2}), 0),
              ElementsAre("post B1", "post B1",        //
                          "input 0", "0F", "send F1",  //
                          "input 1", "0F", "send F1",  //
                          "wait B1", "0B", "0W",       //
                          "wait B1", "0B", "0W", "reduce 0", "step"));
}

TEST_F(ExecutorTest, TheLastStageReadsTargets) {
  EXPECT_THAT(Run(schedule::OneFOneB({.ranks = 2, .stages_per_rank = 1, .micro_batches = 2}), 1),
              ElementsAre("post F0", "post F0",                                //
                          "wait F0", "target 0", "1F", "1B", "1W", "send B0",  //
                          "wait F0", "target 1", "1F", "1B", "1W", "send B0",  //
                          "reduce 1", "step"));
}

TEST_F(ExecutorTest, EvaluationFreesASlotWithEveryForward) {
  EXPECT_THAT(Run(schedule::EvaluationProgram({0, 1, 2}, 3), 1),
              ElementsAre("post F0", "post F0",                   //
                          "wait F0", "1F", "post F0", "send F2",  //
                          "wait F0", "1F", "send F2",             //
                          "wait F0", "1F", "send F2"));
}

TEST_F(ExecutorTest, SplitBackwardSendsBeforeTheWeights) {
  EXPECT_THAT(
      Run({{"0F0", "0F1", "0B0", "0B1"}, {"1F0", "1I0", "1F1", "1I1", "1W0", "1W1"}}, {0, 1}, 1),
      ElementsAre("post F0", "post F0",                          //
                  "wait F0", "target 0", "1F", "1B", "send B0",  //
                  "wait F0", "target 1", "1F", "1B", "send B0",  //
                  "1W", "1W", "reduce 1", "step"));
}

TEST_F(ExecutorTest, RecomputationRunsTheForwardTwice) {
  EXPECT_THAT(Run({{"0F0", "0R0", "0B0"}, {"1F0", "1B0"}}, {0, 1}, 0),
              ElementsAre("post B1", "input 0", "0F", "send F1", "0R", "wait B1", "0B", "0W",
                          "reduce 0", "step"));
}

TEST_F(ExecutorTest, StagesOfOneRankHandOverDirectly) {
  // In a V, rank 1 has stages 1 and 2, which are neighbours.
  EXPECT_THAT(
      Run({{"0F0", "3F0", "3B0", "0B0"}, {"1F0", "2F0", "2B0", "1B0"}}, {0, 1, 1, 0}, 1),
      ElementsAre("post F0", "post B0",              //
                  "wait F0", "1F", "2F", "send F0",  //
                  "wait B0", "2B", "2W", "reduce 2", "1B", "1W", "send B0", "reduce 1", "step"));
}

TEST_F(ExecutorTest, OneRankAloneNeedsNoLinks) {
  EXPECT_THAT(Run(schedule::GPipe({.ranks = 1, .stages_per_rank = 1, .micro_batches = 2}), 0),
              ElementsAre("input 0", "target 0", "0F", "input 1", "target 1", "0F", "0B", "0W",
                          "0B", "0W", "reduce 0", "step"));
}

TEST_F(ExecutorTest, DataAreReadOneMicroBatchAhead) {
  const schedule::Sizes sizes = {.ranks = 2, .stages_per_rank = 1, .micro_batches = 3};
  EXPECT_THAT(Run(schedule::GPipe(sizes), 0, /*reads_ahead=*/true),
              ElementsAre("post B1", "post B1", "post B1",         //
                          "input 0", "0F", "input 1", "send F1",   //
                          "0F", "input 2", "send F1",              //
                          "0F", "send F1", "wait B1", "0B", "0W",  //
                          "wait B1", "0B", "0W", "wait B1", "0B", "0W", "reduce 0", "step"));
}

TEST_F(ExecutorTest, AnOverlapIsItsParts) {
  EXPECT_THAT(
      Run({{"0F0", "0F1", "0B0", "0B1"}, {"1F0", "(1F1;1B0)OVERLAP_F_B", "1B1"}}, {0, 1}, 1),
      ElementsAre("post F0", "post F0", "wait F0", "target 0", "1F", "wait F0", "target 1", "1F",
                  "1B", "1W", "send B0", "1B", "1W", "send B0", "reduce 1", "step"));
}

TEST_F(ExecutorTest, CountsItsActions) {
  Run(schedule::GPipe({.ranks = 1, .stages_per_rank = 1, .micro_batches = 2}), 0);
  EXPECT_EQ(completed(), 6u);  // two F, two B, REDUCE_GRAD, STEP
}

TEST(RowTest, TheLastBackwardCompletesAStageUnlessWeightsComeLater) {
  const auto completing = [](const std::vector<std::vector<std::string>>& rows) {
    schedule::ParseOptions options;
    options.stage_ranks = {0, 1};
    const Row row = CompileRow(schedule::LowerAndCheck(schedule::ParseProgram(rows, options)), 1);
    std::vector<std::string> actions;
    for (const Instruction& instruction : row.instructions) {
      if (instruction.completes) actions.push_back(instruction.doing.what);
    }
    return actions;
  };
  const std::vector<std::string> first = {"0F0", "0F1", "0B0", "0B1"};
  EXPECT_THAT(completing({first, {"1F0", "1B0", "1F1", "1B1"}}), ElementsAre("1B1"));
  EXPECT_THAT(completing({first, {"1F0", "1I0", "1F1", "1B1", "1W0"}}), IsEmpty());
}

TEST(RowTest, ReductionsCanHaveTheOrderOfAnotherRow) {
  const auto row = [](const std::vector<std::string>& first,
                      const std::vector<std::string>& second) {
    schedule::ParseOptions options;
    options.stage_ranks = {0, 1, 1, 0};
    return CompileRow(schedule::LowerAndCheck(schedule::ParseProgram(
                          std::vector<std::vector<std::string>>{first, second}, options)),
                      0);
  };
  const auto actions = [](const Row& row) {
    std::vector<std::string> texts;
    for (const Instruction& instruction : row.instructions) {
      if (!schedule::IsCommunication(instruction.action.kind)) {
        texts.push_back(instruction.doing.what);
      }
    }
    return texts;
  };
  // With two micro-batches stage 0 is complete first, with one it is stage 3.
  const Row planned = row({"0F0", "3F0", "3I0", "3W0", "0B0", "0F1", "3F1", "3I1", "0B1", "3W1"},
                          {"1F0", "2F0", "2B0", "1B0", "1F1", "2F1", "2B1", "1B1"});
  const Row shorter = row({"0F0", "3F0", "3I0", "3W0", "0B0"}, {"1F0", "2F0", "2B0", "1B0"});
  EXPECT_THAT(actions(shorter), ElementsAre("0F0", "3F0", "3I0", "3W0", "3REDUCE_GRAD", "0B0",
                                            "0REDUCE_GRAD", "0STEP", "3STEP"));
  EXPECT_THAT(actions(WithReductionsAs(planned, shorter)),
              ElementsAre("0F0", "3F0", "3I0", "3W0", "0B0", "0REDUCE_GRAD", "3REDUCE_GRAD",
                          "0STEP", "3STEP"));
  EXPECT_EQ(actions(WithReductionsAs(planned, planned)), actions(planned));
  EXPECT_THAT(actions(WithReductionsAs(planned, WithoutMicroBatches(shorter))),
              ElementsAre("0REDUCE_GRAD", "3REDUCE_GRAD", "0STEP", "3STEP"));
}

TEST(RowTest, MessagesOfALinkAreInItsOrder) {
  // In a loop rank 1 has stages 1 and 3; both get their input from rank 0 on one link.
  schedule::ParseOptions options;
  options.stage_ranks = {0, 1, 0, 1};
  const schedule::Program program = schedule::LowerAndCheck(schedule::ParseProgram(
      std::vector<std::vector<std::string>>{
          {"0F0", "0F1", "2F0", "2F1", "2B0", "2B1", "0B0", "0B1"},
          {"1F0", "1F1", "3F0", "3B0", "3F1", "3B1", "1B0", "1B1"}},
      options));
  const Row row = CompileRow(program, 1);
  ASSERT_EQ(row.inbound.size(), 2u);
  std::vector<std::string> messages;
  for (const Inbound::Message& message : row.inbound[0].messages) {
    messages.push_back(Str(message.stage, "F", message.micro_batch));
  }
  EXPECT_EQ(row.inbound[0].channel, kActivations);
  EXPECT_THAT(messages, ElementsAre("1F0", "1F1", "3F0", "3F1"));
  EXPECT_EQ(row.inbound[1].channel, kGradients);
  EXPECT_EQ(row.inbound[1].messages.size(), 2u);  // of stage 1 only: stage 3 is the last
}

}  // namespace
}  // namespace strata
