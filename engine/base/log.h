// Logging for developers, by glog. The launcher prints what users read (training lines, errors)
// itself. But in a process that has not called InitLogging(), warnings and errors are printed in
// the form for users. This header includes neither glog nor torch, since both define LOG and CHECK.
#pragma once

#include <sstream>
#include <string>

namespace strata {

enum class LogLevel { kInfo, kWarning, kError };

/// Starts glog. Messages below `minimum` are dropped; the others go to stderr, each with `label`
/// ("rank 3") in front. Without this call warnings and errors go to stderr in the form for users,
/// "warning: TEXT", and messages of level kInfo are dropped. A later call replaces the minimum and
/// the label of an earlier one.
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
