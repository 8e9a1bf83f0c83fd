// The remote Node (node.h, worker.h): the processes of another machine, behind a `strata worker`
// that this process starts by ssh.
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "launcher/process/nodes/rank_process.h"
#include "launcher/process/nodes/verdict.h"
#include "launcher/process/nodes/worker.h"
#include "launcher/process/streams/json_lines.h"
#include "launcher/process/streams/output_stream.h"

namespace strata::launcher {
namespace {

constexpr int kCannotExec = 127;

bool IsReadable(int fd) {
  pollfd polled = {fd, POLLIN, 0};
  return ::poll(&polled, 1, 0) == 1;
}

class WorkerNode : public RemoteNode {
 public:
  WorkerNode(RemoteHost host, NodeListener& listener, std::function<void()> in_child,
             std::function<void(int)> on_store)
      : host_(std::move(host)),
        listener_(listener),
        in_child_(std::move(in_child)),
        on_store_(std::move(on_store)) {}
  ~WorkerNode() override {
    if (has_child_) ::kill(pid_, SIGKILL);
  }

  void Start() override {
    ::signal(SIGPIPE, SIG_IGN);  // if the command ends early, its exit code is reported instead
    Pipe in = MakePipe(), out = MakePipe(), err = MakePipe();
    const pid_t launcher = ::getpid();
    std::fflush(nullptr);
    pid_ = ::fork();
    if (pid_ < 0) ThrowErrno("cannot start a process");
    if (pid_ == 0) Exec(launcher, in.read.get(), out.write.get(), err.write.get());
    lines_ = JsonLines(std::move(out.read), std::move(in.write));
    errors_ = std::make_unique<OutputStream>(std::move(err.read), [this](std::string_view line) {
      last_error_ = line;
      listener_.OnOutput(JobListener::kStarter, true, Str("[", host_.name, "] ", line));
    });
  }

  void Begin(int store_port) override {
    Value job = host_.job;
    lines_.Send(job.Set("type", "job").Set("store_port", store_port));
  }

  std::vector<Source> Sources() override {
    std::vector<Source> sources;
    if (errors_->fd.is_open()) {
      sources.push_back({errors_->fd.get(), [this] { errors_->Read(); }});
    }
    if (lines_.is_open()) sources.push_back({lines_.fd(), [this] { ReadMessages(); }});
    return sources;
  }

  void OnChildEnded(pid_t pid, int status) override {
    if (pid != pid_) return;
    has_child_ = false;
    status_ = status;
    // All that the command wrote can be read now. The ends of the streams may never come, since
    // other processes may hold the descriptors (as ssh does with ControlPersist).
    while (errors_->fd.is_open() && IsReadable(errors_->fd.get())) errors_->Read();
    while (lines_.is_open() && IsReadable(lines_.fd())) ReadMessages();
    lines_.CloseInput();
    TellIfLost();
  }

  void Abort(int rank, const std::string& why) override {
    lines_.Send(Value::MakeMap({{"type", Value(kAbort)}, {"rank", rank}, {"why", Value(why)}}));
  }

  bool Stop(int rank) override {
    return running_.contains(rank) &&
           lines_.Send(Value::MakeMap({{"type", Value(kStop)}, {"rank", rank}}));
  }

  /// Closes the worker's input, upon which the worker ends all its processes.
  void KillAll() override {
    killed_ = true;
    lines_.CloseOutput();
    if (has_child_) ::kill(pid_, SIGTERM);
  }

  bool Finished() const override { return !lines_.is_open(); }

 private:
  [[noreturn]] void Exec(pid_t launcher, int in, int out, int err) {
    in_child_();
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != launcher) ::_exit(kCannotExec);
    ::setpgid(0, 0);  // the terminal's Ctrl-C reaches the launcher only
    ::dup2(in, STDIN_FILENO);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(err, STDERR_FILENO);
    ::signal(SIGPIPE, SIG_DFL);
    std::vector<char*> words;
    for (std::string& word : host_.command) words.push_back(word.data());
    words.push_back(nullptr);
    ::execvp(words[0], words.data());
    std::fprintf(stderr, "cannot start %s: %s\n", words[0], std::strerror(errno));
    std::fflush(stderr);
    ::_exit(kCannotExec);
  }

  void ReadMessages() {
    std::vector<Value> messages;
    bool open = true;
    try {
      open = lines_.Receive(messages);
    } catch (const WorldError& error) {
      lines_.CloseInput();
      throw WorldError(Str("the worker on ", host_.name, ": ", error.what()));
    }
    if (!open) {
      lines_.CloseInput();
      return TellIfLost();
    }
    for (const Value& message : messages) OnMessage(message);
  }

  void OnMessage(const Value& message) {
    const std::string& type = message["type"].as_string();
    const auto number = [&](const char* name) { return static_cast<int>(message[name].as_int()); };
    if (type == "hello") {
      clock_offset_ = MonotonicSeconds() - message["time"].as_double();
      if (number("store_port") > 0) on_store_(number("store_port"));
    } else if (type == "started") {
      running_.insert(number("rank"));
      listener_.OnRankStarted(number("rank"), number("ranks"), message["role"].as_string());
    } else if (type == "exited") {
      running_.erase(number("rank"));
      listener_.OnRankExited(number("rank"), number("status"));
    } else if (type == "output") {
      listener_.OnOutput(number("rank"), message["is_error"].as_bool(),
                         message["text"].as_string());
    } else if (type == "said") {
      OnSaid(number("from"), message["body"]);
    } else if (type == "lost") {
      told_ = true;
      listener_.OnLost(number("code"), Str(host_.name, ": ", message["cause"].as_string()));
    } else {
      throw WorldError(Str("the worker on ", host_.name, " says \"", type, "\""));
    }
  }

  /// Passes on a message. The time of an error is converted to this machine's clock.
  void OnSaid(int from, Value body) {
    if (from == JobListener::kStarter && body["type"] == Value(kError)) told_ = true;
    if (body["type"] == Value(kError)) {
      body.Set("time", body["time"].as_double() + clock_offset_);
    }
    listener_.OnMessage(from, body);
  }

  /// Reports a lost connection: the command has ended with an error, or while ranks were running.
  void TellIfLost() {
    if (lines_.is_open() || has_child_ || killed_ || told_) return;
    told_ = true;
    const bool failed = !WIFEXITED(status_) || WEXITSTATUS(status_) != 0;
    if (running_.empty() && !failed) return;
    const std::string how = WIFEXITED(status_) ? Str("ended with code ", WEXITSTATUS(status_))
                                               : "was ended by " + SignalName(WTERMSIG(status_));
    listener_.OnLost(1, Str("the connection to ", host_.name, " is lost: ", host_.command[0], " ",
                            how, last_error_.empty() ? "" : ": " + last_error_));
  }

  RemoteHost host_;
  NodeListener& listener_;
  std::function<void()> in_child_;
  std::function<void(int)> on_store_;
  pid_t pid_ = 0;
  bool has_child_ = true;
  bool killed_ = false;
  bool told_ = false;  // the reason for the node's end has been reported
  int status_ = 0;
  double clock_offset_ = 0;
  JsonLines lines_;
  std::unique_ptr<OutputStream> errors_;
  std::string last_error_;
  std::set<int> running_;
};

}  // namespace

std::unique_ptr<RemoteNode> MakeRemoteNode(RemoteHost host, NodeListener& listener,
                                           std::function<void()> in_child,
                                           std::function<void(int port)> on_store) {
  return std::make_unique<WorkerNode>(std::move(host), listener, std::move(in_child),
                                      std::move(on_store));
}

}  // namespace strata::launcher
