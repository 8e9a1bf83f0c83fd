#include "engine/base/log.h"

#include <glog/logging.h>

#include <iostream>

#include "engine/base/text.h"

namespace strata {
namespace {

LogLevel minimum_level = LogLevel::kWarning;
std::string label_prefix;  // "rank 3: " or empty

google::LogSeverity Severity(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return google::GLOG_INFO;
    case LogLevel::kWarning:
      return google::GLOG_WARNING;
    case LogLevel::kError:
      return google::GLOG_ERROR;
  }
  return google::GLOG_ERROR;
}

}  // namespace

void InitLogging(LogLevel minimum, const std::string& label) {
  minimum_level = minimum;
  label_prefix = label.empty() ? "" : label + ": ";
  FLAGS_logtostderr = true;
  if (!google::IsGoogleLoggingInitialized()) google::InitGoogleLogging("strata");
}

namespace internal {

LogMessage::~LogMessage() {
  if (level_ < minimum_level) return;
  if (!google::IsGoogleLoggingInitialized()) {
    const char* const kind = level_ == LogLevel::kError ? "error" : "warning";
    std::cerr << Str(kind, ": ", stream_.str(),
                     // One write per line keeps the lines of several ranks apart.
                     "\n");
    return;
  }
  google::LogMessage(file_, line_, Severity(level_)).stream() << label_prefix << stream_.str();
}

}  // namespace internal
}  // namespace strata
