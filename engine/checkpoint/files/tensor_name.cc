// Names are written into JSON and shown on terminals, so they must be UTF-8 without control
// characters.
#include "engine/checkpoint/files/tensor_name.h"

#include <nlohmann/json.hpp>

#include "engine/base/text.h"
#include "engine/base/value_json.h"

namespace strata {
namespace {

constexpr size_t kLongest = 1000;

/// True if the text has one of ASCII's control characters, or one of the second set, U+0080 to
/// U+009F. In UTF-8 the latter are the byte 0xc2 and a byte from 0x80 to 0x9f.
bool HasControlCharacter(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto code = static_cast<unsigned char>(text[i]);
    if (code < 0x20 || code == 0x7f) return true;
    const bool in_second_set =
        code == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (in_second_set) return true;
  }
  return false;
}

}  // namespace

std::string TroubleWithTensorName(std::string_view name) {
  if (name.empty()) return "it is empty";
  if (name == "__metadata__") return "the format uses it itself";
  if (name.size() > kLongest) return Str("it is longer than ", kLongest, " bytes");
  if (!Utf8Trouble(name).empty()) return "it is not UTF-8";
  if (HasControlCharacter(name)) return "it has a control character";
  return "";
}

std::string QuotedName(std::string_view name) {
  if (TroubleWithTensorName(name).empty()) return Str('"', name, '"');
  constexpr size_t kShown = 80;
  return nlohmann::json(name.substr(0, kShown))
      .dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

}  // namespace strata
