// The table of schedules: the name of each, its generator, and the sizes that it can have.
#include "engine/schedule/generators/generators.h"

#include <algorithm>
#include <iterator>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/schedule/size.h"

namespace strata::schedule {
namespace {

/// The number of stages that a rank can have, and their map: one, two on a V, or any number on a
/// loop.
enum class StagesPerRank { kOne, kTwoOnAV, kAny };

/// The turn of a schedule whose line in the table gives none.
constexpr int kLast = 1000;
/// The turn of a schedule that searches do not try, because it is a search itself or does not
/// train.
constexpr int kNotTried = -1;

struct Generator {
  const char* name;
  Program (*generate)(const Sizes&);
  StagesPerRank stages_per_rank;
  int turn = kLast;
  int micro_batches_per_rank = 0;  ///< the least number of micro-batches for each rank
};

constexpr Generator kGenerators[] = {
    {"gpipe", GPipe, StagesPerRank::kOne, 3},
    {"1f1b", OneFOneB, StagesPerRank::kOne, 1},
    {"interleaved_1f1b", Interleaved1F1B, StagesPerRank::kAny, 2},
    {"looped_bfs", LoopedBfs, StagesPerRank::kAny, 6},
    {"zb_h1", ZbH1, StagesPerRank::kOne, 4},
    {"zb_h2", ZbH2, StagesPerRank::kOne, 5},
    {"interleaved_zb", InterleavedZb, StagesPerRank::kAny, 8},
    {"zbv", Zbv, StagesPerRank::kTwoOnAV, 7},
    {"v_half", VHalf, StagesPerRank::kTwoOnAV, 9},
    {"v_min", VMin, StagesPerRank::kTwoOnAV, 10},
    {"dualpipev", DualPipeV, StagesPerRank::kTwoOnAV, 11, 2},
    {"auto", Auto, StagesPerRank::kAny, kNotTried},
    {"inference", Inference, StagesPerRank::kAny, kNotTried},
};

const Generator& Find(std::string_view name) {
  const auto* found = std::find_if(std::begin(kGenerators), std::end(kGenerators),
                                   [&](const Generator& g) { return g.name == name; });
  if (found != std::end(kGenerators)) return *found;
  const std::vector<std::string> names = GeneratorNames();
  throw ConfigError(Str("there is no schedule \"", name, '"', DidYouMean(name, names)));
}

void CheckPositive(const char* name, int value) {
  if (value < 1) throw ConfigError(Str(name, " must be at least 1, not ", value));
}

/// The reason why the schedule cannot have these positive sizes; "" if it can.
std::string WhyNot(const Generator& generator, const Sizes& sizes) {
  const int stages = generator.stages_per_rank == StagesPerRank::kOne       ? 1
                     : generator.stages_per_rank == StagesPerRank::kTwoOnAV ? 2
                                                                            : sizes.stages_per_rank;
  if (sizes.stages_per_rank != stages) {
    return Str("schedule \"", generator.name, "\" has ", stages == 1 ? "one stage" : "two stages",
               " per rank: stages_per_rank must be ", stages, ", not ", sizes.stages_per_rank);
  }
  const int64_t least = int64_t{generator.micro_batches_per_rank} * sizes.ranks;
  if (sizes.micro_batches < least) {
    return Str("schedule \"", generator.name, "\" needs at least ",
               generator.micro_batches_per_rank, " micro-batches per rank, ", least,
               ", to overlap forwards with backwards; there are ", sizes.micro_batches);
  }
  return "";
}

const Generator& FindFor(std::string_view name, const Sizes& sizes) {
  const Generator& generator = Find(name);
  CheckPositive("ranks", sizes.ranks);
  CheckPositive("stages_per_rank", sizes.stages_per_rank);
  CheckPositive("micro_batches", sizes.micro_batches);
  const int64_t stages = int64_t{sizes.ranks} * sizes.stages_per_rank;
  if (const std::string why = WhyNot(generator, sizes); !why.empty()) throw ConfigError(why);
  if (stages > Action::kMaxStages) {
    throw ConfigError(Str(Plural(stages, "stage"), " are too many; there can be ",
                          FormatCount(Action::kMaxStages)));
  }
  CheckSize(stages, sizes.micro_batches);
  return generator;
}

}  // namespace

bool Fits(std::string_view name, const Sizes& sizes) { return WhyNot(Find(name), sizes).empty(); }

std::vector<std::string> GeneratorNames() {
  std::vector<std::string> names;
  for (const Generator& generator : kGenerators) names.emplace_back(generator.name);
  return names;
}

std::vector<std::string> TriedSchedules() {
  std::vector<std::string> names = GeneratorNames();
  std::erase_if(names, [](const std::string& name) { return Find(name).turn == kNotTried; });
  return names;
}

std::vector<int> StageMap(std::string_view name, int ranks, int stages_per_rank) {
  const bool is_v = Find(name).stages_per_rank == StagesPerRank::kTwoOnAV;
  return is_v ? VMap(ranks, stages_per_rank) : LoopMap(ranks, stages_per_rank);
}

int TurnOf(std::string_view name) { return Find(name).turn; }

void CheckSizes(std::string_view name, const Sizes& sizes) { FindFor(name, sizes); }

Program Generate(std::string_view name, const Sizes& sizes) {
  return FindFor(name, sizes).generate(sizes);
}

}  // namespace strata::schedule
