#include "launcher/process/streams/lines.h"

namespace strata::launcher {

void LineSplitter::Add(std::string_view bytes) {
  pending_.append(bytes);
  const std::string_view all = pending_;
  size_t start = 0;
  for (size_t end; (end = all.find('\n', start)) != std::string_view::npos; start = end + 1) {
    sink_(all.substr(start, end - start));
  }
  pending_.erase(0, start);
  if (pending_.size() > kLongest) Finish();
}

void LineSplitter::Finish() {
  if (!pending_.empty()) sink_(pending_);
  pending_.clear();
}

}  // namespace strata::launcher
