// Helpers for tests that run the strata binary and look at its processes.
#pragma once

#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "launcher/process/child.h"

namespace strata::launcher {

inline constexpr const char* kTiny = "launcher/testdata/tiny.lua";

inline std::vector<std::string> StrataCommand(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "launcher/strata");
  return arguments;
}

/// The end of a command.
struct Ended {
  int code;
  std::string text;  ///< standard output and standard error together
};

/// Runs `strata ARGUMENTS` until it ends; `input` is its standard input.
inline Ended Strata(std::vector<std::string> arguments, const std::string& input = "") {
  Child child(StrataCommand(std::move(arguments)), input);
  std::string text = child.Text();
  return {child.Wait(), std::move(text)};
}

inline std::string ReadFile(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// The state of a process, from /proc/PID/stat.
struct ProcessState {
  char state = '?';  ///< 'R' runs, 'S' sleeps, 'T' is stopped
  pid_t parent = 0;
};
inline ProcessState StateOf(const std::string& pid) {
  const std::string stat = ReadFile("/proc/" + pid + "/stat");
  ProcessState process;
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return process;
  std::stringstream(stat.substr(name_end + 1)) >> process.state >> process.parent;
  return process;
}

/// The processes whose parent is `parent`, in the order of their start.
inline std::vector<pid_t> ChildrenOf(pid_t parent) {
  std::vector<pid_t> pids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (StateOf(name).parent == parent) pids.push_back(std::stoi(name));
  }
  std::sort(pids.begin(), pids.end());
  return pids;
}

/// Stops a process (SIGSTOP), and returns when it has stopped.
inline void StopAndWait(pid_t pid) {
  ::kill(pid, SIGSTOP);
  while (StateOf(std::to_string(pid)).state != 'T') ::sched_yield();
}

/// A training of two rank processes that never ends. The constructor returns when it has begun.
class LongTraining : public Child {
 public:
  LongTraining()
      : Child(StrataCommand(
            {"train", kTiny, "--transport=gloo", "--steps=100000000", "--print_every=1000000"})) {
    for (std::string line = Line(); line.find("loss") == std::string::npos; line = Line()) {
      if (line.empty()) return;
    }
    const std::vector<pid_t> children = ChildrenOf(pid());
    if (children.size() != 1) return;
    starter = children[0];
    // Rank 0 of the fake engine does not wait for rank 1, which may not have been started yet.
    while (ranks.size() < 2 && StateOf(std::to_string(starter)).parent == pid()) {
      ::sched_yield();
      ranks = ChildrenOf(starter);
    }
  }

  /// Waits until it ends and returns the cause that it shows.
  std::string Cause() {
    std::string text = Text();
    const size_t at = text.find("strata: ");
    return at == std::string::npos ? "no cause in: " + text : text.substr(at);
  }

  pid_t starter = 0;
  std::vector<pid_t> ranks;
};

}  // namespace strata::launcher
