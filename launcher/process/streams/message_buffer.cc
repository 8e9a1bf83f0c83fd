#include "launcher/process/streams/message_buffer.h"

#include "engine/base/error.h"

namespace strata::launcher {

void MessageBuffer::Add(std::string_view bytes,
                        const std::function<void(std::string_view line)>& take) {
  size_t start = 0, searched = pending_.size();
  pending_.append(bytes);
  for (size_t end; (end = pending_.find('\n', searched)) != std::string::npos;) {
    take(std::string_view(pending_).substr(start, end - start));
    start = searched = end + 1;
  }
  pending_.erase(0, start);
  if (pending_.size() > kLongest) throw WorldError("a message without an end");
}

}  // namespace strata::launcher
