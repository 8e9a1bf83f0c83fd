// The plan tells which ranks use a tie. Every holder gathers the gradients of all uses and adds
// them in order, so all holders compute the same sum; for u uses each receives u gradients.
#include "engine/runtime/update/tie_table.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <set>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/base/value.h"
#include "engine/runtime/update/reductions.h"

namespace strata {
namespace {

/// True if several layers train the tie's tensors.
bool IsTrained(const TiePlan& tie) { return !tie.frozen && tie.layers.size() >= 2; }

/// True if a stage of this rank uses the tie.
bool IsHere(const TiePlan& tie, const std::vector<Stage*>& stages) {
  return std::ranges::any_of(tie.stages, [&](int stage) { return stages[stage] != nullptr; });
}

}  // namespace

std::vector<int> TieTable::Holders(const TiePlan& tie, const Plan& plan,
                                   const std::vector<int>& pipe) {
  std::vector<int> ranks;
  for (const int stage : tie.stages) {
    const int rank = pipe[plan.stages[stage].rank];
    if (std::ranges::find(ranks, rank) == ranks.end()) ranks.push_back(rank);
  }
  if (tie.frozen) ranks.resize(1);
  return ranks;
}

TieTable::TieTable(const Plan& plan, const std::vector<Stage*>& stages,
                   const std::vector<int>& pipe, Transport& transport)
    : transport_(transport), has_ties_(std::ranges::any_of(plan.ties, IsTrained)) {
  for (const TiePlan& tie : plan.ties) {
    if (!IsTrained(tie) || !IsHere(tie, stages)) continue;
    for (int i = 0; i < tie.tensors; ++i) Add(tie, i, plan, stages, pipe, transport);
  }
}

void TieTable::Add(const TiePlan& tie, int tensor, const Plan& plan,
                   const std::vector<Stage*>& stages, const std::vector<int>& pipe,
                   Transport& transport) {
  Shared& shared = shared_.emplace_back();
  shared.key = tie.key;
  const std::string name = TieName(tie.key, tensor);
  shared.id = Digest(name);
  const std::vector<int> holders = shared.holders = Holders(tie, plan, pipe);
  if (holders.size() > 1) {
    shared.group = transport.FindGroup(GroupName(tie));
    const bool have_moved = !shared.group || shared.group->spec().ranks != holders;
    if (have_moved) shared.group = transport.FindGroup(std::string(kPipeAxis));
    STRATA_CHECK(shared.group) << "no group of the ranks that hold " << name;
  }
  for (size_t use = 0; use < tie.layers.size(); ++use) {
    const int rank = pipe[plan.stages[tie.stages[use]].rank];
    shared.places.push_back(static_cast<int>(std::ranges::find(holders, rank) - holders.begin()));
    Stage* stage = stages[tie.stages[use]];
    if (!stage) continue;
    const auto& parameters = stage->parameters().parameters();
    const auto own = std::ranges::find_if(parameters, [&](const PlacedParameter& parameter) {
      return parameter.tie == name && parameter.layer == tie.layers[use];
    });
    STRATA_CHECK(own != parameters.end()) << name << " in layer " << tie.layers[use];
    shared.uses.push_back(own->gradient);
    if (own->buffer < 0) continue;
    shared.reduced.push_back(own->gradient);
    shared.copies.push_back(own->value);
  }
}

void TieTable::Reduce(Progress& progress) {
  for (const Shared& shared : shared_) {
    if (shared.group) progress.WaitFor(&reduces_, &shared.group->awaited());
    for (const at::Tensor& gradient : shared.uses) NeedZeros(gradient);
    const at::Tensor sum = Sum(shared);
    for (const at::Tensor& gradient : shared.reduced) {
      if (gradient.const_data_ptr() != sum.const_data_ptr()) gradient.view(-1).copy_(sum);
    }
  }
  progress.Compute();
}

/// Gathers the gradients of all uses and adds them in order. The sum is made in place, because a
/// tied table of words is the largest tensor of many models.
at::Tensor TieTable::Sum(const Shared& shared) {
  std::vector<at::Tensor> own;
  for (const at::Tensor& use : shared.uses) own.push_back(use.view(-1));
  const std::vector<at::Tensor> uses = shared.group ? Gather(shared, own) : own;
  for (size_t use = 1; use < uses.size(); ++use) uses[0].add_(uses[use]);
  return uses[0];
}

std::vector<at::Tensor> TieTable::Gather(const Shared& shared, const std::vector<at::Tensor>& own) {
  const int64_t elements = own.front().numel();
  std::vector<int64_t> bounds = {0};
  for (int place = 0; place < static_cast<int>(shared.holders.size()); ++place) {
    bounds.push_back(bounds.back() + elements * std::ranges::count(shared.places, place));
  }
  const at::Tensor mine = own.size() == 1 ? own[0] : at::cat(own);
  const at::Tensor all = at::empty({bounds.back()}, mine.options());
  Gather(shared, mine, all, bounds);
  std::vector<at::Tensor> uses;
  // bounds[place]: where the next use of that holder begins.
  for (const int place : shared.places) {
    uses.push_back(all.narrow(0, bounds[place], elements));
    bounds[place] += elements;
  }
  return uses;
}

/// After layers have moved, the holders may be other ranks than those for which a group was opened.
/// Then they exchange messages pair by pair, in an order that cannot deadlock.
void TieTable::Gather(const Shared& shared, const at::Tensor& mine, const at::Tensor& all,
                      const std::vector<int64_t>& bounds) {
  Group& group = *shared.group;
  if (group.spec().ranks == shared.holders) {
    return group.Run(
        {.kind = Collective::Kind::kAllGather, .input = mine, .output = all, .bounds = bounds});
  }
  const auto of = [&](int place) {
    return all.narrow(0, bounds[place], bounds[place + 1] - bounds[place]);
  };
  const auto place_of = [&](int holder) {
    return static_cast<int>(std::ranges::find(group.spec().ranks, shared.holders[holder]) -
                            group.spec().ranks.begin());
  };
  const int holders = static_cast<int>(shared.holders.size());
  for (int a = 0; a < holders; ++a) {
    for (int b = a + 1; b < holders; ++b) {
      const bool is_a = place_of(a) == group.place();
      if (!is_a && place_of(b) != group.place()) continue;
      const int other = is_a ? b : a;
      if (is_a) group.Send(mine, place_of(other));
      group.Recv(of(other), place_of(other));
      if (!is_a) group.Send(mine, place_of(other));
      of(is_a ? a : b).copy_(mine);
    }
  }
}

/// Compares digests of the copies of each shared tensor. A rank sends one digest per tensor, or
/// several if its own copies differ. All ranks exchange them over the host.
void TieTable::Check(Progress& progress) const {
  if (!has_ties_) return;
  std::string own;
  for (const Shared& shared : shared_) {
    std::vector<std::string> digests;
    for (const at::Tensor& copy : shared.copies) digests.push_back(BitDigest(copy));
    const auto others = std::ranges::unique(digests);
    digests.erase(others.begin(), others.end());
    own += Str(shared.id, " ", Join(digests, " and "), "\n");
  }
  progress.WaitForAll();
  const std::vector<std::string> all = transport_.Gather(own);
  progress.Compute();
  for (const Shared& shared : shared_) Check(shared, all);
}

void TieTable::Check(const Shared& shared, const std::vector<std::string>& all) const {
  const std::vector<int>& ranks = shared.holders;
  std::vector<std::string> seen;
  std::set<std::string> different;
  for (const int rank : ranks) {
    for (const std::string& line : Split(all[rank], '\n')) {
      if (!line.starts_with(shared.id + " ")) continue;
      const std::string digests = line.substr(shared.id.size() + 1);
      different.insert(digests);
      seen.push_back(Str("rank ", rank, " has ", digests));
    }
  }
  if (different.size() == 1 && different.begin()->find(' ') == std::string::npos) return;
  throw WorldError(Str("the copies of strata.tied{\"", shared.key,
                       "\"} are no longer equal: ", Join(seen, ", "),
                       " (a layer changes the tensor in place, or memory is damaged)"));
}

}  // namespace strata
