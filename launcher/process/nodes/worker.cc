#include "launcher/process/nodes/worker.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "launcher/process/nodes/rank_process.h"
#include "launcher/process/nodes/signals.h"
#include "launcher/process/streams/json_lines.h"

namespace strata::launcher {
namespace {

Value Typed(const char* type) { return Value::MakeMap({{"type", Value(type)}}); }

/// Passes the node's reports on to the launcher, and the launcher's requests on to the node.
class Worker : public NodeListener {
 public:
  explicit Worker(JsonLines& launcher) : launcher_(launcher) {}

  int Run(JobProgram& program, int store_port) {
    Say(Typed("hello").Set("time", MonotonicSeconds()).Set("store_port", store_port));
    node_ = MakeLocalNode(program, *this, [this] {
      signals_.Restore();
      launcher_.CloseInput();
      launcher_.CloseOutput();
    });
    node_->Start();
    while (has_children_ || !node_->Finished()) WaitForEvents();
    return code_;
  }

  void OnRankStarted(int rank, int world_size, const std::string& role) override {
    Say(Typed("started").Set("rank", rank).Set("ranks", world_size).Set("role", role));
  }
  void OnRankExited(int rank, int status) override {
    Say(Typed("exited").Set("rank", rank).Set("status", status));
  }
  void OnMessage(int from, const Value& body) override {
    Say(Typed("said").Set("from", from).Set("body", body));
  }
  void OnOutput(int rank, bool is_error, std::string_view line) override {
    Say(Typed("output").Set("rank", rank).Set("is_error", is_error).Set("text", line));
  }
  void OnLost(int exit_code, const std::string& cause) override {
    Say(Typed("lost").Set("code", exit_code).Set("cause", cause));
  }

 private:
  void Say(const Value& message) {
    if (!launcher_.Send(message)) End();
  }

  /// Ends all processes, since the launcher is gone or ends the worker.
  void End() {
    code_ = 1;
    if (node_) node_->KillAll();
  }

  void WaitForEvents() {
    std::vector<Source> sources = node_->Sources();
    sources.push_back({signals_.fd(), [this] { ReadSignals(); }});
    if (launcher_.is_open()) sources.push_back({launcher_.fd(), [this] { ReadLauncher(); }});
    std::vector<pollfd> polled;
    for (const Source& source : sources) polled.push_back({source.fd, POLLIN, 0});
    if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) ThrowErrno("poll");
    for (size_t i = 0; i < sources.size(); ++i) {
      if (polled[i].revents != 0) sources[i].read();
    }
  }

  void ReadSignals() {
    while (int signal = signals_.Next()) signal == SIGCHLD ? Reap() : End();
  }

  void Reap() {
    int status;
    pid_t pid;
    while ((pid = ::waitpid(-1, &status, WNOHANG)) > 0) node_->OnChildEnded(pid, status);
    has_children_ = pid == 0;
  }

  void ReadLauncher() {
    std::vector<Value> messages;
    if (!launcher_.Receive(messages)) {
      launcher_.CloseInput();
      return End();
    }
    for (const Value& message : messages) {
      const int rank = static_cast<int>(message["rank"].as_int());
      if (message["type"] == Value(kStop)) {
        node_->Stop(rank);
      } else {
        node_->Abort(rank, message["why"].as_string());
      }
    }
  }

  JsonLines& launcher_;
  SignalQueue signals_;
  std::unique_ptr<Node> node_;
  bool has_children_ = true;
  int code_ = 0;
};

/// The launcher's first message, the job; null when the launcher ends before it sends one.
Value ReadJob(JsonLines& launcher) {
  std::vector<Value> messages;
  while (messages.empty()) {
    if (!launcher.Receive(messages)) return Value();
  }
  return messages[0];
}

Value ErrorOf(const char* kind, const Error& error) {
  Value body = Typed(kError);
  body.Set("kind", kind).Set("text", error.what()).Set("time", MonotonicSeconds());
  return Typed("said").Set("from", JobListener::kStarter).Set("body", body);
}

}  // namespace

int RunWorker(const MakeProgram& make_program) {
  ::signal(SIGPIPE, SIG_IGN);
  JsonLines launcher(Fd(::dup(STDIN_FILENO)), Fd(::dup(STDOUT_FILENO)));
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
