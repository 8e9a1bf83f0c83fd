// Generation: writes texts with the job's model, token by token, on the job's grid.
//
// A run of the evaluation's program takes every text one token further. Prompts are its
// micro-batches, so that several fill the pipe:
//
//   stage 0 | F0 F1 F2 .  |          F0 F1 F2 .  |
//   stage 1 | .  F0 F1 F2 | choose   .  F0 F1 F2 | choose
//
// The first run takes whole prompts, later ones a token each: what attention computed of the tokens
// before is kept (KeptTokens), of each micro-batch on each rank. The last stage chooses; all ranks
// are told the tokens (Transport::Gather), so that all know every text, and which have ended. The
// texts of one replica are its own.
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
  /// Everything must outlive this object.
  Generation(const RankContext& context, RankStages& stages, Runner& runner)
      : context_(context), stages_(stages), runner_(runner) {}

  /// Collective; as Engine::BeginTexts().
  TextReport Begin(const TextRequest& request);
  /// Ends the texts: layers have moved, and with them what was kept of earlier tokens.
  void End() { texts_.clear(), groups_.clear(); }
  /// Collective; as Engine::NextTokens().
  std::vector<NewToken> Next();

 private:
  struct Text {
    std::vector<int32_t> tokens;  // the prompt first
    int64_t most = 0;             // tokens; then it ends
    bool has_ended = false;
  };
  /// Texts of one length in one micro-batch; rows stay when their texts have ended.
  struct Group {
    std::vector<int64_t> prompts;
    int replica = 0;
    int64_t length = 0;                // of each text
    int64_t done = 0;                  // tokens that are kept; 0 where none are
    std::unique_ptr<KeptTokens> kept;  // null: whole texts run, or it is another replica's
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
  int64_t longest_ = 0;      // tokens that the model reads
  std::vector<Text> texts_;  // by prompt, of all replicas
  std::vector<Group> groups_;
};

}  // namespace strata
