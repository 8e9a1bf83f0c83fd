// Parses $STRATA_FAULT and sends the signal.
#include "engine/runtime/watch/fault.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {
namespace {

constexpr const char* kVariable = "STRATA_FAULT";

struct NamedSignal {
  const char* name;
  int number;
};
constexpr NamedSignal kSignals[] = {
    {"KILL", SIGKILL}, {"STOP", SIGSTOP}, {"SEGV", SIGSEGV}, {"TERM", SIGTERM}};

[[noreturn]] void Refuse(const std::string& text, const std::string& why) {
  throw ConfigError(Str("$", kVariable, "=", text, ": ", why,
                        "; it is RANK:ACTION or RANK:ACTION:SIGNAL, such as 1:0B3:STOP"));
}

int SignalOf(const std::string& text, const std::string& name) {
  std::vector<std::string> names;
  for (const NamedSignal& signal : kSignals) {
    if (name == signal.name) return signal.number;
    names.push_back(signal.name);
  }
  Refuse(text, Str("no signal \"", name, "\"", DidYouMean(name, names)));
}

}  // namespace

void Fault::Reach(const std::string& what) const {
  if (what != action) return;
  ::signal(signal, SIG_DFL);  // ranks ignore SIGTERM
  ::kill(::getpid(), signal);
}

Fault ParseFault(const std::string& text) {
  const std::vector<std::string> parts = Split(text, ':');
  if (parts.size() < 2 || parts.size() > 3) Refuse(text, "there are two parts, or three");
  Fault fault;
  const std::optional<int> rank = ParseWhole(parts[0]);
  if (!rank) Refuse(text, Str("\"", parts[0], "\" is no rank"));
  fault.rank = *rank;
  fault.action = parts[1];
  if (fault.action.empty()) Refuse(text, "there is no action");
  fault.signal = parts.size() == 3 ? SignalOf(text, parts[2]) : SIGKILL;
  return fault;
}

std::optional<Fault> FaultOf(int rank) {
  const char* text = std::getenv(kVariable);
  if (!text) return std::nullopt;
  const Fault fault = ParseFault(text);
  if (fault.rank != rank) return std::nullopt;
  return fault;
}

}  // namespace strata
