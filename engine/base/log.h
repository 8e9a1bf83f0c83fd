// Logging for developers (glog behind it). What users read (training lines, errors) is printed by
// the launcher, not logged. This header includes neither glog nor torch: both define LOG and CHECK.
#pragma once

#include <sstream>
#include <string>

namespace strata {

enum class LogLevel { kInfo, kWarning, kError };

/// Starts glog: messages below `minimum` are dropped, the rest goes to stderr, each line with
/// `label` ("rank 3") in front. Without this call only warnings and errors are shown. The last
/// call holds.
void InitLogging(LogLevel minimum, const std::string& label);

namespace internal {

/// One log message; the destructor hands it to glog.
class LogMessage {
 public:
  LogMessage(LogLevel level, const char* file, int line)
      : level_(level), file_(file), line_(line) {}
  ~LogMessage();
  std::ostream& stream() { return stream_; }

 private:
  LogLevel level_;
  const char* file_;
  int line_;
  std::ostringstream stream_;
};

}  // namespace internal
}  // namespace strata

/// `STRATA_LOG(kWarning) << "...";`
#define STRATA_LOG(level) \
  ::strata::internal::LogMessage(::strata::LogLevel::level, __FILE__, __LINE__).stream()
