#include "engine/schedule/checker.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/schedule/checks.h"
#include "engine/schedule/lifetimes.h"

namespace strata::schedule {
namespace {

const char* BufferName(Buffer buffer) {
  switch (buffer) {
    case Buffer::kInput:
      return "input";
    case Buffer::kOutput:
      return "output";
    case Buffer::kOutputGrad:
      return "output gradient";
    case Buffer::kInputGrad:
      return "input gradient";
  }
  return "";
}

}  // namespace

void CheckContext::Note(int rank, const std::string& why) const {
  if (!is_full()) result.problems.push_back({.rank = rank, .text = why});
}

void CheckContext::Refuse(int rank, int position, const std::string& why) const {
  if (is_full()) return;
  const auto& row = program.rows[rank];
  const std::string action = ToText(row[position]);
  result.problems.push_back({rank, position, action,
                             Str("rank ", rank, ", action ", position, ": ", action, " ", why,
                                 "\n  ", ShowRow(row, position))});
}

void CheckContext::Miss(int rank, const Action& action) const {
  if (is_full()) return;
  const auto& row = program.rows[rank];
  Action before = action;
  --before.micro_batch;
  const auto neighbour = std::find(row.begin(), row.end(), before);
  const bool has_neighbour = neighbour != row.end();
  const int shown = has_neighbour ? static_cast<int>(neighbour - row.begin()) : -1;
  result.problems.push_back(
      {rank, -1, ToText(action),
       Str("rank ", rank, ": ", action, " is missing", has_neighbour ? Str("; see ", before) : "",
           "\n  ", row.empty() ? "(nothing)" : ShowRow(row, shown))});
}

void CheckBuffers(const CheckContext& context) {
  const std::vector<int>& slots = context.options.stage_buffers;
  if (slots.empty()) return;  // StageBuffers() are enough by their definition
  for (const Overwrite& found : FindOverwrites(context.program, slots)) {
    context.Refuse(
        found.rank, found.position,
        Str("overwrites the ", BufferName(found.buffer), " of micro-batch ", found.old_micro_batch,
            " in slot ", found.slot, " of stage ", found.stage,
            ", which is still needed; the stage has ", Plural(slots[found.stage], "slot"),
            " and micro-batch m lives in slot m mod ", slots[found.stage]));
  }
}

std::string CheckResult::Report() const {
  std::vector<std::string> texts;
  for (const Problem& problem : problems) texts.push_back(problem.text);
  return Join(texts, "\n");
}

CheckResult Check(const Program& program, const CheckOptions& options) {
  CheckResult result;
  const CheckContext context{program, options, options.lowered || HasCommunication(program),
                             result};
  CheckRows(context);
  if (result.ok() && context.is_lowered) CheckLinks(context);
  if (result.ok()) CheckProgress(context);
  if (result.ok()) CheckBuffers(context);
  if (result.ok()) result.peak_activations = PeakActivations(program);
  return result;
}

void CheckOrThrow(const Program& program, const CheckOptions& options) {
  const CheckResult result = Check(program, options);
  if (!result.ok()) {
    throw ConfigError(Str("the program \"", program.name, "\" is wrong:\n", result.Report()));
  }
}

}  // namespace strata::schedule
