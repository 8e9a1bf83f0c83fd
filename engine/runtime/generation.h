// Generation: writes texts with the job's model, token by token, on the ranks of the job.
//
// Each run of the evaluation program extends every text by one token. The prompts are its
// micro-batches, so that several of them fill the pipeline:
//
//   stage 0 | F0 F1 F2 .  |          F0 F1 F2 .  |
//   stage 1 | .  F0 F1 F2 | choose   .  F0 F1 F2 | choose
//
// The first run computes whole prompts, later runs one token of each text: the keys and values that
// attention computed for earlier tokens are kept (KeptTokens), for each micro-batch on each rank.
// The last stage chooses the tokens and all ranks exchange them (Transport::Gather), so that every
// rank knows all texts and which of them have ended. Replicas work on different texts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/layers/kept_tokens.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/engine_tensors.h"
#include "engine/runtime/stage/rank_context.h"
#include "engine/runtime/step/runner.h"
#include "engine/runtime/update/rank_stages.h"

namespace strata {

class Generation {
 public:
  /// All arguments must outlive this object.
  Generation(const RankContext& context, RankStages& stages, Runner& runner)
      : context_(context), stages_(stages), runner_(runner) {}

  /// Collective. Like Engine::BeginTexts().
  TextReport Begin(const TextRequest& request);
  /// Drops the texts. Called when layers have moved, because what was kept of earlier tokens is on
  /// the wrong ranks then.
  void End() { texts_.clear(), groups_.clear(); }
  /// Collective. Like Engine::NextTokens().
  std::vector<NewToken> Next();

 private:
  struct Text {
    std::vector<int32_t> tokens;  // the prompt first
    int64_t most = 0;             // number of tokens at which the text ends
    bool has_ended = false;
  };
  /// Texts of equal length in one micro-batch. The rows of texts that have ended are still
  /// computed.
  struct Group {
    std::vector<int64_t> prompts;
    int replica = 0;
    int64_t length = 0;  // of each text
    int64_t done = 0;    // tokens whose keys and values are kept; 0 if none are
    // Null if whole texts are computed, or if the group belongs to another replica.
    std::unique_ptr<KeptTokens> kept;
  };

  void GroupPrompts();
  bool is_own(const Group& group) const { return group.replica == context_.replica; }
  int64_t MostOf(const Group& group) const;
  std::string Try();
  int64_t TakeMemory(int64_t bytes_per_token);
  Outputs Run(const std::vector<Group*>& groups, int64_t most, const PredictionAsked& asked);
  at::Tensor InputOf(const Group& group) const;
  std::string Choose(const Group& group, const Tensors& outputs) const;
  NewToken Take(int64_t prompt, int32_t token);

  const RankContext& context_;
  RankStages& stages_;
  Runner& runner_;
  TextRequest request_;
  int64_t longest_ = 0;      // length of the model's input in tokens
  std::vector<Text> texts_;  // one per prompt, of all replicas
  std::vector<Group> groups_;
};

}  // namespace strata
