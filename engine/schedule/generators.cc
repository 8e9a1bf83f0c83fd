#include "engine/schedule/generators.h"

#include <algorithm>
#include <iterator>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata::schedule {
namespace {

/// How many stages a rank can have.
enum class StagesPerRank { kOne, kTwo, kAny };

struct Generator {
  const char* name;
  Program (*generate)(const Sizes&);
  StagesPerRank stages_per_rank;
};

constexpr Generator kGenerators[] = {
    {"gpipe", GPipe, StagesPerRank::kOne},
    {"1f1b", OneFOneB, StagesPerRank::kOne},
    {"interleaved_1f1b", Interleaved1F1B, StagesPerRank::kAny},
    {"looped_bfs", LoopedBfs, StagesPerRank::kAny},
    {"zb_h1", ZbH1, StagesPerRank::kOne},
    {"zb_h2", ZbH2, StagesPerRank::kOne},
    {"interleaved_zb", InterleavedZb, StagesPerRank::kAny},
    {"zbv", Zbv, StagesPerRank::kTwo},
    {"v_half", VHalf, StagesPerRank::kTwo},
    {"v_min", VMin, StagesPerRank::kTwo},
    {"dualpipev", DualPipeV, StagesPerRank::kTwo},
    {"inference", Inference, StagesPerRank::kAny},
};

// Names of docs/design.md that have no generator yet.
constexpr const char* kLater[] = {"auto"};

// Bounds the memory of a program: 2^28 forwards are some 10 GB.
constexpr int64_t kMaxForwards = int64_t{1} << 28;

const Generator& Find(std::string_view name) {
  const auto* found = std::find_if(std::begin(kGenerators), std::end(kGenerators),
                                   [&](const Generator& g) { return g.name == name; });
  if (found != std::end(kGenerators)) return *found;
  const std::vector<std::string> names = GeneratorNames();
  if (std::find(std::begin(kLater), std::end(kLater), name) != std::end(kLater)) {
    throw ConfigError(Str("schedule \"", name, "\" comes later; there are ", Join(names, ", ")));
  }
  throw ConfigError(Str("there is no schedule \"", name, '"', DidYouMean(name, names)));
}

void CheckPositive(const char* name, int value) {
  if (value < 1) throw ConfigError(Str(name, " must be at least 1, not ", value));
}

void CheckStagesPerRank(const Generator& generator, int stages_per_rank) {
  const int needed = generator.stages_per_rank == StagesPerRank::kOne   ? 1
                     : generator.stages_per_rank == StagesPerRank::kTwo ? 2
                                                                        : stages_per_rank;
  if (stages_per_rank == needed) return;
  throw ConfigError(Str("schedule \"", generator.name, "\" has ",
                        needed == 1 ? "one stage" : "two stages",
                        " per rank: stages_per_rank must be ", needed, ", not ", stages_per_rank));
}

void CheckSizes(const Generator& generator, const Sizes& sizes) {
  CheckPositive("ranks", sizes.ranks);
  CheckPositive("stages_per_rank", sizes.stages_per_rank);
  CheckPositive("micro_batches", sizes.micro_batches);
  const int64_t stages = int64_t{sizes.ranks} * sizes.stages_per_rank;
  CheckStagesPerRank(generator, sizes.stages_per_rank);
  if (stages > Action::kMaxStages) {
    throw ConfigError(Str(Plural(stages, "stage"), " are too many; there can be ",
                          FormatCount(Action::kMaxStages)));
  }
  if (stages * (stages + sizes.micro_batches) > kMaxForwards) {
    throw ConfigError(Str("a program of ", Plural(stages, "stage"), " and ",
                          FormatCount(sizes.micro_batches), " micro-batches is too large"));
  }
}

}  // namespace

std::vector<std::string> GeneratorNames() {
  std::vector<std::string> names;
  for (const Generator& generator : kGenerators) names.emplace_back(generator.name);
  return names;
}

Program Generate(std::string_view name, const Sizes& sizes) {
  const Generator& generator = Find(name);
  CheckSizes(generator, sizes);
  return generator.generate(sizes);
}

}  // namespace strata::schedule
