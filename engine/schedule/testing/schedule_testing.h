// Helpers that the tests of this package share. Includes those for golden files and error texts.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/schedule/program.h"

namespace strata::schedule::testing {

/// A row in the form of the drawings above the generators: "F0 . B0". Stages are left out unless
/// `with_stages`.
inline std::string Drawn(const std::vector<Action>& row, bool with_stages = false) {
  std::vector<std::string> cells;
  for (const Action& action : row) {
    const std::string text = ToText(action);
    const size_t kind = with_stages ? 0 : text.find_first_not_of("0123456789");
    cells.push_back(text.empty() ? "." : text.substr(kind));
  }
  return Join(cells, " ");
}

inline std::vector<std::string> Drawn(const Program& program, bool with_stages = false) {
  std::vector<std::string> rows;
  for (const auto& row : program.rows) rows.push_back(Drawn(row, with_stages));
  return rows;
}

/// Makes a program from rows such as "0F0 . 0B0", with actions and idle cells between spaces.
inline Program FromRows(const std::vector<std::string>& rows, const ParseOptions& options = {}) {
  std::vector<std::vector<std::string>> cells;
  for (const std::string& row : rows) {
    std::vector<std::string>& line = cells.emplace_back();
    for (const std::string& cell : Split(row, ' ')) {
      if (!cell.empty()) line.push_back(cell == "." ? "" : cell);
    }
  }
  return ParseProgram(cells, options);
}

/// The program of one entry of torch_pipelining.json.
inline Program FromTorch(const nlohmann::json& entry) {
  const std::string name = entry["schedule"];
  const bool is_v = name == "ScheduleZBVZeroBubble" || name == "ScheduleDualPipeV";
  const int ranks = entry["ranks"], per_rank = entry["stages_per_rank"];
  std::vector<std::vector<std::string>> cells;
  for (int r = 0; r < ranks; ++r) cells.push_back(entry["order"][std::to_string(r)]);
  return ParseProgram(cells,
                      {.name = name,
                       .stage_ranks = is_v ? VMap(ranks, per_rank) : LoopMap(ranks, per_rank),
                       .ranks = ranks,
                       .micro_batches = entry["micro_batches"]});
}

}  // namespace strata::schedule::testing
