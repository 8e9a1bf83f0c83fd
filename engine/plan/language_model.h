// LanguageModel: checks that a planned job is a language model, and tells what generating texts
// takes.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/job/job.h"
#include "engine/plan/plan.h"

namespace strata {

struct LanguageModel {
  int64_t length = 0;  ///< the most tokens that it reads, which is the length of the job's input
  int64_t vocabulary = 0;  ///< the number of tokens for which it gives scores
};

/// True if the job maps tokens (batch, L) to scores (batch, L, V).
bool IsLanguageModel(const Plan& plan);
/// Throws ConfigError if the job is not a language model, or if the ranks of the model axis share
/// the positions of a text (split = "sequence").
LanguageModel LanguageModelOf(const Job& job, const Plan& plan);

/// The bytes of keys and values that attention keeps for each token of a text, for every rank of
/// the pipe axis.
std::vector<int64_t> KeptTokenBytes(const Job& job, const Plan& plan);
/// The most bytes that the texts of job.eval.samples keep, for every rank of the pipe axis. Each
/// text may become as long as the model reads. Zeros if the job generates no texts or keeps
/// nothing.
std::vector<int64_t> SampleBytes(const Job& job, const Plan& plan);

}  // namespace strata
