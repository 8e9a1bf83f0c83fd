// LanguageModel: what a planned job must be to write texts, and what writing them takes.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/job/job.h"
#include "engine/plan/plan.h"

namespace strata {

struct LanguageModel {
  int64_t length = 0;      ///< tokens that it reads at most: those of the job's input
  int64_t vocabulary = 0;  ///< tokens that it gives scores of
};

/// Whether the job goes from tokens (L) to scores (L, V).
bool IsLanguageModel(const Plan& plan);
/// Throws ConfigError for a job that is none, and where ranks of the model axis share the places of
/// a text (split = "sequence").
LanguageModel LanguageModelOf(const Job& job, const Plan& plan);

/// Bytes of the keys and values that attention keeps of each token of a text, on every rank of the
/// pipe axis.
std::vector<int64_t> KeptTokenBytes(const Job& job, const Plan& plan);
/// What the texts of job.eval.samples keep at most, on every rank of the pipe axis: each may become
/// as long as the model reads. Zeros for a job that writes none.
std::vector<int64_t> SampleBytes(const Job& job, const Plan& plan);

}  // namespace strata
