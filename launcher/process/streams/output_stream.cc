#include "launcher/process/streams/output_stream.h"

#include <unistd.h>

#include <array>
#include <cerrno>

namespace strata::launcher {

void OutputStream::Read() {
  std::array<char, 1 << 16> buffer;
  const ssize_t count = ::read(fd.get(), buffer.data(), buffer.size());
  if (count < 0 && errno == EINTR) return;
  if (count > 0) return lines.Add({buffer.data(), static_cast<size_t>(count)});
  lines.Finish();
  fd.Close();
}

}  // namespace strata::launcher
