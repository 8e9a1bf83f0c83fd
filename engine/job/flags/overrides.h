// Overrides: job keys that take precedence over the script's own. They come from flags or from
// job:plan{...}. They form a map like a job's keys, but in one form only: tables are maps, and
// names are written in full.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/fields/fields.h"
#include "engine/base/value.h"

namespace strata {

/// The field at a path: "steps", "optimizer.lr", "data.train.path", or a short form such as "pipe"
/// and "micro_batches". Null if there is none. '-' equals '_'. `layers` and `loss` have no path,
/// since only a script can give them.
const Field* FindJobField(std::string_view path);
/// All paths that FindJobField() knows, with short forms; for suggestions and completion.
std::vector<std::string> JobFieldPaths();

/// The hint that errors append for an unknown key: `; did you mean "optimizer.lr"?` if other
/// engines call our key so, otherwise DidYouMean() of the candidates.
std::string KeyHint(std::string_view name, std::span<const std::string> candidates,
                    size_t list_at_most = 12);

/// Puts `value` into `overrides` at a path. "pipe" means parallel.pipe. "data" with a number means
/// parallel.data, since a data source is never a number. A table key that is set to null or "none"
/// becomes {"none"}, and its earlier overrides are dropped. `subject` and `where` are for errors,
/// as in Call (fields.h). Throws ConfigError for a value that does not fit, and for an unknown path
/// with the nearest one.
void SetOverride(Value& overrides, std::string_view path, const Value& value,
                 const std::string& subject, const std::string& where);

/// The overrides in a table such as that of job:plan{pipe=2, ["optimizer.lr"]=0.1}.
Value Overrides(const Value& keys, const std::string& where);

}  // namespace strata
