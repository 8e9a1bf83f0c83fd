// Overrides: job keys given over the script's own, by flags or by job:plan{...}. A map as a job's
// keys are, but in one form only: tables are maps of tables, named in full.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/value.h"
#include "engine/spec/fields.h"

namespace strata {

/// The field behind a path: "steps", "optimizer.lr", "data.train.path", or bare "pipe" and
/// "micro_batches"; null when there is none. '-' counts as '_'. `layers` and `loss` have none: only
/// a script can say them.
const Field* FindJobField(std::string_view path);
/// All paths that FindJobField knows, bare ones included: for nearest names and completion.
std::vector<std::string> JobFieldPaths();

/// Puts `value` at a path of `overrides` ("pipe" means parallel.pipe; "data" with a number means
/// parallel.data, since a source is never a number). Throws ConfigError for an unknown path, with
/// the nearest, and for a value that does not fit. `subject` and `where` as in Call.
void SetOverride(Value& overrides, std::string_view path, const Value& value,
                 const std::string& subject, const std::string& where);

/// The overrides that a table such as job:plan{pipe=2, ["optimizer.lr"]=0.1} asks for.
Value Overrides(const Value& keys, const std::string& where);

}  // namespace strata
