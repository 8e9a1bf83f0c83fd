#include "engine/schedule/program.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/schedule/size.h"

namespace strata::schedule {
namespace {

using Cells = std::vector<std::vector<std::string>>;

std::string Unquoted(std::string_view cell) {
  cell = Trim(cell);
  if (cell.size() >= 2 && cell.front() == '"' && cell.back() == '"') {
    cell = cell.substr(1, cell.size() - 2);
  }
  return std::string(Trim(cell));
}

Cells SplitCsv(std::string_view csv) {
  Cells rows;
  for (const std::string& line : Split(csv, '\n')) {
    if (line.starts_with('#')) continue;
    std::vector<std::string>& row = rows.emplace_back();
    for (const std::string& cell : Split(line, ',')) row.push_back(Unquoted(cell));
  }
  const auto is_blank = [](const auto& row) { return row.size() == 1 && row[0].empty(); };
  while (!rows.empty() && is_blank(rows.back())) rows.pop_back();
  return rows;
}

Action ParseCell(const std::string& cell, size_t row, size_t column) {
  try {
    return ParseAction(cell);
  } catch (const ConfigError& error) {
    throw ConfigError(Str("row ", row, ", column ", column, ": ", error.what()));
  }
}

// Maps each stage to the first rank whose row names it. A stage that no row names is mapped to rank
// 0, where the checker reports it as missing.
std::vector<int> MapOf(const std::vector<std::vector<Action>>& rows) {
  std::vector<int> stage_ranks;
  for (int rank = 0; rank < static_cast<int>(rows.size()); ++rank) {
    for (const Action& action : rows[rank]) {
      for (const Action& part : ActionParts(action)) {
        if (part.stage < 0) continue;
        if (part.stage >= static_cast<int>(stage_ranks.size())) {
          stage_ranks.resize(part.stage + 1, -1);
        }
        if (stage_ranks[part.stage] < 0) stage_ranks[part.stage] = rank;
      }
    }
  }
  std::replace(stage_ranks.begin(), stage_ranks.end(), -1, 0);
  return stage_ranks;
}

template <class Visit>
void ForEachPart(const std::vector<std::vector<Action>>& rows, Visit visit) {
  for (const auto& row : rows) {
    for (const Action& action : row) {
      for (const Action& part : ActionParts(action)) visit(part);
    }
  }
}

bool IsBackward(Kind kind) {
  return GivesInputGrad(kind) || GivesWeightGrad(kind) || kind == Kind::kSendB ||
         kind == Kind::kRecvB;
}

void CheckOptionsFit(const ParseOptions& options, size_t lines) {
  if (options.micro_batches < 0) {
    throw ConfigError(Str("micro_batches must be at least 1, not ", options.micro_batches));
  }
  if (options.ranks != 0 && static_cast<size_t>(options.ranks) != lines) {
    throw ConfigError(Str("the program has ", Plural(static_cast<int64_t>(lines), "row"), " for ",
                          Plural(options.ranks, "rank"), "; expected one row per rank"));
  }
  for (int rank : options.stage_ranks) {
    if (rank < 0 || static_cast<size_t>(rank) >= lines) {
      throw ConfigError(Str("the stages are on ranks ", Join(options.stage_ranks, ", "),
                            " but the ", "program has ",
                            Plural(static_cast<int64_t>(lines), "row")));
    }
  }
}

std::string GridCell(const Action& action, bool with_stages) {
  if (action.kind == Kind::kIdle) return ".";
  return with_stages ? ToText(action) : ToShortText(action);
}

// The indices [begin, end) of the largest part of a row around `position` whose text fits `width`.
std::pair<int, int> Window(const std::vector<std::string>& cells, int position, int width) {
  int begin = std::max(position, 0), end = begin, used = 0;
  const int size = static_cast<int>(cells.size());
  const auto fits = [&](int i) { return used + static_cast<int>(cells[i].size()) + 1 <= width; };
  bool grown = true;
  while (grown) {
    grown = false;
    if (end < size && (end == begin || fits(end))) {
      used += static_cast<int>(cells[end++].size()) + 1;
      grown = true;
    }
    if (begin > 0 && fits(begin - 1)) {
      used += static_cast<int>(cells[--begin].size()) + 1;
      grown = true;
    }
  }
  return {begin, end};
}

}  // namespace

std::vector<int> StagesOfRank(const Program& program, int rank) {
  std::vector<int> stages;
  for (int s = 0; s < program.stages(); ++s) {
    if (program.stage_ranks[s] == rank) stages.push_back(s);
  }
  return stages;
}

bool Program::has_places() const {
  const bool has_ranks = std::all_of(stage_ranks.begin(), stage_ranks.end(),
                                     [&](int rank) { return rank >= 0 && rank < ranks(); });
  bool has_actions = true;
  ForEachPart(rows,
              [&](const Action& part) { has_actions &= part.kind == Kind::kIdle || has(part); });
  return has_ranks && has_actions && stages() > 0 && micro_batches > 0;
}

Program WithoutIdle(Program program) {
  for (auto& row : program.rows) {
    std::erase_if(row, [](const Action& action) { return action.kind == Kind::kIdle; });
  }
  return program;
}

int64_t CountActions(const Program& program) {
  int64_t count = 0;
  for (const auto& row : program.rows) count += static_cast<int64_t>(row.size());
  return count;
}

bool HasCommunication(const Program& program) {
  return std::any_of(program.rows.begin(), program.rows.end(), [](const auto& row) {
    return std::any_of(row.begin(), row.end(),
                       [](const Action& action) { return IsCommunication(action.kind); });
  });
}

bool AccumulatesInOrder(const Program& program) {
  // For each stage: the next micro-batch of B or I, of B or W, of F and of R.
  std::vector<int> input_grads(program.stages(), 0), weight_grads = input_grads,
                                                     forwards = input_grads, again = input_grads;
  bool in_order = true;
  ForEachPart(program.rows, [&](const Action& part) {
    const auto pass = [&](std::vector<int>& next) {
      in_order &= part.micro_batch >= next[part.stage];
      next[part.stage] = part.micro_batch + 1;
    };
    if (GivesInputGrad(part.kind)) pass(input_grads);
    if (GivesWeightGrad(part.kind)) pass(weight_grads);
    if (part.stage + 1 < program.stages()) return;
    if (part.kind == Kind::kForward) pass(forwards);
    if (part.kind == Kind::kRecompute) pass(again);
  });
  return in_order;
}

std::string ToCsv(const Program& program) {
  std::string csv;
  for (const auto& row : program.rows) csv += Join(row, ",") + '\n';
  return csv;
}

std::string ToGrid(const Program& program) {
  const bool with_stages = program.stages() > program.ranks();
  Cells cells;
  size_t width = 1;
  for (const auto& row : program.rows) {
    std::vector<std::string>& line = cells.emplace_back();
    for (const Action& action : row) {
      line.push_back(GridCell(action, with_stages));
      width = std::max(width, line.back().size());
    }
  }
  const size_t digits = Str(program.ranks() - 1).size();
  std::string grid;
  for (size_t r = 0; r < cells.size(); ++r) {
    for (std::string& cell : cells[r]) cell.resize(width, ' ');
    const std::string line =
        Str("rank ", std::string(digits - Str(r).size(), ' '), r, " | ", Join(cells[r], " "));
    grid += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return grid;
}

void CheckSize(int64_t stages, int64_t micro_batches) {
  if (stages * (stages + micro_batches) <= kMaxForwards) return;
  throw ConfigError(Str("a program of ", Plural(stages, "stage"), " and ",
                        FormatCount(micro_batches),
                        " micro-batches is too large; stages * (stages + micro-batches) may be ",
                        FormatCount(kMaxForwards)));
}

Program ParseProgram(const Cells& rows, const ParseOptions& options) {
  if (rows.empty()) throw ConfigError("the program has no rows; expected one row per rank");
  CheckOptionsFit(options, rows.size());
  Program program;
  program.name = options.name;
  program.rows.resize(rows.size());
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t c = 0; c < rows[r].size(); ++c) {
      program.rows[r].push_back(ParseCell(rows[r][c], r, c));
    }
  }
  program.stage_ranks = options.stage_ranks.empty() ? MapOf(program.rows) : options.stage_ranks;
  program.micro_batches = options.micro_batches;
  program.is_training = false;
  ForEachPart(program.rows, [&](const Action& part) {
    if (options.micro_batches == 0) {
      program.micro_batches = std::max(program.micro_batches, part.micro_batch + 1);
    }
    program.is_training |= IsBackward(part.kind);
  });
  CheckSize(program.stages(), program.micro_batches);
  return program;
}

Program ParseProgram(std::string_view csv, const ParseOptions& options) {
  return ParseProgram(SplitCsv(csv), options);
}

std::string ShowRow(std::span<const Action> row, int position, int width) {
  std::vector<std::string> cells;
  cells.reserve(row.size());
  for (const Action& action : row) {
    const bool is_marked = static_cast<int>(cells.size()) == position;
    const std::string text = action.kind == Kind::kIdle ? "." : ToText(action);
    cells.push_back(is_marked ? Str('[', text, ']') : text);
  }
  const auto [begin, end] = Window(cells, position, width);
  return Str(begin > 0 ? "... " : "", Join(std::span(cells).subspan(begin, end - begin), " "),
             end < static_cast<int>(cells.size()) ? " ..." : "");
}

}  // namespace strata::schedule
