// OurKey(), which is declared in fields.h: a table of names that other training libraries use.
#include <algorithm>
#include <array>

#include "engine/base/fields/fields.h"

namespace strata {
namespace {

struct OtherName {
  std::string_view theirs, ours;
};

constexpr auto kOtherNames = std::to_array<OtherName>({
    {"T_max", "lr_schedule.steps"},
    {"accumulate", "batch.micro_batches"},
    {"accumulate_grad_batches", "batch.micro_batches"},
    {"batch_size", "batch.size"},
    {"betas", "optimizer.betas"},
    {"drop_last", "data:take(n)"},
    {"dtype", "precision"},
    {"early_stopping", "stop"},
    {"eps", "optimizer.eps"},
    {"grad_clip", "clip"},
    {"gradient_accumulation_steps", "batch.micro_batches"},
    {"gradient_clipping", "clip"},
    {"learning_rate", "optimizer.lr"},
    {"lr", "optimizer.lr"},
    {"lr_scheduler", "lr_schedule"},
    {"max_epochs", "epochs"},
    {"max_grad_norm", "clip"},
    {"max_steps", "steps"},
    {"metrics", "eval.metrics"},
    {"momentum", "optimizer.momentum"},
    {"name", "optimizer.groups.parameters"},
    {"num_epochs", "epochs"},
    {"num_workers", "data.workers"},
    {"params", "optimizer.groups.parameters"},
    {"prefetch_factor", "data.prefetch"},
    {"scheduler", "lr_schedule"},
    {"train_batch_size", "batch.size"},
    {"train_micro_batch_size_per_gpu", "batch.micro_batch_size"},
    {"val", "data.test"},
    {"weight_decay", "optimizer.weight_decay"},
});

}  // namespace

std::string_view OurKey(std::string_view theirs) {
  const auto* const known = std::ranges::find(kOtherNames, theirs, &OtherName::theirs);
  return known == kOtherNames.end() ? std::string_view() : known->ours;
}

}  // namespace strata
