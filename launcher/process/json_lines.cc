#include "launcher/process/json_lines.h"

#include <unistd.h>

#include <array>
#include <cerrno>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata::launcher {
namespace {

constexpr size_t kLongest = size_t{64} << 20;

Value Parse(std::string_view line) {
  constexpr size_t kShown = 60;
  try {
    Value message = Value::FromJson(line);
    if (message.is_map() && message["type"].is_string()) return message;
  } catch (const ConfigError&) {
    // Below.
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
  size_t start = 0, searched = pending_.size();
  pending_.append(buffer.data(), static_cast<size_t>(count));
  for (size_t end; (end = pending_.find('\n', searched)) != std::string::npos;) {
    messages.push_back(Parse(std::string_view(pending_).substr(start, end - start)));
    start = searched = end + 1;
  }
  pending_.erase(0, start);
  if (pending_.size() > kLongest) throw WorldError("a message without an end");
  return true;
}

}  // namespace strata::launcher
