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
    {"lora_alpha", "adapt.alpha"},
    {"lora_dropout", "adapt.dropout"},
    {"lr", "optimizer.lr"},
    {"lr_scheduler", "lr_schedule"},
    {"max_epochs", "epochs"},
    {"max_grad_norm", "clip"},
    {"max_steps", "steps"},
    {"metrics", "eval.metrics"},
    {"modules_to_save", "adapt.train"},
    {"momentum", "optimizer.momentum"},
    {"name", "optimizer.groups.parameters"},
    {"num_epochs", "epochs"},
    {"num_workers", "data.workers"},
    {"params", "optimizer.groups.parameters"},
    {"prefetch_factor", "data.prefetch"},
    {"r", "adapt.rank"},
    {"scheduler", "lr_schedule"},
    {"target_modules", "adapt.layers"},
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
