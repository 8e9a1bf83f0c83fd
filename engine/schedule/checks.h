// The single proofs of the checker. Private to the package; checker.h says what each proves.
#pragma once

#include <string>

#include "engine/schedule/checker.h"
#include "engine/schedule/program.h"

namespace strata::schedule {

/// The input and the result of a check, which all proofs share.
struct CheckContext {
  const Program& program;
  const CheckOptions& options;
  const bool is_lowered;
  CheckResult& result;

  bool is_full() const { return result.problems.size() >= CheckResult::kMaxProblems; }
  /// Notes a problem of a whole row, or of the whole program if `rank` is -1; `why` is a sentence.
  void Note(int rank, const std::string& why) const;
  /// Notes a problem of the action at `position` of rank `rank`'s row; `why` continues a sentence
  /// whose subject is the action.
  void Refuse(int rank, int position, const std::string& why) const;
  /// Notes that `action` is missing from the row of rank `rank`.
  void Miss(int rank, const Action& action) const;
};

/// Proofs 1, 2, 3 and 7, which look at each row by itself.
void CheckRows(const CheckContext& context);
/// Proof 4: links. REQUIRES: CheckRows() found nothing.
void CheckLinks(const CheckContext& context);
/// Proof 5: progress. REQUIRES: CheckRows() and CheckLinks() found nothing.
void CheckProgress(const CheckContext& context);
/// Proof 6: buffers. REQUIRES: CheckRows() found nothing.
void CheckBuffers(const CheckContext& context);

}  // namespace strata::schedule
