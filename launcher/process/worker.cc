// RunWorker(): a `strata worker`, which connects the launcher on another machine to the node here.
#include "launcher/process/worker.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "launcher/process/channel.h"
#include "launcher/process/pipes.h"
#include "launcher/process/rank_process.h"
#include "launcher/process/signals.h"

namespace strata::launcher {
namespace {

/// Passes the node's reports on to the launcher, and the launcher's requests on to the node.
class Worker : public NodeListener {
 public:
  explicit Worker(Channel& launcher) : launcher_(launcher) { launcher_.StopWaiting(); }

  int Run(JobProgram& program, int store_port) {
    Say(TypedMessage("hello").Set("time", MonotonicSeconds()).Set("store_port", store_port));
    node_ = MakeLocalNode(program, *this, [this] {
      signals_.Restore();
      launcher_.Close();
    });
    node_->Start();
    program.OnForked();
    while (!node_->Finished()) WaitForEvents();
    if (has_failed_) node_->TellFlight();
    // After the end of the input the launcher may be gone, so the remaining output is written for a
    // limited time only.
    for (double end = kNever; launcher_.waiting() > 0 && MonotonicSeconds() < end;) {
      if (!launcher_.is_open()) end = std::min(end, MonotonicSeconds() + kTellSeconds);
      WaitForEvents(end);
    }
    return code_;
  }

  void OnRankStarted(int rank, int world_size, const std::string& role) override {
    Say(TypedMessage("started").Set("rank", rank).Set("ranks", world_size).Set("role", role));
  }
  void OnRankExited(int rank, int status) override {
    has_failed_ |= status != 0;
    Say(TypedMessage("exited").Set("rank", rank).Set("status", status));
  }
  void OnMessage(int from, const Value& body) override {
    Say(TypedMessage("said").Set("from", from).Set("body", body));
  }
  void OnOutput(int rank, bool is_error, std::string_view line) override {
    Say(TypedMessage("output").Set("rank", rank).Set("is_error", is_error).Set("text", line));
  }
  void OnFlight(const Value& ranks) override { Say(TypedMessage(kFlight).Set("ranks", ranks)); }
  void OnLost(int exit_code, const std::string& cause) override {
    Say(TypedMessage("lost").Set("code", exit_code).Set("cause", cause));
  }

 private:
  void Say(const Value& message) {
    if (!launcher_.Send(message)) End();
  }

  /// Ends all processes, because the launcher is gone or ends the worker. In the second case the
  /// launcher still receives the flight records.
  void End() {
    code_ = 1;
    has_failed_ = true;
    if (node_) node_->KillAll();
  }

  void WaitForEvents(double deadline = kNever) {
    std::vector<Source> sources = {{signals_.fd(), [this] {
                                      while (signals_.Next() != 0) node_->Reap();
                                    }}};
    launcher_.AddTo(sources, [this] { ReadLauncher(); });
    // If the launcher does not read, because its own output is blocked, nothing more is read from
    // the node.
    if (launcher_.waiting() < kMostWaiting || code_ != 0) {
      for (Source& source : node_->Sources()) sources.push_back(std::move(source));
    }
    WaitFor(sources, deadline);
  }

  void ReadLauncher() {
    std::vector<Message> messages;
    if (!launcher_.Receive(messages)) {
      launcher_.CloseInput();
      return End();
    }
    for (const auto& [message, fds] : messages) {
      const std::string& type = message["type"].as_string();
      if (type == kFlight) {
        node_->TellFlight();
        continue;
      }
      const int rank = static_cast<int>(message["rank"].as_int());
      if (type == kAbort) {
        has_failed_ = true;
        node_->Abort(rank, message["why"].as_string());
      } else {
        node_->Ask(rank, type.c_str());
      }
    }
  }

  static constexpr size_t kMostWaiting = 1 << 20;  // bytes

  Channel& launcher_;
  SignalQueue signals_;
  std::unique_ptr<Node> node_;
  bool has_failed_ = false;  // a rank has failed, here or elsewhere
  int code_ = 0;
};

/// The launcher's first message, which is the job; null if the launcher ends before it sends one.
Value ReadJob(Channel& launcher) {
  std::vector<Message> messages;
  while (messages.empty()) {
    if (!launcher.Receive(messages)) return Value();
  }
  return messages[0].body;
}

Value ErrorOf(const char* kind, const Error& error) {
  return TypedMessage("said")
      .Set("from", JobListener::kStarter)
      .Set("body", ErrorMessage(kind, error.what()));
}

}  // namespace

int RunWorker(const MakeProgram& make_program) {
  RaiseDescriptorLimit();
  ::signal(SIGPIPE, SIG_IGN);
  LeaveSignalsToLauncher();  // the launcher ends this process by ending its input
  Channel launcher(Fd(::dup(STDIN_FILENO)), Fd(::dup(STDOUT_FILENO)));
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  try {
    const Value job = ReadJob(launcher);
    if (job.is_null()) return 1;
    int store_port = 0;
    const std::unique_ptr<JobProgram> program = make_program(job, store_port);
    return Worker(launcher).Run(*program, store_port);
  } catch (const ConfigError& error) {
    launcher.Send(ErrorOf("config", error));
    return 2;
  } catch (const Error& error) {
    launcher.Send(ErrorOf("world", error));
    return 1;
  }
}

}  // namespace strata::launcher
