#include "engine/search/cluster/simulated_run.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/forecast/forecast_text.h"
#include "engine/search/cluster/job_network.h"

namespace strata::search {
namespace {

/// The two parts of "WHO:FACTOR".
struct Slow {
  std::string who;
  double factor = 0;
};

Slow ReadSlow(const std::string& text, const char* flag, const char* example) {
  const std::vector<std::string> pieces = Split(text, ':');
  char* end = nullptr;
  Slow slow;
  if (pieces.size() == 2) {
    slow.who = std::string(Trim(pieces[0]));
    slow.factor = std::strtod(pieces[1].c_str(), &end);
  }
  const bool is_read = end != nullptr && *end == '\0' && end != pieces[1].c_str();
  const bool is_factor = is_read && slow.factor >= 1 && slow.factor <= 1e6;
  if (!is_factor) {
    throw ConfigError(Str(flag, ": expected ", example,
                          ", a factor from 1 to 1,000,000 behind ':', ", "got \"", text, '"'));
  }
  return slow;
}

int ReadRank(std::string_view text, const char* flag, int ranks) {
  if (const auto rank = ParseWhole(text, 0, ranks - 1)) return *rank;
  throw ConfigError(Str(flag, ": there is no rank \"", text, "\"; they are 0 to ", ranks - 1));
}

/// True if the two ranks send each other activations or sum gradients together.
bool TalkToEachOther(const Candidate& candidate, int a, int b) {
  const int slice = candidate.data * candidate.model;
  const int pipe_a = a / slice, pipe_b = b / slice;
  if (a % candidate.model != b % candidate.model || a == b) return false;
  const int data_a = a % slice / candidate.model, data_b = b % slice / candidate.model;
  if (pipe_a == pipe_b) {
    const int apart = std::abs(data_a - data_b);
    return apart == 1 || apart == candidate.data - 1;
  }
  const int apart = std::abs(pipe_a - pipe_b);
  const bool wraps = candidate.stages_per_rank > 1 && apart == candidate.pipe - 1;
  return data_a == data_b && (apart == 1 || wraps);
}

void ReadSlowLink(const std::string& text, const Candidate& candidate, const Cluster& cluster,
                  Slowness& slowness) {
  constexpr const char* kFlag = "slow_link";
  const Slow slow = ReadSlow(text, kFlag, "two ranks as in 0-8:4 or a node as in node3:4");
  if (slow.who.starts_with("node")) {
    const auto node = ParseWhole(std::string_view(slow.who).substr(4), 0, cluster.nodes - 1);
    if (!node) {
      throw ConfigError(
          Str(kFlag, ": there is no ", slow.who, "; nodes are 0 to ", cluster.nodes - 1));
    }
    slowness.nodes[*node] = slow.factor;
    return;
  }
  const std::vector<std::string> ends = Split(slow.who, '-');
  if (ends.size() != 2) {
    throw ConfigError(
        Str(kFlag, ": expected two ranks as in 0-8:4 or a node as in node3:4, got \"", text, '"'));
  }
  const int a = ReadRank(ends[0], kFlag, candidate.ranks()),
            b = ReadRank(ends[1], kFlag, candidate.ranks());
  if (!TalkToEachOther(candidate, a, b)) {
    const int slice = candidate.data * candidate.model;
    throw ConfigError(Str(kFlag, ": ranks ", a, " and ", b,
                          " send each other nothing; the next stage "
                          "is ",
                          slice, " ranks on, the next replica ", candidate.model));
  }
  slowness.links[{std::min(a, b), std::max(a, b)}] = slow.factor;
}

std::string LayersOf(const SimulatedRun& run, int rank) {
  std::vector<std::string> ranges;
  for (int s = 0; s < run.candidate.stages(); ++s) {
    const auto stage = static_cast<size_t>(s);
    if (run.stage_ranks[stage] != rank) continue;
    ranges.push_back(Str(run.candidate.bounds[stage], "-", run.candidate.bounds[stage + 1] - 1));
  }
  return Join(ranges, " ");
}

std::string WhatIsSlow(const SimulatedRun& run) {
  const int slice = run.candidate.data * run.candidate.model;
  std::string text;
  for (const auto& [rank, factor] : run.slowness.ranks) {
    text += Str("rank ", rank, " (pipe ", rank / slice, ", data ",
                rank % slice / run.candidate.model, ", model ", rank % run.candidate.model,
                ") takes ", FormatDouble(factor), " times as long\n");
  }
  for (const auto& [ends, factor] : run.slowness.links) {
    text += Str("messages between ranks ", ends.first, " and ", ends.second, " take ",
                FormatDouble(factor), " times as long\n");
  }
  for (const auto& [node, factor] : run.slowness.nodes) {
    text += Str("messages between node ", node, " and others take ", FormatDouble(factor),
                " times as long\n");
  }
  return text;
}

Value RecordOf(const StepEvaluation& forecast) {
  Value::List ranks;
  for (const RankForecast& rank : forecast.ranks) {
    ranks.push_back(Value::MakeMap({{"busy", rank.busy},
                                    {"ready", rank.ready},
                                    {"reduce", rank.reduce},
                                    {"update", rank.update},
                                    {"end", rank.end},
                                    {"memory", rank.memory.total()},
                                    {"activations", rank.memory.activations + rank.memory.buffers},
                                    {"sent_pipe", rank.sent_messages},
                                    {"sent_data", rank.sent_replicas},
                                    {"sent_model", rank.sent_model}}));
  }
  return Value::MakeMap({{"step", forecast.step},
                         {"pipeline", forecast.pipeline},
                         {"bubble", forecast.bubble},
                         {"memory", forecast.memory},
                         {"ranks", std::move(ranks)}});
}

}  // namespace

Slowness ReadSlowness(const std::vector<std::string>& stragglers,
                      const std::vector<std::string>& slow_links, const Candidate& candidate,
                      const Cluster& cluster) {
  Slowness slowness;
  for (const std::string& text : stragglers) {
    const Slow slow =
        ReadSlow(text, "straggler", "a rank and how many times as long it takes, as in 5:1.5");
    slowness.ranks[ReadRank(slow.who, "straggler", candidate.ranks())] = slow.factor;
  }
  for (const std::string& text : slow_links) ReadSlowLink(text, candidate, cluster, slowness);
  return slowness;
}

SimulatedRun SimulateRun(const Job& job, const Plan& plan, const schedule::Program& program,
                         const Cluster& cluster, const std::vector<std::string>& stragglers,
                         const std::vector<std::string>& slow_links, Script* script) {
  SimulatedRun run;
  run.cluster = cluster;
  run.candidate = {DecisionsOf(plan), Recompute::kNone, job.zero};
  run.stage_ranks = program.stage_ranks;
  if (run.candidate.ranks() > cluster.devices()) {
    throw ConfigError(Str(Plural(run.candidate.ranks(), "rank"), " need as many devices; ",
                          cluster.Describe(), " are ", cluster.devices()));
  }
  run.slowness = ReadSlowness(stragglers, slow_links, run.candidate, cluster);
  JobCosts costs(job, script);
  JobNetwork network(costs, run.cluster);
  const auto table = network.TableOf(plan);
  STRATA_CHECK(table) << "a job that was planned for " << cluster.Describe();
  const Evaluator evaluator(program);
  const auto step = [&](const Slowness& slowness) {
    return evaluator.Of(PlacedOn(run.candidate, *table, network.training(), cluster,
                                 program.stage_ranks, slowness));
  };
  run.usual = step({});
  run.slowed = run.slowness.empty() ? run.usual : step(run.slowness);
  return run;
}

int FullestRank(const SimulatedRun& run) {
  const std::vector<double> memories = MemoriesOf(run.candidate, run.cluster);
  double most = 0;
  int fullest = -1;
  for (size_t r = 0; r < run.usual.ranks.size(); ++r) {
    const double limit = memories.empty() ? run.cluster.memory() : memories[r];
    const double over = static_cast<double>(run.usual.ranks[r].memory.total()) - limit;
    if (over <= most) continue;
    most = over;
    fullest = static_cast<int>(r);
  }
  return fullest;
}

std::string RunText(const SimulatedRun& run) {
  const Candidate& candidate = run.candidate;
  const StepEvaluation& shown = run.slowed;
  std::string text =
      Str(GridText(candidate), " = ", Plural(candidate.ranks(), "rank"), " on ",
          run.cluster.Describe(), "\nschedule ", candidate.schedule, ", ", candidate.micro_batches,
          " micro-batches of ", candidate.micro_batch_size, "\n\n");
  const Paces paces = PacesOf(candidate, run.cluster);
  std::vector<std::string> head = {"pipe rank",   "layers",           "busy",   "waiting",
                                   "gradients",   "optimizer",        "memory", "sent to stages",
                                   "to replicas", "on the model axis"};
  if (!paces.most.empty()) head.emplace_back("speed");
  TextTable table(head);
  for (size_t r = 0; r < shown.ranks.size(); ++r) {
    const RankForecast& rank = shown.ranks[r];
    std::vector<std::string> row = {Str(r),
                                    LayersOf(run, static_cast<int>(r)),
                                    FormatSeconds(rank.busy),
                                    FormatSeconds(std::max(0.0, shown.pipeline - rank.busy)),
                                    FormatSeconds(rank.reduce),
                                    FormatSeconds(rank.update),
                                    FormatBytes(static_cast<double>(rank.memory.total())),
                                    FormatBytes(rank.sent_messages),
                                    FormatBytes(rank.sent_replicas),
                                    FormatBytes(rank.sent_model)};
    if (!paces.most.empty()) row.push_back(Printf("%.3g", 1 / paces.most[r]));
    table.Add(std::move(row));
  }
  text += table.Render();
  text += Str("\nstep ", FormatSeconds(shown.step), ", of which ", FormatSeconds(shown.pipeline),
              " until the last backward; bubble ", FormatShare(shown.bubble),
              "; the fullest rank has ", FormatBytes(static_cast<double>(shown.memory)), "\n");
  if (run.slowness.empty()) return text;
  return text + WhatIsSlow(run) +
         Str("without that a step takes ", FormatSeconds(run.usual.step), ": ",
             FormatShare(run.slowed.step / run.usual.step - 1), " are lost\n");
}

Value RunRecord(const SimulatedRun& run) {
  Value record;
  record.Set("cluster", run.cluster.Describe()).Set("ranks", run.candidate.ranks());
  record.Set("fits", FullestRank(run) < 0);
  record.Set("usual", RecordOf(run.usual));
  if (!run.slowness.empty()) record.Set("slowed", RecordOf(run.slowed));
  return record;
}

}  // namespace strata::search
