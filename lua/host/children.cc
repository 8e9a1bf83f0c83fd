// InChildren(): forks, reads the first child's pipe, and waits for all children.
#include "lua/host/children.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/fd.h"
#include "engine/base/text.h"

namespace strata::lua {
namespace {

/// Reads until the end of the file. Returns nothing if that does not come within `seconds` (0 = no
/// limit).
std::optional<std::string> ReadAll(int fd, int seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  std::string text;
  char buffer[4096];
  for (;;) {
    const std::chrono::duration<double, std::milli> left = end - std::chrono::steady_clock::now();
    pollfd waits = {.fd = fd, .events = POLLIN, .revents = 0};
    const int ready =
        ::poll(&waits, 1, seconds == 0 ? -1 : std::max(0, static_cast<int>(left.count())));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return std::nullopt;
    const ssize_t count = ::read(fd, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer, static_cast<size_t>(count));
  }
}

/// Runs the work in a child and ends it; child 0 writes its answer to the pipe.
[[noreturn]] void RunChild(int rank, const ChildsWork& work, int writer, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // without the parent the answer is useless
  if (::getppid() != parent) ::_exit(1);
  const std::string answer = work(rank);
  try {
    if (rank == 0) WriteAll(writer, answer, "the pipe");
  } catch (const WorldError&) {
    ::_exit(1);
  }
  ::_exit(0);
}

/// Waits for all children and returns the exit status of the first one; 0 if there are none.
int WaitForAll(const std::vector<pid_t>& children) {
  int first_status = 0;
  for (const pid_t child : children) {
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (child == children.front()) first_status = status;
  }
  return first_status;
}

std::string HowItEnded(int status) {
  if (!WIFSIGNALED(status)) return "without an answer";
  return Str("by signal ", WTERMSIG(status), " (", ::strsignal(WTERMSIG(status)), ")");
}

}  // namespace

std::string InChildren(int count, const std::string& what, int seconds, const ChildsWork& work,
                       pid_t (*fork)()) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) ThrowErrno("cannot make a pipe");
  Fd reader(ends[0]), writer(ends[1]);
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  std::vector<pid_t> children;
  int error = 0;
  while (error == 0 && std::ssize(children) < count) {
    const pid_t child = fork();
    if (child < 0) error = errno;
    if (child > 0) children.push_back(child);
    if (child != 0) continue;
    reader.Close();
    RunChild(static_cast<int>(children.size()), work, writer.get(), parent);
  }
  writer.Close();
  // If a fork failed, the other children would wait for the missing one, so all are killed.
  const std::optional<std::string> text =
      error == 0 ? ReadAll(reader.get(), seconds) : std::optional<std::string>();
  if (!text) {
    for (const pid_t child : children) ::kill(child, SIGKILL);
  }
  const int status = WaitForAll(children);
  if (error != 0) throw WorldError(Str("cannot start ", what, ": ", std::strerror(error)));
  if (!text) throw WorldError(Str(what, " gave no answer within ", FormatSeconds(seconds)));
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || text->empty()) {
    throw WorldError(Str(what, " ended ", HowItEnded(status)));
  }
  return *text;
}

}  // namespace strata::lua
