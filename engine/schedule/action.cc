#include "engine/schedule/action.h"

#include <charconv>
#include <iterator>
#include <optional>
#include <ostream>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata::schedule {
namespace {

// Indexed by the value of Kind.
constexpr std::string_view kNames[] = {
    "",       "F",      "I",      "W",           "B",           "R",    "OVERLAP_F_B", "SEND_F",
    "RECV_F", "SEND_B", "RECV_B", "REDUCE_TIED", "REDUCE_GRAD", "STEP", "UNSHARD",     "RESHARD",
};
static_assert(std::size(kNames) == static_cast<size_t>(Kind::kReshard) + 1);

constexpr std::string_view kForms =
    "expected a stage, a kind and, for F I W B R SEND_F RECV_F SEND_B RECV_B, a micro-batch, "
    "such as 2F0, 1SEND_F3 or 2STEP, or (0F3;7B1)OVERLAP_F_B";

[[noreturn]] void Refuse(std::string_view text, const std::string& why) {
  throw ConfigError(Str('"', text, "\" is not an action: ", why, "; ", kForms));
}

std::optional<Kind> FindKind(std::string_view name) {
  for (size_t i = 1; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return static_cast<Kind>(i);
  }
  return std::nullopt;
}

Kind KindNamed(std::string_view name, std::string_view text) {
  if (name.empty()) Refuse(text, "the kind is missing");
  if (const auto kind = FindKind(name)) return *kind;
  const std::vector<std::string> names(std::begin(kNames) + 1, std::end(kNames));
  const std::string nearest = Nearest(name, names);
  Refuse(text, Str("there is no kind \"", name, '"',
                   nearest.empty() ? "" : Str("; did you mean \"", nearest, "\"?")));
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Removes the leading characters for which belongs(c) is true from `rest` and returns them.
template <class Predicate>
std::string_view TakeWhile(std::string_view& rest, Predicate belongs) {
  size_t n = 0;
  while (n < rest.size() && belongs(rest[n])) ++n;
  const std::string_view taken = rest.substr(0, n);
  rest.remove_prefix(n);
  return taken;
}

// Parses a number below `limit`; returns -1 if there are no digits.
int ParseNumber(std::string_view digits, int limit, std::string_view what, std::string_view text) {
  if (digits.empty()) return -1;
  int number = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (result.ec != std::errc() || number >= limit) {
    Refuse(text, Str("the ", what, " must be below ", FormatCount(limit)));
  }
  return number;
}

Action ParseSimple(std::string_view text) {
  std::string_view rest = text;
  const std::string_view stage = TakeWhile(rest, IsDigit);
  const std::string_view name = TakeWhile(rest, [](char c) { return !IsDigit(c); });
  const std::string_view micro_batch = TakeWhile(rest, IsDigit);
  if (stage.empty()) Refuse(text, "the stage is missing");
  const Kind kind = KindNamed(name, text);
  if (kind == Kind::kOverlap) Refuse(text, "an overlap stands behind its two actions");
  if (!rest.empty()) Refuse(text, Str("\"", rest, "\" is too much"));
  if (HasMicroBatch(kind) && micro_batch.empty()) Refuse(text, "the micro-batch is missing");
  if (!HasMicroBatch(kind) && !micro_batch.empty()) {
    Refuse(text, Str(name, " has no micro-batch"));
  }
  return MakeAction(ParseNumber(stage, Action::kMaxStages, "stage", text), kind,
                    ParseNumber(micro_batch, INT32_MAX, "micro-batch", text));
}

// Parses an overlap. REQUIRES: `text` starts with "(".
Action ParseOverlap(std::string_view text) {
  const size_t close = text.find(')');
  if (close == std::string_view::npos) Refuse(text, "\")\" is missing");
  if (KindNamed(Trim(text.substr(close + 1)), text) != Kind::kOverlap) {
    Refuse(text, "only OVERLAP_F_B has parts");
  }
  const std::vector<std::string> parts = Split(text.substr(1, close - 1), ';');
  if (parts.size() != 2) Refuse(text, "an overlap has two parts");
  const Action forward = ParseSimple(Trim(parts[0]));
  const Action backward = ParseSimple(Trim(parts[1]));
  if (forward.kind != Kind::kForward || !GivesInputGrad(backward.kind)) {
    Refuse(text, "the parts of an overlap are F, then B or I");
  }
  return MakeOverlap(forward, backward);
}

}  // namespace

Action MakeOverlap(const Action& forward, const Action& backward) {
  STRATA_CHECK(forward.kind == Kind::kForward && GivesInputGrad(backward.kind))
      << forward << " and " << backward << " do not overlap";
  Action action = forward;
  action.kind = Kind::kOverlap;
  action.backward_kind = backward.kind;
  action.backward_stage = backward.stage;
  action.backward_micro_batch = backward.micro_batch;
  return action;
}

std::string_view KindName(Kind kind) { return kNames[static_cast<size_t>(kind)]; }

std::ostream& operator<<(std::ostream& out, const Action& action) {
  if (action.kind == Kind::kIdle) return out;
  if (action.kind == Kind::kOverlap) {
    const ActionParts parts(action);
    return out << '(' << parts.begin()[0] << ';' << parts.begin()[1] << ')'
               << KindName(action.kind);
  }
  out << action.stage << KindName(action.kind);
  if (HasMicroBatch(action.kind)) out << action.micro_batch;
  return out;
}

std::string ToText(const Action& action) { return Str(action); }

std::string ToShortText(const Action& action) {
  const std::string text = ToText(action);
  const bool has_stage = action.kind != Kind::kIdle && action.kind != Kind::kOverlap;
  return has_stage ? text.substr(text.find_first_not_of("0123456789")) : text;
}

Action ParseAction(std::string_view text) {
  text = Trim(text);
  if (text.empty()) return {};
  return text.front() == '(' ? ParseOverlap(text) : ParseSimple(text);
}

}  // namespace strata::schedule
