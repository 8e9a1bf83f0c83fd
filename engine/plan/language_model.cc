#include "engine/plan/language_model.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/layer_types.h"

namespace strata {
namespace {

void CheckShared(const std::vector<LayerSpec>& layers) {
  for (const LayerSpec& layer : layers) {
    if (SplitOf(layer) == "sequence") {
      throw ConfigError(Str(Place(layer.where), layer.type, " shares the places of a text between ",
                            "the ranks of the model axis (split = \"sequence\"), and a text grows ",
                            "by one: give --model=1"));
    }
    CheckShared(layer.children);
  }
}

}  // namespace

bool IsLanguageModel(const Plan& plan) {
  const TensorSpecs& input = plan.stages.front().input;
  const TensorSpecs& output = plan.stages.back().output;
  // Of packed data there are the places of the tokens too; a text that is generated needs none.
  const bool is_packed = input.size() == 2 && plan.layers.front().type == "documents";
  const bool takes_tokens = (input.size() == 1 || is_packed) && input[0].dtype == DType::kInt64 &&
                            input[0].shape.size() == 2;
  return takes_tokens && output.size() == 1 && IsFloating(output[0].dtype) &&
         output[0].shape.size() == 3 && output[0].shape[1] == input[0].shape[1];
}

LanguageModel LanguageModelOf(const Job& job, const Plan& plan) {
  const TensorSpecs& input = plan.stages.front().input;
  const TensorSpecs& output = plan.stages.back().output;
  if (!IsLanguageModel(plan)) {
    throw ConfigError(
        Str("expected a language model, from tokens (batch, length) to scores "
            "(batch, length, tokens); this job's goes from ",
            ToString(input), " to ", ToString(output)));
  }
  if (plan.topology.Size(kModelAxis) > 1) CheckShared(job.layers);
  return {input[0].shape[1], output[0].shape[2]};
}

std::vector<int64_t> KeptTokenBytes(const Job& job, const Plan& plan) {
  const int64_t model = std::max(1, plan.topology.Size(kModelAxis));
  std::vector<int64_t> bytes(static_cast<size_t>(plan.pipe()));
  for (const LayerPlan& layer : plan.layers) {
    const auto rank = static_cast<size_t>(plan.stages[static_cast<size_t>(layer.stage)].rank);
    bytes[rank] +=
        KeptTokenBytes(job.layers[static_cast<size_t>(layer.index)], model, job.precision.compute);
  }
  return bytes;
}

std::vector<int64_t> SampleBytes(const Job& job, const Plan& plan) {
  const SamplesSpec& samples = job.eval.samples;
  const bool keeps = !samples.prompts.empty() && samples.options["keep"].as_bool();
  if (!keeps || !IsLanguageModel(plan)) {
    return std::vector<int64_t>(static_cast<size_t>(plan.pipe()));
  }
  const int64_t tokens = std::ssize(samples.prompts) * LanguageModelOf(job, plan).length;
  std::vector<int64_t> bytes = KeptTokenBytes(job, plan);
  for (int64_t& of_rank : bytes) of_rank *= tokens;
  return bytes;
}

}  // namespace strata
