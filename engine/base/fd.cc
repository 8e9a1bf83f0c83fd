#include "engine/base/fd.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {
namespace {

constexpr std::string_view kDescriptors = "/proc/self/fd/";

Fd OpenToWrite(const std::string& path, int flags) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666));
  if (!fd.is_open()) ThrowErrno(Str("cannot write to ", path));
  return fd;
}

}  // namespace

void Fd::Close() {
  if (fd_ >= 0) ::close(Release());
}

void ThrowErrno(std::string_view what) {
  const int error = errno;
  throw WorldError(Str(what, ": ", std::strerror(error)));
}

void WriteAll(int fd, std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) ThrowErrno(Str("cannot write to ", name));
    text.remove_prefix(static_cast<size_t>(written));
  }
}

void WriteFile(const std::string& path, std::string_view text) {
  WriteAll(OpenToWrite(path, O_TRUNC).get(), text, path);
}

void CheckWritable(const std::string& path) { OpenToWrite(path, 0); }

std::string PathOfDescriptor(int fd) { return Str(kDescriptors, fd); }

bool IsPathOfDescriptor(std::string_view path) { return path.starts_with(kDescriptors); }

bool IsTerminal(int fd) {
  const char* const type = std::getenv("TERM");
  return ::isatty(fd) == 1 && type != nullptr && std::string_view(type) != "dumb";
}

bool ShowsColors(int fd) {
  const char* const unwanted = std::getenv("NO_COLOR");
  return IsTerminal(fd) && (unwanted == nullptr || *unwanted == '\0');
}

}  // namespace strata
