#include "engine/base/fields/checked_map.h"

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {

Value CheckedMap(const FieldTable& fields, const Value& value, const std::string& subject,
                 const std::string& noun) {
  if (!value.is_map()) {
    throw ConfigError(Str(subject, ": expected a map, got ", value.Describe()));
  }
  Call call;
  call.subject = subject;
  call.noun = noun;
  call.named = value.as_map();
  return Canonicalize(fields, call);
}

}  // namespace strata
