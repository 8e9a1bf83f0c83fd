#include "launcher/process/streams/json_lines.h"

#include <unistd.h>

#include <array>
#include <cerrno>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata::launcher {
namespace {

Value Parse(std::string_view line) {
  constexpr size_t kShown = 60;
  try {
    Value message = Value::FromJson(line);
    if (message.is_map() && message["type"].is_string()) return message;
  } catch (const ConfigError&) {
    // The throw below reports it.
  }
  throw WorldError(Str("expected a message, got ", Value(line.substr(0, kShown)).ToJson()));
}

}  // namespace

bool JsonLines::Send(const Value& message) {
  if (!out_.is_open()) return false;
  try {
    WriteAll(out_.get(), message.ToJson() + "\n", "the other end");
    return true;
  } catch (const WorldError&) {
    return false;
  }
}

bool JsonLines::Receive(std::vector<Value>& messages) {
  std::array<char, 1 << 16> buffer;
  ssize_t count;
  do {
    count = ::read(in_.get(), buffer.data(), buffer.size());
  } while (count < 0 && errno == EINTR);
  if (count <= 0) return false;
  pending_.Add({buffer.data(), static_cast<size_t>(count)},
               [&](std::string_view line) { messages.push_back(Parse(line)); });
  return true;
}

}  // namespace strata::launcher
