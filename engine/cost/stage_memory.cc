#include "engine/cost/stage_memory.h"

#include <algorithm>

#include "engine/base/outstanding_sends.h"
#include "engine/base/size_class.h"

namespace strata {

int64_t StageMemory(const ModelCosts& costs, const StageCost& stage, const StageSetting& setting) {
  const auto own = [&](int64_t bytes) {  // a rank's part of what the owners share
    return static_cast<int64_t>(static_cast<double>(bytes) / setting.owners);
  };
  const int64_t state = costs.moments * AllocatedBytes(own(stage.gradient_bytes));
  int64_t bytes = stage.weight_bytes - stage.gradient_bytes + stage.buffer_bytes +
                  2 * AllocatedBytes(stage.gradient_bytes) + state + own(stage.extra_state_bytes);
  const int slots = std::min(setting.slots, setting.micro_batches);
  const int sends = std::min(kOutstandingSends, setting.micro_batches);
  int64_t kept = stage.kept_bytes;
  int64_t gradients = 0;
  if (setting.receives) {
    bytes += (slots + sends) * stage.input_bytes;  // inputs, and their gradients on the way back
    kept -= stage.input_bytes;
  }
  if (setting.sends) {
    bytes += (slots + (stage.keeps_output ? 0 : sends)) * stage.output_bytes;
    gradients = stage.output_bytes;
  }
  const int64_t forward = stage.forward_peak - stage.kept_bytes;
  const int64_t backward = stage.backward_peak - stage.kept_bytes - gradients;
  return bytes + setting.live * kept + std::max<int64_t>({forward, backward, 0});
}

}  // namespace strata
